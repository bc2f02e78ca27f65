"""The worker that this user's editors and commands share. The first client starts it; others find it by its socket.

`worker/shared_worker.py` is the other side. Clients that share a worker have the same Python, cache folder and
version of ours, and the same values of the variables that count when a process starts (`handshake.loaded`).
Everything else belongs to a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, cast

from orbit_remote import MAIN
from orbit_remote.common import codec, handshake, limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.packages import installing
from orbit_remote.process import file_lock, process_groups, program, runtime_folder

log = logging.getLogger("orbit.worker")

LINE_LIMIT = 64 << 20
LEAVE_S = 600.0
"""How long a worker stays when its last client has left. A person between two commands of an edit-and-run loop is
seldom away for longer; what it costs meanwhile is the host memory of an imported torch. The GPU's is given back after
`spare_idle_s`, client or not.
"""
_WELCOME_S = 60.0
"""How long a worker may take to answer. Starting one takes 0.2 s; one that does not answer is ended and replaced."""
_STATUS_S = 5.0
_LEAVE_S = 30.0
"""How long a worker that was asked to stop may take: it ends what runs."""
_TRIES = 5
_LOOK_S = 0.01


class WorkerError(Exception):
    """The worker cannot be started or has ended. The text is a sentence for the user. It has its `remedy`, unless
    that is to try again.
    """

    def __init__(self, text: str, remedy: str = "") -> None:
        super().__init__(f"{text}; {remedy}" if remedy else text)
        self.text, self.remedy = text, remedy


@dataclass(frozen=True, slots=True)
class WantedWorker:
    """The worker that is wanted, and what a client asks of it. `environment` are the client's variables, `release` is
    the client's version.
    """

    python: str
    cache: str
    environment: Mapping[str, str]
    passed: tuple[str, ...]
    cache_bytes: int
    spare_idle_s: float
    client: str
    release: str

    @property
    def key(self) -> str:
        return handshake.key(self.python, self.cache, self.environment, self.release)


@dataclass(frozen=True, slots=True)
class Attached:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    welcome: handshake.Welcome


async def attach(wanted: WantedWorker) -> Attached:
    """Connect to the worker, and start it if there is none. Raises WorkerError, and OSError if the runtime folder
    cannot be used.
    """
    folder, key = _folder(), wanted.key
    for _ in range(_TRIES):
        started: subprocess.Popen[bytes] | None = None
        streams = await _connect(folder / f"{key}.sock")
        if streams is None:
            async with _locked(folder / f"{key}.lock"):
                streams = await _connect(folder / f"{key}.sock")  # another client was faster
                if streams is None:
                    started = await asyncio.to_thread(_start, folder, key, wanted)
                    streams = await _connect(folder / f"{key}.sock")
        if streams is None:
            continue
        welcome = await _greet(wanted, key, streams, folder)
        status = await asyncio.to_thread(started.wait) if started else 0
        if welcome is not None:
            return Attached(*streams, welcome)
        streams[1].close()
        if started:
            raise WorkerError(_stillborn(wanted.python, status, folder / f"{key}.log"))
    raise WorkerError(
        installing.located(
            f"the worker of {wanted.python} keeps ending while a client connects to it; `orbit-lsp stop` ends all workers"
        )
    )


def _folder() -> Path:
    try:
        return runtime_folder.folder()
    except runtime_folder.RefusedError as error:
        raise WorkerError(str(error)) from None


async def _connect(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    """Connect to a socket. Return None if no process listens. Raises WorkerError if a process of another user does."""
    try:
        reader, writer = await asyncio.open_unix_connection(str(path), limit=LINE_LIMIT)
    except (FileNotFoundError, ConnectionError, BlockingIOError):
        return None
    size = struct.calcsize("3i")
    credentials = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _, uid, _ = struct.unpack("3i", credentials)
    if uid != os.getuid():
        writer.close()
        raise WorkerError(f"the socket {path} is served by another user (uid {uid}); remove it")
    return reader, writer


async def _greet(
    wanted: WantedWorker, key: str, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], folder: Path
) -> handshake.Welcome | None:
    """Greet the worker. Return None if it ended instead of answering. Raises WorkerError."""
    reader, writer = streams
    hello = handshake.Hello(
        key, wanted.client, dict(wanted.environment), wanted.passed, sys.executable, wanted.cache_bytes,
        wanted.spare_idle_s,
    )  # fmt: skip
    try:
        writer.write(handshake.encode("hello", hello))
        async with asyncio.timeout(_WELCOME_S):
            kind, record = handshake.decode(await reader.readline() or b'{"kind":"none"}')
        if kind == "refused":
            writer.close()
            raise WorkerError(
                installing.located(
                    f"the worker refuses this client: {record.get('why')}; `orbit-lsp stop` ends it"
                )
            )
        return handshake.build(handshake.Welcome, record) if kind == "welcome" else None
    except (ConnectionError, ValueError):
        return None
    except TimeoutError:
        log.error("the worker did not answer within %g s, and is ended", _WELCOME_S)
        await asyncio.to_thread(_kill, folder, key)
        return None
    except asyncio.CancelledError:
        writer.close()
        raise


def _start(folder: Path, key: str, wanted: WantedWorker) -> subprocess.Popen[bytes]:
    """Start the process that becomes the worker by forking, and ends. The caller has the lock. Raises WorkerError,
    OSError.
    """
    _sweep(folder)
    path = folder / f"{key}.sock"
    path.unlink(missing_ok=True)
    command = [
        wanted.python, "-P", str(MAIN), "worker", "--cache", wanted.cache, "--cache-bytes", str(wanted.cache_bytes),
        "--spare-idle-s", str(wanted.spare_idle_s), "--folder", str(folder), "--key", key, "--release", wanted.release,
        "--leave-s", str(LEAVE_S),
    ]  # fmt: skip
    environment = program.environment(wanted.environment) | {process_groups.MARK: process_groups.new_mark()}
    with socket.socket(socket.AF_UNIX) as listener, _new_log(folder / f"{key}.log") as output:
        listener.bind(str(path))
        path.chmod(0o600)  # before it listens
        listener.listen(64)
        try:
            return subprocess.Popen(
                [*command, "--listen", str(listener.fileno())],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd="/",
                pass_fds=[listener.fileno()], start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            path.unlink(missing_ok=True)
            raise WorkerError(
                f"the Python of the worker, {wanted.python}, cannot be started: {error.strerror or error}; "
                "set `orbit.python` to a Python 3.11 or newer"
            ) from None


def _new_log(path: Path) -> IO[bytes]:
    """Open a new log for appending, because the worker shortens it when it has become long."""
    path.unlink(missing_ok=True)
    return os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab"
    )


def _stillborn(python: str, status: int, output: Path) -> str:
    last_line = ""
    with contextlib.suppress(OSError):
        last_line = next(iter(regular_files.text(output, limits.STATE).strip().splitlines()[-1:]), "")
    how = f"exit code {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
    return f"the worker of {python} ended while it started ({how if status else 'see its log'}): {last_line or output}"


@asynccontextmanager
async def _locked(path: Path) -> AsyncGenerator[None]:
    """Let one client at a time start a worker. The kernel releases the lock with its holder."""
    while (descriptor := file_lock.taken_at(path)) is None:  # noqa: ASYNC110 - nobody tells when it is free
        await asyncio.sleep(_LOOK_S)  # starting a worker takes tenths of a second
    try:
        yield
    finally:
        os.close(descriptor)


# -- those that run ---------------------------------------------------------------------------------


async def running() -> list[handshake.Status]:
    """Return this user's workers, of any version of ours. Raises WorkerError if the runtime folder is not ours."""
    if sys.platform != "linux":
        return []
    statuses: list[handshake.Status] = []
    for path in _sockets():
        answer = await _ask(path, "status")
        if answer:
            with contextlib.suppress(ValueError):
                statuses.append(handshake.build(handshake.Status, answer))
    return sorted(statuses, key=lambda status: status.since)


