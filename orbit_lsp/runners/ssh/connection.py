"""One program's connection to a host. It is opened when it is needed, and opened again when it breaks. Its messages
are numbered, and none is lost.

The proxy on the host keeps jobs for `KEEP_S` seconds without a sign of this side, so a job outlasts a link that comes
back within them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, cast

from orbit_lsp import __version__
from orbit_lsp.runners.ssh import command_line, trouble
from orbit_lsp.runners.ssh.trouble import AGAIN, SshError
from orbit_remote.common import codec, requests
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.process.worker_socket import LINE_LIMIT
from orbit_remote.ssh_host.numbered_lines import SIGN, LineInbox, LineOutbox, acknowledged, acknowledgement

log = logging.getLogger("orbit.ssh")

KEEP_S = 45.0
CONNECT_S = 60.0
"""How long a connection may take to come about: somebody may have to touch a key."""
_WELCOME_S = 30.0
SIGN_S = 5.0
_SILENT_S = 15.0
_AGAIN_S = 0.2, 5.0
"""From one attempt to the next, at first and at most."""
_CLOSE_S = 3.0
_NOISE = 1 << 20
"""Bytes that a login may print before our program begins."""
_STDERR = 64 << 10


@dataclass(frozen=True, slots=True)
class SshPlace:
    """A host, and what a proxy is started with there. `laptop` identifies this machine without describing it."""

    host: str
    python: str = ""
    laptop: str = ""
    client: str = "orbit-lsp"
    environment: tuple[str, ...] = ()
    cache_bytes: int = 2 << 30
    spare_idle_s: float = 300.0

    def arguments(self, proxy: str) -> list[str]:
        """Return the arguments with which the relay of the proxy with that name is started."""
        return [
            "--proxy", proxy, "--laptop", self.laptop, "--client", self.client, "--release", __version__,
            "--environment", ",".join(self.environment), "--cache-bytes", str(self.cache_bytes),
            "--spare-idle-s", str(self.spare_idle_s), "--keep-s", str(KEEP_S),
        ]  # fmt: skip


class SshConnection:
    """A connection. `hear` gets each message of the host, `lost` why no request will be answered, `stage` what is
    waited for. `busy` says whether an answer is waited for: only then a broken link is opened again by itself.
    """

    def __init__(
        self, place: SshPlace, hear: Callable[[dict[str, Any]], None], lost: Callable[[SshError], None],
        stage: Callable[[str], None], busy: Callable[[], bool],
    ) -> None:  # fmt: skip
        self.place = place
        self._hear, self._lost, self._stage, self._busy = hear, lost, stage, busy
        self._begin_anew()
        self._connecting = asyncio.Lock()
        self.bytes_sent = 0
        """Of messages, without what connecting takes."""
        self._link: Login | None = None
        self._reading: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Future[None]] = set()
        self._closed = False
        self._heard = time.monotonic()
        self._broke: float | None = None
        """Since when no link has carried anything."""
        self._silent = False

    def _begin_anew(self) -> None:
        """Begin with another proxy on the host. Nothing of the last one is waited for."""
        self._inbox, self._outbox = LineInbox(), LineOutbox()
        self._proxy, self._token = os.urandom(8).hex(), ""

    async def ready(self) -> None:
        """Return once there is a connection. Raises SshError."""
        async with self._connecting:
            if self._closed:
                raise SshError("the connection is closed", AGAIN, passes=True)
            if self._link is None:
                await self._open()

    def send(self, record: dict[str, Any]) -> None:
        """Send a message. While the link is down, messages wait for the next link."""
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        line = self._outbox.add(text.encode("utf-8", "surrogatepass"))
        self.bytes_sent += len(line)
        if self._link:
            self._link.write(line)

    async def sent(self) -> None:
        """Return once the link has taken most of what was sent."""
        if self._link:
            await self._link.drain()

    async def close(self) -> None:
        """End the proxy there, and with it what is under way."""
        self._closed = True
        if self._link:
            self.send({"kind": "bye"})
            if self._reading:
                await asyncio.wait([self._reading], timeout=_CLOSE_S)
        if self._reading:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._link:
            await self._link.end()
            self._link = None
        await asyncio.gather(*self._endings)

    # -- one link after another -----------------------------------------------------------------------

    async def _open(self) -> None:
        """Raises SshError."""
        if self._silent:
            await leave_master(self.place.host)
        login = await Login.start(self.place, "relay", self.place.arguments(self._proxy), self._stage)
        try:
            hello = {"version": requests.VERSION, "seen": self._inbox.last}
            login.write(json.dumps(hello).encode() + b"\n")
            welcome = await _welcome(login, self.place.host)
        except BaseException:
            await login.end()
            raise
        if self._token and welcome["token"] != self._token:  # the other one ended, with what it did
            self._inbox, self._outbox = LineInbox(), LineOutbox()
            if self._busy():
                self._lost(_ended_there(self.place.host))
        self._token = welcome["token"]
        self._outbox.has_come(int(welcome["seen"]))
        for line in self._outbox.waiting():
            login.write(line)
        self._silent, self._heard = False, time.monotonic()
        self._link = login
        self._reading = asyncio.create_task(self._follow(login), name="ssh link")

    async def _follow(self, login: Login) -> None:
        """Read a link until it ends. Then open another one, if somebody waits for an answer."""
        signs = asyncio.create_task(self._give_signs(login))
        try:
            async for line in login.lines:
                self._heard = time.monotonic()
                self._take(line, login)
        except ConnectionError as error:
            log.warning("the link broke: %s", error)
        except ValueError as error:  # reading the same bytes again would fail again
            log.error("the host's messages cannot be read: %s", error)
            self._begin_anew()
            self._lost(_not_understood(self.place.host))
        finally:
            signs.cancel()
            if self._link is login:
                self._link = None
            ending = asyncio.ensure_future(login.end())
            self._endings.add(ending)
            ending.add_done_callback(self._endings.discard)
            await asyncio.shield(ending)
        if not self._closed and self._busy() and self._token:
            await self._open_again()

    def _take(self, line: bytes, login: Login) -> None:
        """Raises ValueError."""
        self._broke = None
        if line == SIGN:
            return
        if line.startswith(b"="):
            self._outbox.has_come(acknowledged(line))
            return
        message = self._inbox.take(line)
        login.write(acknowledgement(self._inbox))
        if message is not None:
            record = codec.read_json(message.decode("utf-8", "surrogatepass").encode("utf-8", "replace"))
            if not isinstance(record, dict):
                raise ValueError("a message is not an object")
            self._hear(cast("dict[str, Any]", record))

    async def _give_signs(self, login: Login) -> None:
        while True:
            await asyncio.sleep(SIGN_S)
            if time.monotonic() - self._heard > _SILENT_S + SIGN_S:
                self._silent = True
                login.kill()
                return
            login.write(SIGN)

    async def _open_again(self) -> None:
        self._broke = broke = self._broke or time.monotonic()
        pause, most = _AGAIN_S
        self._stage(f"the link to {self.place.host} is down; connecting again")
        error = SshError(
            f"{self.place.host} closes each connection at once",
            f"`orbit-lsp stop --on {self.place.host}` ends what runs there",
            passes=True,
        )
        while self._busy() and not self._closed:
            await asyncio.sleep(pause)
            try:
                if time.monotonic() - broke <= KEEP_S:
                    return await self.ready()
            except SshError as refused:
                error = refused
            if not error.passes or time.monotonic() - broke > KEEP_S:
                self._begin_anew()
                self._lost(error)
                return None
            pause = min(2 * pause, most)
        return None


def _not_understood(host: str) -> SshError:
    return SshError(f"{host} gave an answer that was not understood", AGAIN)


def _ended_there(host: str) -> SshError:
    why = f"its link to this machine was down for more than {KEEP_S:g} s, or its processes there were ended"
    return SshError(f"the run on {host} was ended: {why}", AGAIN, passes=True)


class Login:
    """An ssh whose program on the host has begun."""

    def __init__(self, process: asyncio.subprocess.Process, stderr: IO[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin, self._stdout, self._stderr = (
            process,
            process.stdin,
            process.stdout,
            stderr,
        )
        self._waiting = asyncio.ensure_future(process.wait())

    @classmethod
    async def start(
        cls, place: SshPlace, role: str, arguments: list[str], stage: Callable[[str], None] = lambda _: None
    ) -> Login:
        """Log in, bring our package to the host if it is missing, and start a `role` of it. Raises SshError."""
        mark = f"orbit-{os.urandom(8).hex()}"
        command = command_line.remote(mark, place.python, role, arguments)
        words = await asyncio.to_thread(command_line.ssh, place.host, command)
        try:
            stderr = tempfile.TemporaryFile()  # noqa: SIM115 - a shared connection keeps a pipe open for minutes
        except OSError as error:
            raise trouble.no_temporary_file(error) from None
        try:
            process = await asyncio.create_subprocess_exec(
                *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, limit=LINE_LIMIT,
                start_new_session=os.name == "posix",
            )  # fmt: skip
        except OSError:
            stderr.close()
            raise trouble.no_ssh() from None
        login = cls(process, stderr)
        stage(f"connecting to {place.host}; a key that waits for a touch is to be touched now")
        try:
            async with asyncio.timeout(CONNECT_S):
                await login._begin(place, mark, stage)
        except TimeoutError:
            await login.end()
            raise SshError(
                f"{place.host} has not answered within {CONNECT_S:g} s",
                f"check that `ssh {place.host} echo` works in a terminal and prints an empty line",
                passes=True,
            ) from None
        except BaseException:
            await login.end()
            raise
        return login

    async def _begin(self, place: SshPlace, mark: str, stage: Callable[[str], None]) -> None:
        """Raises SshError."""
        host, absent = place.host, f"{place.python or 'python3'} is not there"
        noise, size = list[str](), 0
        while True:
            line = await self._line()
            if not line:
                status = await self._waiting
                raise trouble.of_exit(host, status, self.said(), noise)
            before, found, text = line.partition(mark.encode() + b" ")
            if not found:
                noise = [*noise[-4:], before.decode(errors="replace")]
                size += len(line)
                if size > _NOISE:
                    raise SshError(
                        f"the login on {host} prints more than 1 MiB before a program begins",
                        "see that its ~/.bashrc prints nothing where no person is at a terminal",
                    )
                continue
            record: Any = codec.read_json(text)
            if not isinstance(record, dict):
                raise SshError(f"{host} gave an answer that was not understood", AGAIN, passes=True)
            known = cast("dict[str, object]", record) or {"none": absent}
            if why := trouble.of_host(host, known):
                raise why
            if not known.get("need"):
                return
            stage(f"setting up orbit-lsp on {host}")
            packed = await asyncio.to_thread(command_line.archive)
            self.write(b"%d\n" % len(packed) + packed)

    async def _line(self) -> bytes:
        """Raises SshError."""
        try:
            return await self._stdout.readline()
        except ValueError:
            raise SshError("the host sent a line without an end", AGAIN) from None

    async def read_line(self) -> bytes:
        """Return the next line, empty at the end. Raises SshError."""
        return await self._line()

    @property
    def lines(self) -> asyncio.StreamReader:
        """Return the stream of incoming lines. Reading raises ValueError for a line that is longer than any message."""
        return self._stdout

    def write(self, data: bytes) -> None:
        with suppress(ConnectionError, RuntimeError):  # gone: whoever reads notices
            self._stdin.write(data)

    async def drain(self) -> None:
        with suppress(ConnectionError):
            await self._stdin.drain()

    def said(self) -> str:
        """Return the end of what ssh has written as errors."""
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _STDERR))
        return self._stderr.read().decode(errors="replace")

    async def exited(self) -> int:
        """Return the exit code of ssh."""
        return await asyncio.shield(self._waiting)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()

    async def end(self) -> None:
        self._stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S / 2):
                await asyncio.shield(self._waiting)
        self.kill()
        with suppress(
            TimeoutError, ValueError, ConnectionError
        ):  # asyncio sees no end behind what nobody reads
            async with asyncio.timeout(_CLOSE_S):
                while await self._stdout.read(_NOISE):
                    pass
        await self._waiting
        self._stderr.close()


async def _welcome(login: Login, host: str) -> dict[str, Any]:
    """Raises SshError."""
    try:
        async with asyncio.timeout(_WELCOME_S):
            line = await login.read_line()
            if line:
                record = codec.read_json(line)
                return {"token": str(record["token"]), "seen": int(record["seen"])}
            status = await login.exited()
    except (ValueError, KeyError, TypeError):
        raise _not_understood(host) from None
    except TimeoutError:
        raise SshError(f"orbit-lsp's program on {host} does not answer", AGAIN, passes=True) from None
    raise trouble.of_exit(host, status, login.said(), begun=True)


async def leave_master(host: str) -> None:
    """Leave the shared connection. It may be a link that was silent, and what opens the link again must not wait on
    it.
    """
    if words := await asyncio.to_thread(command_line.leave_master, host):
        null = asyncio.subprocess.DEVNULL
        with suppress(OSError, TimeoutError):
            process = await asyncio.create_subprocess_exec(*words, stdin=null, stdout=null, stderr=null)
            async with asyncio.timeout(_CLOSE_S):
                await process.wait()
