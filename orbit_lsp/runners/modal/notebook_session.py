"""A container that is rented for a notebook, and the kernels that run in it one after another.

It is one long call (`modal_app/notebook_host.py` is its other side). While it lives, its row in the ledger ends when the
container would end if we were killed now, and is renewed: what we leave behind is in it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue as stdlib_queue
import secrets
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from orbit_lsp.runners.kernel_process import Ended, Keep, Record, ended_of, start_record
from orbit_lsp.runners.modal import errors
from orbit_lsp.runners.modal.costs import Costs, Wanted
from orbit_lsp.runners.modal.deploy import within
from orbit_lsp.runners.modal.errors import DEPLOY, ModalError, Trouble
from orbit_lsp.runners.modal.ledger import Span, clock
from orbit_lsp.runners.modal.notebook_files import NotebookFiles
from orbit_lsp.runners.modal.pool import Pool
from orbit_lsp.runners.modal.spawned import SIGN_S, Spawned
from orbit_lsp.state import units
from orbit_remote.common import codec
from orbit_remote.common import messages as c
from orbit_remote.common.messages import content_hash
from orbit_remote.modal_app.image_spec import pack
from orbit_remote.modal_app.notebook_host import GONE_S, GREET_S
from orbit_remote.modal_app.signed_stream import Inbox, Outbox
from orbit_remote.process.records import Records, packed

log = logging.getLogger("orbit.modal")

RESTART_S = 60
"""How long a container stays for a kernel that is started again."""
LONGEST_S = 86_000
"""Modal ends a call after a day."""
_SIGN_S = min(SIGN_S, GONE_S / 4)
_RENEW_S = min(30.0, GONE_S / 4)
_HORIZON_S = _RENEW_S + GONE_S + 10
"""How long a container may be there after its row was last renewed, if we are killed."""
_ORPHAN_S = GREET_S + 15
"""And one that starts after that."""
_POLL_S = 30.0
_END_S = 15.0
_EXIT_S = 3.0
"""What a container takes to end: it is billed."""
_EMPTY_S = 300.0
"""How long a container without a kernel waits for the next."""

Rent = Callable[[Wanted], Awaitable[c.Failure | None]]


class RentedKernel:
    """One kernel there; its session may have others after it."""

    def __init__(self, session: NotebookSession) -> None:
        self.pid: int | None = None
        self.ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self.opened = asyncio.Event()
        """Set once its keeper has been told to start it."""
        self._session = session
        self._arrived: asyncio.Queue[Record | Ended] = asyncio.Queue()
        self._records = Records()
        self._last: Ended | None = None

    async def records(self) -> AsyncGenerator[Record, None]:
        while not isinstance(record := await self._arrived.get(), Ended):
            yield record
        self.ended.set_result(record)

    async def send(self, name: str, parts: Sequence[bytes]) -> None:
        await self._session.pass_on(self, packed(name, parts))

    async def prepare(self) -> str:
        return await self._session.sync(self)

    async def rest(self) -> None:
        """A rented GPU is the kernel's alone."""

    async def end(self, keep: Keep = "nothing") -> Ended:
        await self._session.end_kernel(keep)
        return await asyncio.shield(self.ended)

    # -- for its session ----------------------------------------------------------------------

    def hear(self, data: bytes) -> None:
        for name, parts in self._records.feed(data):
            if name != "event":
                self._arrived.put_nowait((name, parts))
                continue
            event = codec.read_json(parts[0])
            if event["event"] == "started":
                self.pid = event["pid"]
            else:
                self._last = ended_of(event)

    def notice(self, text: str) -> None:
        """A line for the cell that waits."""
        self._arrived.put_nowait(("notice", [text.encode()]))

    def over(self, why: str = "") -> None:
        self._arrived.put_nowait(Ended(None, why) if why or not self._last else self._last)


