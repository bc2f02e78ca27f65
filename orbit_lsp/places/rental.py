"""Rented GPUs: what they cost, what they may cost, what is wanted for a run, and the runner that rents them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from orbit_lsp.places import retirement
from orbit_lsp.places.client_settings import ClientSettings
from orbit_lsp.specs import job_builder
from orbit_lsp.state import modal_gpus
from orbit_lsp.state.placement import WarmGpu
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job

if TYPE_CHECKING:
    from orbit_lsp.runners import Runner
    from orbit_lsp.runners.modal import spending
    from orbit_lsp.runners.modal.costs import RentalCosts, WantedGpu
    from orbit_lsp.runners.modal.deploy import ImageSpec
    from orbit_lsp.runners.modal.runner import ModalRunner
    from orbit_lsp.runners.modal.sessions import ContainerSession as Rented

_KEPT_S = 3600.0
"""A GPU is kept warm without an end: the budget has to allow its first hour. From then on it counts as it is billed."""


class Rental:
    def __init__(
        self,
        session: Session,
        settings: ClientSettings,
        looked: Callable[[], Awaitable[None]],
        reads: Callable[[Job], Sequence[str]],
        message: Callable[[str], None],
        changed: Callable[[set[str]], None],
        ask: spending.Ask | None,
        remedy: str,
    ) -> None:
        """Make the rental. `looked` waits until it is known what this machine has, which decides what an image has.
        `reads` returns the files that the last build of a job's file read. `ask` asks the author a question, such as
        whether the month's budget may be exceeded. `remedy` says how to raise the budget, if not by the setting.
        """
        self._session = session
        self._settings = settings
        self._looked = looked
        self._reads = reads
        self._message = message
        self._changed = changed
        self._ask = ask
        self._remedy = remedy
        self._runner: ModalRunner | None = None
        self._cooling: asyncio.TimerHandle | None = None

    @cached_property
    def costs(self) -> RentalCosts:
        """Return the costs. They are made for the first rented GPU, because the import takes a command 5 ms."""
        from orbit_lsp.runners.modal.costs import RentalCosts
        from orbit_lsp.runners.modal.ledger import ledger_file

        return RentalCosts(ledger_file, self._message)

    @cached_property
    def budget(self) -> spending.Budget:
        from orbit_lsp.runners.modal import spending

        budget = spending.Budget(self.costs, self._ask or spending.nobody)
        budget.remedy = self._remedy or budget.remedy
        return budget

    def look_for_account(self, stamp: object) -> bool:
        """Return whether a token for Modal came, went or changed, by the stamp of its file. What the old token rents
        is released.
        """
        if not self._settings.account_changed(stamp):
            return False
        retirement.retire(self._runner)
        self._runner = None
        self._session.setup.warm = {}
        self._changed(set(self._session.files))
        return True

    def runner(self) -> ModalRunner:
        """Return the runner of GPUs on Modal for the present settings. It asks Modal for nothing yet."""
        from orbit_lsp.runners.modal.pool import AuthorKnowledge, ModalOptions
        from orbit_lsp.runners.modal.runner import ModalRunner

        settings = self._session.setup.settings
        options = ModalOptions(
            spec=self._spec(),
            folders=tuple(self._session.setup.folders),
            data=tuple(settings.modal.data),
            closure_bytes=settings.modal.files_mib << 20,
            environment=settings.modal.environment,
            restricted=settings.modal.restricted,
            keep_warm=settings.modal.keep_warm,
            released=self._settings.of_command,
        )
        if self._runner is None or self._runner.options != options:
            retirement.retire(self._runner)
            known = AuthorKnowledge(
                lambda job: job_builder.is_compiled(self._session, job),
                self._reads,
                lambda: self._session.setup.machine.python_path if self._session.setup.machine else (),
                self._may_keep,
            )
            self._runner = ModalRunner(options, self._warmth, known, self.costs)
        return self._runner

    def budgeted(self, job: Job) -> Runner:
        """Return the runner for one job, which may not begin if it may exceed the month's budget."""
        from orbit_lsp.runners.modal import spending

        compiles = job.action in ("compile", "build")
        wanted = self.wanted(job.run, "" if compiles or job.gpu is None else job.gpu)
        limit = self._session.setup.settings.modal.budget_usd
        return spending.Budgeted(self.runner(), self.budget, wanted, limit, asks=not compiles)

    def wanted(self, run: str, gpu: str) -> WantedGpu:
        """Return the most that a run may rent: its limits, and the idle time of a container that does not exist yet."""
        from orbit_lsp.runners.modal.costs import WantedGpu

        spec, setup = self._spec(), self._session.setup
        idle_s = 0 if setup.settings.modal.restricted or gpu in setup.warm else spec.idle_s
        return WantedGpu(run, gpu, spec.timeout_s + idle_s, idle_s)

    async def rent(self, wanted: Sequence[WantedGpu]) -> c.Failure | None:
        """Count these GPUs in the budget. Return why they may not begin together, or None if they may."""
        await self._looked()
        question = await self.budget.question(wanted, self._session.setup.settings.modal.budget_usd)
        return None if question is None else await self.budget.asked(question, wanted)

    def rates_text(self) -> str:
        """Return whose prices a choice shows."""
        price = self.costs.price(self._session.setup.settings.gpu)
        return f" ({price.rates})" if price else ""

    def hourly(self, gpu: str) -> str:
        price = self.costs.price(gpu)
        return f" {price.hourly} at {price.rates}" if price else ""

    def sessions(self) -> list[Rented]:
        return self._runner.sessions() if self._runner else []

    def session_text(self, session: Rented) -> str:
        from orbit_lsp.runners.modal import spending
        from orbit_lsp.runners.modal.ledger import clock

        return spending.session_text(session, self._session.setup.settings.modal.idle_s, clock())

    async def keep_warm(self, gpu: str, *, keep: bool) -> str:
        """Keep a container warm, or no longer. Return the sentence that says how it went."""
        from orbit_lsp.runners.modal.costs import WantedGpu
        from orbit_lsp.runners.modal.errors import ModalError

        if not (rented := modal_gpus.rented(gpu)):
            return f"orbit: {modal_gpus.refusal(gpu)}"
        gpu = rented
        hour = [WantedGpu(f"keep {gpu}", gpu, _KEPT_S)]
        if keep and (refused := await self.rent(hour)):
            return f"orbit: {refused.message}. {refused.remedy}".strip()
        self.budget.over(hour)
        try:
            await self.runner().keep_warm(gpu, keep=keep)
        except ModalError as error:
            return f"orbit: {error.trouble.message}. {error.trouble.remedy}"
        return (
            f"orbit: one {gpu} stays warm, and is billed{self.hourly(gpu)}, until it is released"
            if keep
            else (f"orbit: the {gpu} is no longer kept warm, and stops after its idle time")
        )

    async def release(self, gpu: str | None) -> str:
        """Release the containers of one GPU or of all. Return the sentence that says how it went."""
        gpu = gpu and (modal_gpus.rented(gpu) or gpu)
        wanted = dict.fromkeys(session.gpu for session in self.sessions() if gpu in (None, session.gpu))
        released = [gpu for gpu in wanted if self._runner and await self._runner.release(gpu)]
        if released:
            return f"orbit: released {', '.join(released)}"
        if at_work := [
            session.gpu for session in self.sessions() if session.gpu in wanted and session.until is None
        ]:
            return f"orbit: the {at_work[0]} is busy: cancel its run, or release it afterwards"
        return (
            "orbit: no GPU is rented now"
            if not wanted
            else "orbit: Modal rejected the request, so it stops after its idle time"
        )

    async def close(self) -> None:
        if self._cooling:
            self._cooling.cancel()
        if self._runner is not None:
            await self._runner.close()
        if "costs" in self.__dict__:  # a property that exists only once somebody asked for costs
            await self.costs.close()

    def _spec(self) -> ImageSpec:
        from orbit_lsp.runners.modal.deploy import app_spec

        return app_spec(self._session.setup.settings, self._session.setup.machine)

    def _warmth(self) -> None:
        """Tell lenses that a container became warm or cold, and tell them again when its time has passed."""
        from orbit_lsp.runners.modal.ledger import clock

        sessions = self.sessions()
        self._session.setup.warm = {session.gpu: self._warm(session) for session in sessions}
        self._changed(set(self._session.files))
        if self._cooling:
            self._cooling.cancel()
        ends = [session.until for session in sessions if session.until is not None and not session.kept]
        if ends:
            pause = max(0.0, min(ends) - clock()) + 0.1
            self._cooling = asyncio.get_running_loop().call_later(pause, self._warmth)

    def _warm(self, session: Rented) -> WarmGpu:
        if session.price is None:
            return WarmGpu(session.until, session.kept)
        idle_usd = session.price.usd_per_s * self._session.setup.settings.modal.idle_s
        return WarmGpu(session.until, session.kept, idle_usd, session.price.hourly, session.price.rates)

    async def _may_keep(self, gpu: str) -> bool:
        from orbit_lsp.runners.modal.costs import WantedGpu

        limit = self._session.setup.settings.modal.budget_usd
        if await self.budget.room_for(WantedGpu(f"keep {gpu}", gpu, _KEPT_S), limit):
            return True
        self._message(f"orbit: the {gpu} is not kept warm: an hour of it may exceed the month's budget")
        return False
