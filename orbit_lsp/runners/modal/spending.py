"""Messages and questions to the author about rented GPUs: prices, the month, the budget, the choice of a GPU."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from orbit_lsp.runners import Runner
from orbit_lsp.runners.modal import account
from orbit_lsp.runners.modal.costs import RentalCosts, WantedGpu
from orbit_lsp.runners.modal.ledger import Month
from orbit_lsp.runners.modal.sessions import ContainerSession as Rented
from orbit_lsp.state import modal_gpus, units
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job

if TYPE_CHECKING:
    from orbit_lsp.state.placement import RunSetup

Ask = Callable[[str, Sequence[str]], Awaitable[str | None]]
"""Ask the user to pick one of the answers; None if they dismiss the question. Raises CannotAskError."""

ONCE = "Run once"
ALWAYS = "Run, and do not ask again until this editor is closed"
_RAISE = "raise the setting `orbit.modal.budget_usd`"
FIRST_S = 60
"""For which a first run rents its GPU, about: the start of a container, and the measuring."""


class CannotAskError(Exception):
    """The editor cannot ask questions, or no client is connected."""


async def nobody(text: str, answers: Sequence[str]) -> str | None:
    """Ask nobody: always raises CannotAskError."""
    del text, answers
    raise CannotAskError


class Budget:
    """The budget of a calendar month. What was spent, what is rented now and what waits for a GPU all count."""

    def __init__(self, costs: RentalCosts, ask: Ask = nobody) -> None:
        self.ask = ask
        self.remedy = _RAISE
        self.lifted = False
        """The author allowed exceeding it until this process ends."""
        self._costs = costs

    async def question(self, wanted: Sequence[WantedGpu], limit: float) -> str | None:
        """Return why these runs may not begin without asking. Return None if they may; then they count."""
        answer = await self._costs.reserve(wanted, None if self.lifted else limit)
        if self.lifted:
            return None
        if answer is None:
            return f"the costs of rented GPUs cannot be recorded, so the month's budget of {units.money(limit)} may be exceeded"
        month, fits = answer
        if fits:
            return None
        least = month.spent_usd + month.due_usd
        prices = [self._costs.price(each.gpu) for each in wanted]
        rates = _rates({price.rates for price in prices if price} | set(month.rates))
        counted = f"{units.money(month.spent_usd)} spent, {units.money(month.due_usd)} more rented or waiting"
        spent = f"{counted}{rates}"
        if month.damaged:
            return (
                f"the record of this month's costs was damaged, so the month's budget of {units.money(limit)} may be "
                f"exceeded ({spent} since then); delete {month.damaged} to count from there"
            )
        if unknown := [
            each.gpu or "a machine without a GPU"
            for each, price in zip(wanted, prices, strict=True)
            if price is None
        ]:
            what = f"the price of {', '.join(unknown)} is not known, so the month's budget"
            return f"{what} of {units.money(limit)} may be exceeded ({spent})"
        own = sum(price.usd_per_s * each.seconds for each, price in zip(wanted, prices, strict=True) if price)
        longest = max(wanted, key=lambda each: each.seconds)
        idle = f" and {longest.idle_s:,.0f} s of idle GPU after it" if longest.idle_s else ""
        return (
            f"this may take the month's spending on Modal to {units.money(least + own)}, past the budget of "
            f"{units.money(limit)} ({counted}, {units.money(own)} for the {longest.seconds:,.0f} s that it may take: "
            f"{longest.seconds - longest.idle_s:,.0f} s to build and to run by its limits{idle}{rates})"
        )

    async def room_for(self, wanted: WantedGpu, limit: float) -> bool:
        """Say whether the budget allows this, without asking. It is not counted."""
        answer = await self._costs.reserve([wanted], limit)
        self.over([wanted])
        return self.lifted or bool(answer and answer[1])

    async def allow(self, wanted: Sequence[WantedGpu]) -> None:
        await self._costs.reserve(wanted, None)

    async def asked(self, question: str, wanted: Sequence[WantedGpu]) -> c.Failure | None:
        """Ask the author. Return None if the runs may begin."""
        try:
            answer = await self.ask(f"orbit: {question}", (ONCE, ALWAYS))
        except CannotAskError:
            return c.Failure("infrastructure", question, self.remedy)
        if answer not in (ONCE, ALWAYS):
            return c.Failure("cancelled", f"not run: {question}")
        self.lifted = answer == ALWAYS
        await self.allow(wanted)
        return None

    def over(self, wanted: Sequence[WantedGpu]) -> None:
        """Stop counting these runs: they have ended, or never began."""
        for each in wanted:
            self._costs.unreserve(each)


class Budgeted:
    """A runner whose jobs begin once the budget, or the author, allows them."""

    def __init__(
        self, runner: Runner, budget: Budget, wanted: WantedGpu, limit: float, *, asks: bool = True
    ) -> None:
        """Make a runner. Without `asks`, a job that the budget does not allow fails: compiling is no click, so it
        asks nothing.
        """
        self.name = runner.name
        self._runner = runner
        self._budget = budget
        self._wanted = (wanted,)
        self._limit = limit
        self._asks = asks

    async def run(self, job: Job) -> AsyncGenerator[c.Event, None]:
        try:
            question = await self._budget.question(self._wanted, self._limit)
            if question and not self._asks:
                yield c.failed(job.run, c.Failure("infrastructure", question, self._budget.remedy))
                return
            if question:
                yield c.Stage(job.run, "queued", time.time(), "the month's budget may be exceeded")
                if failure := await self._budget.asked(question, self._wanted):
                    yield c.failed(job.run, failure)
                    return
            async with aclosing(self._runner.run(job)) as events:
                async for event in events:
                    yield event
        finally:
            self._budget.over(self._wanted)

    async def machine(self) -> c.Machine | None:
        return await self._runner.machine()

    async def warm(self, language: str) -> None:
        await self._runner.warm(language)

    async def close(self) -> None:
        await self._runner.close()


def total(costs: Sequence[c.Cost | None]) -> c.Cost | None:
    """Return what several jobs cost together. Return None if none was rented."""
    known_costs = [cost for cost in costs if cost]
    if not known_costs:
        return None
    known = [cost.usd for cost in known_costs if cost.usd is not None]
    names = ", ".join(dict.fromkeys(cost.gpu for cost in known_costs))
    rates = " and ".join(sorted({cost.rates for cost in known_costs if cost.rates}))
    usd = sum(known) if len(known) == len(known_costs) else None
    return c.Cost(names, sum(cost.seconds for cost in known_costs), usd, None, rates)


# -- words ------------------------------------------------------------------------------------------


def session_text(session: Rented, idle_s: float, now: float) -> str:
    """Return `H100: warm until 14:05:00, 2 runs, 3.1 s of work; $0.15 so far and $0.34 if it idles, at Modal's
    rates`.
    """
    if session.kept:
        how = "kept warm until it is released"
    elif session.until is None:
        how = "at work"
    else:
        how = f"warm until {time.strftime('%H:%M:%S', time.localtime(session.until))}"
    runs = "1 run" if session.runs == 1 else f"{session.runs} runs"
    text = f"{session.gpu}: {how}, {runs}, {session.gpu_s:.1f} s of work"
    usd = session.usd(now)
    if session.price is None or usd is None:
        return f"{text}; its price is not known"
    left = idle_s if session.until is None else max(0.0, session.until - now)
    rest = f"{session.price.hourly} from now on" if session.kept else _idle(session, left)
    return f"{text}; {units.money(usd)} so far, {rest}, at {session.price.rates}"


def _idle(session: Rented, seconds: float) -> str:
    assert session.price
    return f"{units.money(session.price.usd_per_s * seconds)} more if it idles to its end"


def month_text(month: Month, budget: float | None) -> str:
    """Return `November 2026: $1.20 for 1,034 s of rented GPUs, with starts and idle time, $0.34 more if what is warm
    idles to its end, at …`.
    """
    text = f"{month.name}: {units.money(month.spent_usd)} for {month.gpu_s:,.{int(month.gpu_s < 100)}f} s of rented GPUs, with starts and idle time"
    if month.due_usd:
        text += f", {units.money(month.due_usd)} more if what is rented now idles to its end"
    text += _rates(set(month.rates))
    if month.unpriced_s:
        text += f"; {month.unpriced_s:,.0f} s have no known price and are not included"
    if month.kept:
        text += f"; {', '.join(month.kept)} is kept and billed until `orbit-lsp modal stop`"
    return text if budget is None else f"{text}; the budget is {units.money(budget)}"


def _rates(names: set[str]) -> str:
    return f", at {' and '.join(sorted(names))}" if names else ""


def ways(setup: RunSetup, costs: RentalCosts) -> str:
    """Return how a kernel gets a GPU on a machine that has none, what that costs, and what works without one. It is a
    list with an item a line.
    """
    needed = steps(setup)
    items = (
        *([f"Rent one from Modal: {needed}; then run it again."] if needed else []),
        *_prices(setup, costs),
        f"The budget is {units.money(setup.settings.modal.budget_usd)} a month.",
        "Or use another machine's GPU by ssh: the setting `orbit.runner`, on the command line `--runner`, is then `ssh:HOST`.",
        "Without a GPU you get compiler errors, registers and occupancy: a .cu file shows them when it is opened, a .py file after Compile.",
    )
    return "\n".join(f"- {item}" for item in items)


def steps(setup: RunSetup) -> str:
    """Return what has to be done so that runs can go to Modal."""
    local = "set the runner, which is `local`, to `auto`" if setup.settings.runner == "local" else ""
    token = "" if account.configured() else account.remedy()
    return ", and ".join(filter(None, (local, token)))


def _prices(setup: RunSetup, costs: RentalCosts) -> tuple[str, ...]:
    gpu = setup.rents()
    if (price := costs.price(gpu)) is None or not gpu:
        return (f"The GPUs are {', '.join(modal_gpus.NAMES)}.",)
    first, idle = (
        units.money(price.usd_per_s * seconds) for seconds in (FIRST_S, setup.settings.modal.idle_s)
    )
    return (
        f"{gpu} costs {price.hourly} ({price.rates}): about {first} for a first run of {FIRST_S} s.",
        f"After a run an editor keeps the GPU warm for {setup.settings.modal.idle_s:g} s, which costs {idle} more.",
    )


def with_ways(failure: c.Failure, setup: RunSetup, costs: RentalCosts) -> c.Failure:
    """Add the ways to a GPU to a failure whose cause is that there is none. Any other failure stays."""
    if not lacks_gpu(failure):
        return failure
    return replace(failure, remedy=ways(setup, costs))


def lacks_gpu(failure: c.Failure) -> bool:
    return failure.message.startswith(c.NO_GPU) or failure.message == account.NO_TOKEN


def gpu_choices(costs: RentalCosts, gpus: Sequence[str]) -> dict[str, str]:
    """Return the GPU for each title that an editor lists: `H100, $4.08/h`. The question says whose prices these are."""
    titles: dict[str, str] = {}
    for gpu in gpus:
        price = costs.price(gpu)
        titles[f"{gpu}, {price.hourly}" if price else gpu] = gpu
    return titles