class NotebookSession(Spawned):
    """`why` is set once it is over: a sentence's beginning."""

    def __init__(
        self, gpu: str, pool: Pool, folder: str, costs: Costs, rent: Rent, limit: float | None
    ) -> None:
        """`folder` is the notebook's; `rent` says why the budget does not allow it; `limit` is that of the month."""
        super().__init__(f"notebook-{uuid.uuid4().hex}", gpu, pool)
        self._root = content_hash(os.fsencode(folder))
        self._files = NotebookFiles(folder, pool.options.closure_bytes, self._say)
        self._costs = costs
        self._rent = rent
        self._limit = limit
        secret = secrets.token_hex(32)
        self._secret = secret
        self._out, self._in = Outbox(secret), Inbox(secret)
        self._incoming = Records()
        self._line: Any = None
        self._writing = asyncio.Lock()
        self._greeted = asyncio.Event()
        self._stopping: asyncio.Future[tuple[str, bool]] = asyncio.get_running_loop().create_future()
        self._kernel: RentedKernel | None = None
        self._alone_since = time.monotonic()
        self._starting: asyncio.Task[None] | None = None
        self._began: float | None = None
        self._since = 0.0
        self.container = ""
        self.why = ""
        self.living = asyncio.create_task(self._live(), name=self.key)

    # -- kernels ------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        return not self.living.done() and not self._stopping.done()

    def start_kernel(self, key: str, scheme: str) -> RentedKernel:
        """One at a time; messages that are sent to it wait for the container."""
        kernel = self._kernel = RentedKernel(self)
        self._files.forget()

        async def start() -> None:
            await self._greeted.wait()
            await self._say("start")
            await self._put(b"k", packed("start", [start_record(key, scheme)]))
            kernel.opened.set()

        self._starting = asyncio.create_task(start())
        return kernel

    async def pass_on(self, kernel: RentedKernel, data: bytes) -> None:
        opened = asyncio.ensure_future(kernel.opened.wait())
        await asyncio.wait([opened, kernel.ended], return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        if kernel.opened.is_set() and kernel is self._kernel and not self.living.done():
            await self._put(b"k", data)

    async def sync(self, kernel: RentedKernel) -> str:
        """Why a cell of this kernel cannot be run with the files as they are; empty where it can, or the kernel ended."""

        async def work() -> str:
            await kernel.opened.wait()
            return await self._files.sync(kernel.notice)

        return await self._unless_over(work(), kernel.ended)

    async def bring(self, pattern: str) -> str:
        return await self._unless_over(self._files.bring(pattern), self.living)

    async def _unless_over(self, work: Coroutine[Any, Any, str], over: asyncio.Future[Any]) -> str:
        doing = asyncio.ensure_future(work)
        try:
            await asyncio.wait([doing, over], return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else ""
        finally:
            doing.cancel()

    async def end_kernel(self, keep: Keep) -> None:
        if keep == "session" and self._greeted.is_set():
            await self._say("stop")
        else:
            await self.finish("", keep=keep == "container")

    def _stage(self, state: c.State, why: str = "") -> None:
        if self._kernel and (text := why or ("" if state == "starting" else f"{self.gpu}: {state}")):
            self._kernel.notice(f"orbit: {text}")

    # -- its life -----------------------------------------------------------------------------

    async def finish(self, why: str, *, keep: bool = False) -> None:
        """End it; with `keep` the container stays a little, for the next session."""
        if not self._stopping.done():
            self._stopping.set_result((why, keep))
        await asyncio.wait([self.living])

    async def _live(self) -> None:
        wanted = Wanted(self.key, self.gpu or "", _HORIZON_S + _ORPHAN_S)
        doing = asyncio.create_task(self._work(wanted))
        keep = False
        try:
            await asyncio.wait([doing, self._stopping], return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                self.why = doing.result()
            else:
                self.why, keep = self._stopping.result()
                await self._say_end(keep, doing)
        except Exception as error:  # noqa: BLE001 - of Modal's client, or ours: a user gets a sentence
            log.warning("%s: %s: %s", self.key, type(error).__name__, error)
            trouble = errors.trouble(error)
            self.why = f"{trouble.message} ({trouble.remedy})"
        finally:
            if not doing.done():
                doing.cancel()
                await asyncio.gather(doing, return_exceptions=True)
                await self.end()
            self._costs.unreserve(wanted)
            if self.container and keep:
                self._write(clock() + RESTART_S)
            elif self.container:
                self._costs.end(self.container, clock() + _EXIT_S)
            elif self._began is not None:
                # its container may have begun without a word that came through
                begun = self._spawning is not None
                ends = min(clock(), self._began + _ORPHAN_S) + _EXIT_S if begun else self._began
                self._costs.end(wanted.key, ends)
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
        if self.container:  # we may be killed meanwhile
            self._write(clock() + (RESTART_S if keep else _END_S))
        await asyncio.wait([doing], timeout=_END_S)

    async def _work(self, wanted: Wanted) -> str:
        """Why it ended. Raises what Modal's client raises, and ModalError."""
        if refused := await self._rent(wanted):
            raise ModalError(Trouble("infrastructure", refused.message, refused.remedy))
        self._costs.learn(await self._pool.account.client())
        self._line = await self._pool.queue()
        self._began = clock()
        # what comes of the call if we are killed before its container has spoken
        price = self._costs.price(wanted.gpu)
        rate, rates = (price.usd_per_s, price.rates) if price else (None, "")
        self._costs.put(
            Span(wanted.key, wanted.gpu, self._began, self._began + _ORPHAN_S, rate, rates), self.key
        )
        await self._submit(
            "notebook", [pack({"root": self._root, "secret": self._secret, "contract": c.VERSION})]
        )
        return await self._follow()

    async def _follow(self) -> str:
        returned = asyncio.ensure_future(self._returned())
        watching = [asyncio.ensure_future(each) for each in (self._listen(), self._renewed())]
        try:
            await asyncio.wait([returned, *watching], return_when=asyncio.FIRST_COMPLETED)
            for each in watching:
                if each.done():
                    why = each.result()
                    await self.end()
                    return why
            answer = returned.result()
            if answer.get("contract", c.VERSION) != c.VERSION:
                raise ModalError(Trouble("version", "the app on Modal is of another version", DEPLOY))
            return str(answer.get("ended", ""))
        finally:
            for task in (returned, *watching):
                task.cancel()
            await asyncio.gather(returned, *watching, return_exceptions=True)

    async def _renewed(self) -> str:
        """Give signs of life and renew the ledger's row; why it cannot go on."""
        through = renewed = time.monotonic()
        while True:
            await asyncio.sleep(_SIGN_S)
            begun = time.monotonic()
            try:
                await within(SIGN_S, self._seen())
                through = begun
            except Exception as error:  # noqa: BLE001 - the next one may come through
                if not errors.unreachable(error):
                    through = begun
                elif time.monotonic() - through >= GONE_S:
                    return f"Modal has not answered for {GONE_S:g} s, and the container ends by itself"
            if begun - renewed >= _RENEW_S and self.container:
                renewed = begun
                self._write(clock() + _HORIZON_S)
                if why := await self._over_budget():
                    return why
            if self._kernel is None and begun - self._alone_since >= _EMPTY_S:
                return f"no kernel was started for {_EMPTY_S / 60:g} minutes"

    async def _over_budget(self) -> str:
        month = await self._costs.month() if self._limit is not None else None
        if month is None or self._limit is None or month.spent_usd + month.due_usd <= self._limit:
            return ""
        return (
            f"the month's budget of {units.money(self._limit)} is used up ({units.money(month.spent_usd)} spent), "
            "so the rented GPU was ended"
        )

    def _write(self, ends: float) -> None:
        price = self._costs.price(self.gpu or "")
        rate, rates = (price.usd_per_s, price.rates) if price else (None, "")
        self._costs.put(Span(self.container, self.gpu or "", self._since, ends, rate, rates), self.key)

    def cost_text(self) -> str:
        """What it has cost so far."""
        if not self.container:
            return f"{self.gpu}: not rented yet"
        seconds = clock() - self._since
        price = self._costs.price(self.gpu or "")
        if price is None:
            return f"{self.gpu}: rented for {seconds / 60:.0f} min; its price is not known"
        usd = units.money(seconds * price.usd_per_s)
        return f"{self.gpu}: rented for {seconds / 60:.0f} min, {usd} so far, {price.hourly} at {price.rates}"

    # -- the line -----------------------------------------------------------------------------

    async def _say(self, name: str, *parts: bytes) -> None:
        await self._put(b"s", packed(name, parts))

    async def _seen(self) -> None:
        """Tell which piece is due here, and which comes next from here."""
        numbers = [str(number).encode() for number in (self._in.due, self._out.number)]
        piece = self._out.aside(packed("seen", numbers))
        await self._line.put.aio(piece, partition=f"{self.key}/in")

    async def _put(self, stream: bytes, data: bytes) -> None:
        """What is lost on the way is asked for again by the other side."""
        async with self._writing:
            for piece in self._out.pieces(stream, data):
                await self._put_piece(piece)

    async def _put_piece(self, piece: bytes) -> None:
        try:
            await self._line.put.aio(piece, partition=f"{self.key}/in")
        except Exception as error:
            if not errors.unreachable(error):
                raise
            log.warning("%s: a message was not sent: %s", self.key, error)

    async def _listen(self) -> str:
        """Until it cannot go on: why."""
        while True:
            try:
                pieces = await self._line.get_many.aio(200, timeout=_POLL_S, partition=self.key)
            except stdlib_queue.Empty:
                continue
            except Exception as error:  # noqa: BLE001 - `_returned` reports the call's own end
                log.warning("%s: the container cannot be heard: %s", self.key, error)
                await asyncio.sleep(1)
                continue
            for piece in pieces:
                if why := await self._take(piece):
                    return why

    async def _take(self, piece: object) -> str:
        try:
            taken = self._in.take(piece)
        except ValueError as error:
            return await self._stranger(piece, str(error))
        if taken is None:
            if self._in.missing:
                await self._put_piece(self._out.aside(packed("again", [str(self._in.due).encode()])))
            return ""
        stream, data = taken
        if stream == b"k":
            if self._kernel:
                self._kernel.hear(data)
            return ""
        for name, parts in (Records() if stream == b"c" else self._incoming).feed(data):
            if why := await self._hear(name, parts):
                return why
        return ""

    async def _stranger(self, piece: object, why: str) -> str:
        """A piece that is not signed is dropped; one of another container means that ours is lost."""
        other = Inbox(self._secret)
        try:
            other.take(piece)
        except ValueError:
            log.warning("%s: a message was dropped: %s", self.key, why)
            return ""
        await self._say("end", b"", other.stream)
        return "its container was lost: Modal took it away, or it ran out of memory"

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
            return "messages between the container and this machine were lost"
        elif name == "kernel ended" and self._kernel:
            self._kernel.over()
            self._kernel, self._alone_since = None, time.monotonic()
        return ""

    def _greet(self, greeting: dict[str, Any]) -> None:
        age = greeting.get("age_s")
        self._since = clock() - (float(age) if isinstance(age, float | int) and age > 0 else 0.0)
        self.container = str(greeting.get("container") or f"a container with {self.gpu}")
        self._write(clock() + _HORIZON_S)
        price = self._costs.price(self.gpu or "")
        each = f", {price.hourly} at {price.rates} while this kernel lives" if price else ""
        if self._kernel:
            self._kernel.notice(f"orbit: the {self.gpu} is there{each}")
