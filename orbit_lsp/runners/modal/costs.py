"""Prices and the ledger behind one interface. Nothing here waits for a disk or for Modal, unless its name says so.

A thread of its own writes the ledger, in the order of the calls.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orbit_lsp.runners.modal.ledger import Ledger, Month, RentedTime, clock
from orbit_lsp.runners.modal.rates import Price, Rates
from orbit_remote.common.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import modal

log = logging.getLogger("orbit.modal")

_ASK_S = 5.0
_FRESH_S = 86_400
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WantedGpu:
    """A run that is about to rent `gpu` ("": a machine without one) for at most `seconds`; the last `idle_s` of them
    follow the run. `run` names it within this server.
    """

    run: str
    gpu: str
    seconds: float
    idle_s: float = 0.0

    @property
    def key(self) -> str:
        return reservation(self.run, self.gpu)


def reservation(run: str, gpu: str) -> str:
    """Return the name of a reservation. A run may first rent a machine without a GPU; its GPU has a reservation of
    its own.
    """
    return f"{run}@{gpu}"


class RentalCosts:
    def __init__(
        self, where: Callable[[], Path] | None = None, complain: Callable[[str], None] = log.warning
    ) -> None:
        """Make the costs. `where` names the ledger's file; without it nothing is kept. `complain` gets each sentence
        once.
        """
        self.rates = Rates()
        self._ledger = Ledger(where) if where else None
        self._complain = complain
        self._shown: set[str] = set()
        self._thread: ThreadPoolExecutor | None = None
        self._asked = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    # -- prices -------------------------------------------------------------------------------

    def learn(self, client: modal.Client) -> None:
        """Ask Modal what it charges this account, at most once a day. The table is used meanwhile."""
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
            log.info("Modal did not report its rates: %s: %s", type(error).__name__, error)

    def price(self, gpu: str) -> Price | None:
        return self.rates.of(gpu)

    # -- the ledger ---------------------------------------------------------------------------

    def put(self, span: RentedTime, run: str | None = None) -> None:
        """Record a container's time. The run `run` no longer waits, because it is in that container."""
        waited = reservation(run, span.gpu) if run else None
        self._later(lambda ledger: ledger.put(span, waited))

    def end(self, container: str | None = None, at: float | None = None) -> None:
        """Record that a container has ended, by default now. None: every container of ours has ended."""
        when = clock() if at is None else at
        self._later(lambda ledger: ledger.end(container, when))

    async def reserve(self, wanted: Sequence[WantedGpu], limit: float | None) -> tuple[Month, bool] | None:
        """Let runs that wait for a GPU count, here and in other editors, if they fit: see `Ledger.reserve`."""
        now = clock()
        spans: list[RentedTime] = []
        for each in wanted:
            price = self.price(each.gpu)
            usd_per_s, rates = (price.usd_per_s, price.rates) if price else (None, "")
            spans.append(RentedTime(each.key, each.gpu, now, now + each.seconds, usd_per_s, rates))
        return await self._now(lambda ledger: ledger.reserve(spans, limit, now))

    def unreserve(self, wanted: WantedGpu) -> None:
        self._later(lambda ledger: ledger.release(wanted.key))

    async def month(self) -> Month | None:
        """Return this calendar month, with everything recorded before. Return None if no ledger is kept."""
        return await self._now(lambda ledger: ledger.month(clock()))

    async def close(self) -> None:
        """Close, and return once everything is written."""
        if self._asking:
            self._asking.cancel()
        if self._thread:
            await self._now(Ledger.close)
            await asyncio.to_thread(self._thread.shutdown)
            self._thread = None

    async def _now(self, work: Callable[[Ledger], T]) -> T | None:
        if self._ledger is None:
            return None
        result = await asyncio.wrap_future(self._submit(self._ledger, work))
        self._say(self._ledger)
        return result

    def _later(self, work: Callable[[Ledger], None]) -> None:
        if ledger := self._ledger:
            writing = asyncio.wrap_future(self._submit(ledger, work))
            writing.add_done_callback(lambda _: self._say(ledger))

    def _submit(self, ledger: Ledger, work: Callable[[Ledger], T]) -> Future[T]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="orbit-ledger")
        return self._thread.submit(work, ledger)

    def _say(self, ledger: Ledger) -> None:
        for text in ledger.complaints():
            if text not in self._shown:
                self._shown.add(text)
                self._complain(text)
