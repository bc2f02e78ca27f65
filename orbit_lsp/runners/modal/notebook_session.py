"""A container that is rented for a notebook, and the kernels that run in it one after another.

It is one long call (`modal_app/notebook_host.py` is its other side). While it lives, its row in the ledger is
renewed, and ends when the container would end if we were killed now. So the cost of a container that we leave behind
is counted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue as stdlib_queue
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from orbit_lsp.runners.modal import errors
from orbit_lsp.runners.modal.costs import RentalCosts, WantedGpu
from orbit_lsp.runners.modal.deploy import within
from orbit_lsp.runners.modal.errors import DEPLOY, ModalError, ModalTrouble
from orbit_lsp.runners.modal.far_session import FarSession
from orbit_lsp.runners.modal.ledger import RentedTime, clock
from orbit_lsp.runners.modal.pool import ContainerPool
from orbit_lsp.runners.modal.spawned import SIGN_S, Spawned
from orbit_lsp.state import units
from orbit_remote.common import messages as c
from orbit_remote.common import requests
from orbit_remote.common.messages import content_hash
from orbit_remote.modal_app.image_spec import QUEUED_S, pack
from orbit_remote.modal_app.notebook_host import GONE_S, GREET_S

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

Rent = Callable[[WantedGpu], Awaitable[c.Failure | None]]


class NotebookSession(FarSession, Spawned):
    lost = "its container was lost: Modal took it away, or it ran out of memory"

    def __init__(
        self, gpu: str, pool: ContainerPool, folder: str, costs: RentalCosts, rent: Rent, limit: float | None
    ) -> None:
        """Make a session. `folder` is the notebook's. `rent` says why the budget does not allow it. `limit` is that
        of the month.
        """
        Spawned.__init__(self, f"notebook-{uuid.uuid4().hex}", gpu, pool)
        FarSession.__init__(self, folder, pool.options.closure_bytes, "in the container")
        self._root = content_hash(os.fsencode(folder))
        self._costs = costs
        self._rent = rent
        self._limit = limit
        self._line: Any = None
        self._failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why Modal takes no more messages."""
        self._wanted = WantedGpu(self.key, gpu, _HORIZON_S + _ORPHAN_S)
        self._began: float | None = None
        self._since = 0.0
        self.container = ""
        self.living = asyncio.create_task(self._live(), name=self.key)

    def _stage(self, state: c.State, why: str = "") -> None:
        self.stage = "queued" if state == "queued" else "starting"
        if self._kernel and (text := why or ("" if state == "starting" else f"{self.gpu}: {state}")):
            self._kernel.notice(f"orbit: {text}")

    # -- its life -----------------------------------------------------------------------------

    def _trouble(self, error: Exception) -> str:
        trouble = errors.trouble(error)
        return f"{trouble.message} ({trouble.remedy})"

    async def _abandon(self) -> None:
        await self.end()

    def _ends(self, *, keep: bool) -> None:
        if self.container:
            self._write(clock() + (RESTART_S if keep else _END_S))

    def _settle(self, *, keep: bool) -> None:
        self._costs.unreserve(self._wanted)
        if self.container and keep:
            self._write(clock() + RESTART_S)
        elif self.container:
            self._costs.end(self.container, clock() + _EXIT_S)
        elif self._began is not None:
            # its container may have begun without a word that came through
            begun = self._spawning is not None
            ends = min(clock(), self._began + _ORPHAN_S) + _EXIT_S if begun else self._began
            self._costs.end(self._wanted.key, ends)

    async def _work(self) -> str:
        """Work until the session ends, and return why. Raises what Modal's client raises, and ModalError."""
        wanted = self._wanted
        if refused := await self._rent(wanted):
            raise ModalError(ModalTrouble("infrastructure", refused.message, refused.remedy))
        self._costs.learn(await self._pool.account.client())
        self._line = await self._pool.queue()
        self._began = clock()
        # what comes of the call if we are killed before its container has spoken
        price = self._costs.price(wanted.gpu)
        rate, rates = (price.usd_per_s, price.rates) if price else (None, "")
        self._costs.put(
            RentedTime(wanted.key, wanted.gpu, self._began, self._began + _ORPHAN_S, rate, rates), self.key
        )
        await self._submit(
            "notebook", [pack({"root": self._root, "secret": self._secret, "contract": requests.VERSION})]
        )
        return await self._follow()

    async def _follow(self) -> str:
        returned = asyncio.ensure_future(self._returned())
        watching = [
            asyncio.ensure_future(each)
            for each in (self._listen(), self._renewed(), self._fails(), self._failed)
        ]
        try:
            await asyncio.wait([returned, *watching], return_when=asyncio.FIRST_COMPLETED)
            for each in watching:
                if each.done():
                    why = each.result()
                    await self.end()
                    return why
            answer = returned.result()
            if answer.get("contract", requests.VERSION) != requests.VERSION:
                raise ModalError(ModalTrouble("version", "the app on Modal is of another version", DEPLOY))
            return str(answer.get("ended", ""))
        finally:
            for task in (returned, *watching):
                task.cancel()
            await asyncio.gather(returned, *watching, return_exceptions=True)

    async def _fails(self) -> str:
        """Wait until its containers have failed one after another, and return what to say then."""
        await self._until_failing()
        return self._trouble(ModalError(await self._failure()))

    async def _renewed(self) -> str:
        """Give signs of life and renew the ledger's row until the session cannot go on. Return why."""
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
            if why := self.unused():
                return why

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
        self._costs.put(RentedTime(self.container, self.gpu or "", self._since, ends, rate, rates), self.key)

    def cost_text(self) -> str:
        """Return what the session has cost so far."""
        if not self.container:
            return f"{self.gpu}: not rented yet"
        seconds = clock() - self._since
        price = self._costs.price(self.gpu or "")
        if price is None:
            return f"{self.gpu}: rented for {seconds / 60:.0f} min; its price is not known"
        usd = units.money(seconds * price.usd_per_s)
        return f"{self.gpu}: rented for {seconds / 60:.0f} min, {usd} so far, {price.hourly} at {price.rates}"

    # -- the line -----------------------------------------------------------------------------

    async def _carry(self, piece: bytes) -> None:
        await self._line.put.aio(piece, partition=f"{self.key}/in", partition_ttl=QUEUED_S)

    async def _put_piece(self, piece: bytes) -> None:
        try:
            await self._carry(piece)
        except Exception as error:  # noqa: BLE001 - of Modal's client: a user gets a sentence
            log.warning("%s: a message was not sent: %s", self.key, error)
            if not errors.unreachable(error) and not self._failed.done():
                self._failed.set_result(self._trouble(error))

    async def _listen(self) -> str:
        """Listen until it cannot go on, and return why."""
        while True:
            try:
                pieces = await self._line.get_many.aio(200, timeout=_POLL_S, partition=self.key)
            except stdlib_queue.Empty:
                continue
            except Exception as error:  # noqa: BLE001 - `_returned` reports the call's own end
                log.warning("%s: the container cannot be heard: %s", self.key, error)
                if errors.missing(error):
                    self._pool.forget_queue(self._line)
                await asyncio.sleep(1)
                continue
            for piece in pieces:
                if why := await self._take(piece):
                    return why

    def _greet(self, greeting: dict[str, Any]) -> None:
        age = greeting.get("age_s")
        self.heard.word(lost=False)
        self.stage = "starting"
        self._since = clock() - (float(age) if isinstance(age, float | int) and age > 0 else 0.0)
        self.container = str(greeting.get("container") or f"a container with {self.gpu}")
        self._write(clock() + _HORIZON_S)
        price = self._costs.price(self.gpu or "")
        each = f", {price.hourly} at {price.rates} while this kernel lives" if price else ""
        if self._kernel:
            self._kernel.notice(f"orbit: the {self.gpu} is there{each}")
