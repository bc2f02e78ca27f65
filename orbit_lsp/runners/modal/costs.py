"""Prices and the ledger behind one door: nothing here waits for a disk or for Modal unless it says so.

The ledger is written by a thread of its own, in the order in which it was told.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_lsp.runners.modal.ledger import Ledger, Month, Span
from orbit_lsp.runners.modal.rates import Price, Rates

if TYPE_CHECKING:
    import modal

log = logging.getLogger("orbit.modal")

_ASK_S = 5.0
_FRESH_S = 86_400
_WAITING_S = 3600
"""How long a run that waits for a GPU counts although nobody has said that it still waits."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run that is about to rent `gpu` for at most `seconds`. `run` names it within this server."""

    run: str
    gpu: str
    seconds: float


class Costs:
    def __init__(
        self, where: Callable[[], Path] | None = None, complain: Callable[[str], None] = log.warning
    ) -> None:
        """`where` names the ledger's file; without it nothing is kept. `complain` gets a sentence, once each."""
        self.rates = Rates()
        self._ledger = Ledger(where) if where else None
        self._complain = complain
        self._said: set[str] = set()
        self._thread: ThreadPoolExecutor | None = None
        self._asked = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._owner = uuid.uuid4().hex

    # -- prices -------------------------------------------------------------------------------

    def learn(self, client: modal.Client) -> None:
        """Ask Modal what it charges this account, at most once a day; the table serves meanwhile."""
        if time.monotonic() - self._asked >= _FRESH_S:
            self._asked = time.monotonic()
            self._asking = asyncio.create_task(self._learn(client), name="modal rates")

    async def _learn(self, client: modal.Client) -> None:
        import modal

        try:
            async with asyncio.timeout(_ASK_S):
                workspace: Any = modal.Workspace.from_context(client=client)
                self.rates.take(await workspace.billing.rates.aio())
        except Exception as error:  # noqa: BLE001 - of Modal's client: the table serves
            log.info("Modal did not say its rates: %s: %s", type(error).__name__, error)

    def price(self, gpu: str) -> Price | None:
        return self.rates.of(gpu)

    # -- the ledger ---------------------------------------------------------------------------

    def put(self, span: Span, run: str | None = None) -> None:
        """Record a container's time; the run `run` no longer waits, it is in there."""
        if ledger := self._ledger:
            instead = self._waiting(run) if run else None
            self._later(lambda: ledger.put(span, instead))

    def end(self, container: str, at: float) -> None:
        if ledger := self._ledger:
            self._later(lambda: ledger.end(container, at))

    def end_all(self) -> None:
        """Every container of ours has ended."""
        if ledger := self._ledger:
            now = time.time()
            self._later(lambda: ledger.end_all(now))

    def reserve(self, wanted: Wanted) -> None:
        """Let a run that waits for its GPU count, here and in other editors."""
        if ledger := self._ledger:
            now = time.time()
            price = self.price(wanted.gpu)
            span = Span(
                self._waiting(wanted.run), wanted.gpu, now, now + wanted.seconds,
                price.usd_per_s if price else None, price.rates if price else "", now + _WAITING_S,
            )  # fmt: skip
            self._later(lambda: ledger.put(span))

    def unreserve(self, run: str) -> None:
        self.end(self._waiting(run), time.time())

    async def month(self) -> Month | None:
        """This calendar month, once everything told before is in it; None where nothing is kept."""
        ledger = self._ledger
        if ledger is None:
            return None
        found = await asyncio.wrap_future(self._executor().submit(ledger.month, time.time()))
        self._say(ledger)
        return found

    async def close(self) -> None:
        """Once everything is written."""
        if self._asking:
            self._asking.cancel()
        if self._thread:
            await asyncio.to_thread(self._thread.shutdown)
            self._thread = None
            if self._ledger:
                self._say(self._ledger)

    def _later(self, work: Callable[[], None]) -> None:
        ledger = self._ledger
        loop = asyncio.get_running_loop()
        done = asyncio.wrap_future(self._executor().submit(work), loop=loop)
        done.add_done_callback(lambda _: self._say(ledger) if ledger else None)

    def _executor(self) -> ThreadPoolExecutor:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="orbit-ledger")
        return self._thread

    def _say(self, ledger: Ledger) -> None:
        for text in ledger.complaints():
            if text not in self._said:
                self._said.add(text)
                self._complain(text)

    def _waiting(self, run: str) -> str:
        return f"{self._owner} {run}"
