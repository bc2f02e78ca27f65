"""The author's side of notebook kernels on another machine: signed pieces to and from the host that keeps them there.

A subclass carries the pieces: by a queue of Modal's, by requests to an evaluation server, or over a connection by
ssh. The other side is `modal_app/notebook_host.py`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from orbit_lsp.runners.kernel_process import EndedKernel, Keep, Lease, Record, Stage, ended_of, start_record
from orbit_lsp.runners.modal.deploy import within
from orbit_lsp.runners.modal.notebook_files import NotebookFiles
from orbit_lsp.runners.modal.spawned import SIGN_S
from orbit_remote.common import codec
from orbit_remote.modal_app.signed_stream import SignedInbox, SignedOutbox
from orbit_remote.process.records import Records, packed

log = logging.getLogger("orbit.notebook")

_END_S = 15.0
_REPORT = 4 << 20
"""Bytes after which what has come is reported at once: the other side keeps what is not, and waits beyond its limit."""
EMPTY_S = 300.0
"""How long a session without a kernel waits for the next."""


class FarKernel:
    """One kernel on the other machine. Its session may have others after it."""

    def __init__(self, session: FarSession, lease: Lease) -> None:
        self.pid: int | None = None
        self.ended: asyncio.Future[EndedKernel] = asyncio.get_running_loop().create_future()
        self.opened = asyncio.Event()
        """Set once its keeper has been told to start it."""
        self._session = session
        self._lease: Lease = lease
        self._ready: asyncio.Future[str] | None = None
        self._arrived: asyncio.Queue[Record | EndedKernel] = asyncio.Queue()
        self._records = Records()
        self._last: EndedKernel | None = None

    @property
    def stage(self) -> Stage:
        return self._session.stage

    async def records(self) -> AsyncGenerator[Record, None]:
        while not isinstance(record := await self._arrived.get(), EndedKernel):
            yield record
        self.ended.set_result(record)

    async def send(self, name: str, parts: Sequence[bytes]) -> None:
        await self._session.pass_on(self, packed(name, parts))

    async def prepare(self) -> str:
        if why := await self._session.sync(self):
            return why
        await self._session.tell(busy=True)
        if self._lease == "never":
            return ""
        ready = self._ready = asyncio.get_running_loop().create_future()
        await self.send("cell", [])
        await asyncio.wait([ready, self.ended], return_when=asyncio.FIRST_COMPLETED)
        return ready.result() if ready.done() else ""

    async def rest(self) -> None:
        if self._lease != "never":
            await self.send("rest", [])
        await self._session.tell(busy=False)

    async def end(self, keep: Keep = "nothing") -> EndedKernel:
        await self._session.end_kernel(keep)
        return await asyncio.shield(self.ended)

    # -- for its session ----------------------------------------------------------------------

    def hear(self, data: bytes) -> None:
        for name, parts in self._records.feed(data):
            if name == "event":
                event = codec.read_json(parts[0])
                if event["event"] == "started":
                    self.pid = event["pid"]
                else:
                    ended = ended_of(event)
                    failure = f"{self._session.place}: {ended.failure}" if ended.failure else ""
                    self._last = replace(ended, failure=failure)
            elif name == "ready":
                if self._ready and not self._ready.done():
                    self._ready.set_result(parts[0].decode())
            else:
                self._arrived.put_nowait((name, parts))

    def notice(self, text: str) -> None:
        """A line for the cell that waits."""
        self._arrived.put_nowait(("notice", [text.encode()]))

    def over(self, why: str = "") -> None:
        self._arrived.put_nowait(EndedKernel(None, why) if why or not self._last else self._last)


class FarSession:
    """A session of kernels. `why` is set once it is over: it is the beginning of a sentence. `living` is the task of
    its life, which a subclass starts.
    """

    living: asyncio.Task[None]

    def __init__(self, folder: str, limit: int, place: str, lease: Lease = "never") -> None:
        """Make a session. `folder` is the notebook's, `limit` is the bytes of its files, `place` is where they are
        written, as in `on the server`.
        """
        self.place = place
        self._files = NotebookFiles(folder, limit, place, self._say)
        self._lease: Lease = lease
        secret = secrets.token_hex(32)
        self._secret = secret
        self._out, self._in = SignedOutbox(secret), SignedInbox(secret)
        self._incoming = Records()
        self._writing = asyncio.Lock()
        self._unreported = 0
        self._greeted = asyncio.Event()
        self._stopping: asyncio.Future[tuple[str, bool]] = asyncio.get_running_loop().create_future()
        self._kernel: FarKernel | None = None
        self._alone_since = time.monotonic()
        self._starting: asyncio.Task[None] | None = None
        self.stage: Stage = "starting"
        self.why = ""

    # -- what a subclass adds -------------------------------------------------------------------

    async def _work(self) -> str:
        """Open the line and follow it to its end. Return why it ended."""
        raise NotImplementedError

    async def _carry(self, piece: bytes) -> None:
        """Raises what the line raises."""
        raise NotImplementedError

    async def _put_piece(self, piece: bytes) -> None:
        """Put a piece that the other side asks for again if it is lost."""
        raise NotImplementedError

    def _greet(self, greeting: dict[str, Any]) -> None:
        """Take the greeting in which the other side says what it is."""
        raise NotImplementedError

    def _trouble(self, error: Exception) -> str:
        raise NotImplementedError

    async def _abandon(self) -> None:
        """End what `_work` has left on the other side, after it failed or was cancelled."""

    def _settle(self, *, keep: bool) -> None:
        """Settle a session that is over. With `keep`, what it had stays a little."""

    def _ends(self, *, keep: bool) -> None:
        """The other side has been asked to end."""

    lost = "the machine of its kernel was lost"
    """Why it is over where another host answers."""

    # -- kernels ------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        return not self.living.done() and not self._stopping.done()

    def start_kernel(self, key: str, scheme: str, *, locate: bool) -> FarKernel:
        """Start a kernel. There is one at a time; messages to it wait for the other side."""
        kernel = self._kernel = FarKernel(self, self._lease)
        self._files.forget()

        async def start() -> None:
            await self._greeted.wait()
            await self._say("start")
            await self._put(b"k", packed("start", [start_record(key, scheme, self._lease, locate=locate)]))
            kernel.opened.set()

        self._starting = asyncio.create_task(start())
        return kernel

    async def pass_on(self, kernel: FarKernel, data: bytes) -> None:
        opened = asyncio.ensure_future(kernel.opened.wait())
        await asyncio.wait([opened, kernel.ended], return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        if kernel.opened.is_set() and kernel is self._kernel and not self.living.done():
            await self._put(b"k", data)

    async def sync(self, kernel: FarKernel) -> str:
        """Return why a cell of this kernel cannot be run with the present files. Return "" if it can, or the kernel
        ended.
        """

        async def work() -> str:
            await kernel.opened.wait()
            return await self._files.sync(kernel.notice)

        return await self._unless_over(work(), kernel.ended)

    async def tell(self, *, busy: bool) -> None:
        """Report whether a cell runs or waits to run. Other users of that machine who ask are told."""

    async def bring(self, pattern: str) -> str:
        return await self._unless_over(self._files.bring(pattern), self.living)

    async def _unless_over(self, work: Coroutine[Any, Any, str], over: asyncio.Future[Any]) -> str:
        doing = asyncio.ensure_future(work)
        try:
            await asyncio.wait([doing, over], return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else ""
        finally:
            doing.cancel()

    def unused(self) -> str:
        """Return why the session is over if no kernel was started for long, else ""."""
        if self._kernel is None and time.monotonic() - self._alone_since >= EMPTY_S:
            return f"no kernel was started for {EMPTY_S / 60:g} minutes"
        return ""

    async def end_kernel(self, keep: Keep) -> None:
        if keep == "session" and self._greeted.is_set():
            await self._say("stop")
        else:
            await self.finish("", keep=keep == "container")

    # -- its life -----------------------------------------------------------------------------

    async def finish(self, why: str, *, keep: bool = False) -> None:
        """End the session. With `keep`, what it had stays a little longer, for the next session."""
        if not self._stopping.done():
            self._stopping.set_result((why, keep))
        await asyncio.wait([self.living])

    async def _live(self) -> None:
        doing = asyncio.create_task(self._work())
        keep = False
        try:
            await asyncio.wait([doing, self._stopping], return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                self.why = doing.result()
            else:
                self.why, keep = self._stopping.result()
                await self._say_end(keep, doing)
        except Exception as error:  # noqa: BLE001 - of the line, or ours: a user gets a sentence
            log.warning("%s: %s", type(error).__name__, error)
            self.why = self._trouble(error)
            await self._abandon()
        finally:
            if not doing.done():
                doing.cancel()
                await asyncio.gather(doing, return_exceptions=True)
                await self._abandon()
            self._settle(keep=keep)
            if self._starting:
                self._starting.cancel()
            if self._kernel:
                self._kernel.over(self.why)

    async def _say_end(self, keep: bool, doing: asyncio.Future[str]) -> None:
        """Ask the other side to end, and wait for that."""
        if not self._greeted.is_set():
            return
        with suppress(Exception):
            await within(SIGN_S, self._say("end", b"keep" if keep else b"", self._in.stream))
        self._ends(keep=keep)  # we may be killed meanwhile
        await asyncio.wait([doing], timeout=_END_S)

    # -- the line -----------------------------------------------------------------------------

    async def _say(self, name: str, *parts: bytes) -> None:
        await self._put(b"s", packed(name, parts))

    async def _seen(self) -> None:
        """Tell which piece is due here, and which comes next from here."""
        numbers = [str(number).encode() for number in (self._in.due, self._out.number)]
        await self._carry(self._out.aside(packed("seen", numbers)))

    async def _put(self, stream: bytes, data: bytes) -> None:
        """Put data into a stream. The other side asks again for pieces that are lost on the way."""
        async with self._writing:
            for piece in self._out.pieces(stream, data):
                await self._put_piece(piece)

    async def _take(self, piece: object) -> str:
        """Take a piece. Return why the session is over, "" while it is not."""
        try:
            taken = self._in.take(piece)
        except ValueError as error:
            return await self._stranger(piece, str(error))
        if taken is None:
            if self._in.missing:
                await self._put_piece(self._out.aside(packed("again", [str(self._in.due).encode()])))
            return ""
        stream, data = taken
        self._unreported += len(data)
        if self._unreported >= _REPORT:
            self._unreported = 0
            with suppress(Exception):  # else the next sign of life does it
                await within(SIGN_S, self._seen())
        if stream == b"k":
            if self._kernel:
                self._kernel.hear(data)
            return ""
        for name, parts in (Records() if stream == b"c" else self._incoming).feed(data):
            if why := await self._hear(name, parts):
                return why
        return ""

    async def _stranger(self, piece: object, why: str) -> str:
        """Return why a stranger's piece ends the session, if it does. A piece that is not signed is dropped. A piece
        of another host means that ours is lost.
        """
        other = SignedInbox(self._secret)
        try:
            other.take(piece)
        except ValueError:
            log.warning("a message was dropped: %s", why)
            return ""
        await self._say("end", b"", other.stream)
        return self.lost

    async def _hear(self, name: str, parts: list[bytes]) -> str:
        if name == "container":
            self._greet(codec.read_json(parts[0]))
            await self._say("greeting", self._in.stream)
            self._greeted.set()
        elif name == "again":
            async with self._writing:
                for each in self._out.again(int(parts[0])) or ():
                    await self._put_piece(each)
        elif name in ("brought", "missing", "synced", "failed"):
            self._files.hear(name, parts)
        elif name == "gap":
            return "messages between the kernel's machine and this one were lost"
        elif name == "kernel ended" and self._kernel:
            self._kernel.over()
            self._kernel, self._alone_since = None, time.monotonic()
        return ""