async def stop(spared: Callable[[handshake.Status], bool] | None = None) -> list[int]:
    """End this user's workers except those that are `spared`, with everything that they run. Return their process
    ids. A worker that does not answer is killed. Raises WorkerError if the runtime folder is not ours.
    """
    if sys.platform != "linux":
        return []
    ended: list[int] = []
    for path in _sockets():
        key, pid = path.stem, _known(path.parent, path.stem).get("pid")
        answer = await _ask(path, "status") or {}
        with contextlib.suppress(ValueError):
            if answer and spared and spared(handshake.build(handshake.Status, answer)):
                continue
        if not isinstance(pid, int):  # the disk was full when it began
            pid = answer.get("pid")
        if await _ask(path, "stop", until_end=True) is None and not await asyncio.to_thread(
            _kill, path.parent, key
        ):
            _forget(path.parent, key)  # left by one that was killed
            continue
        if isinstance(pid, int):
            ended.append(pid)
        _forget(path.parent, key)
    return ended


def _sweep(folder: Path) -> None:
    """Remove what killed workers left, because nothing may ever need their keys again."""
    with contextlib.suppress(OSError):
        for lock in folder.glob("*.lock"):
            if not _listens(lock.with_suffix(".sock")):
                _forget(folder, lock.stem)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:  # it has more connections waiting than it takes at once
            pass
        return True


def _forget(folder: Path, key: str) -> None:
    """Remove what a worker that has ended left in the runtime folder, unless a client starts another one in its
    place.
    """
    if (lock := file_lock.taken_at(folder / f"{key}.lock")) is not None:
        for suffix in ("sock", "pid", "log", "lock"):
            (folder / f"{key}.{suffix}").unlink(missing_ok=True)
        os.close(lock)


def _sockets() -> list[Path]:
    try:
        return sorted(_folder().glob("*.sock"))
    except OSError:
        return []


async def _ask(path: Path, what: str, *, until_end: bool = False) -> dict[str, Any] | None:
    """Ask a worker, and return the answer. Return None if nobody listens, or none came in time. With `until_end`,
    wait until the connection has ended too.
    """
    try:
        streams = await _connect(path)
        if streams is None:
            return None
        reader, writer = streams
        with contextlib.closing(writer):
            writer.write(handshake.encode(what))
            async with asyncio.timeout(_STATUS_S):
                _, answer = handshake.decode(await reader.readline())
            if until_end:
                async with asyncio.timeout(_LEAVE_S):
                    await reader.read()
            return answer
    except (OSError, ValueError, TimeoutError):
        return None


def _known(folder: Path, key: str) -> dict[str, Any]:
    """Return what a worker wrote about itself: its pid and its mark."""
    with contextlib.suppress(OSError, ValueError):
        known: Any = codec.read_json(regular_files.read(folder / f"{key}.pid", limits.STATE))
        return cast("dict[str, Any]", known) if isinstance(known, dict) else {}
    return {}


def _kill(folder: Path, key: str) -> bool:
    """End a worker that does not answer, if it is one: a process id may be another process's by now."""
    pid = _known(folder, key).get("pid")
    with contextlib.suppress(OSError):
        if not isinstance(pid, int):
            return False
        command = process_groups.command(pid)
        if key.encode() in command and str(MAIN).encode() in command:
            os.kill(pid, signal.SIGKILL)
            mark = str(_known(folder, key).get("mark", ""))
            if mark:
                process_groups.end_marked(mark)
            return True
    return False
