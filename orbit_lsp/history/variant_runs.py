"""Runs whole jobs for the two sides of a comparison, through the runner of a click. It handles the budget, failures,
and the times that are compared.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from orbit_lsp.history.variants import Variant
from orbit_lsp.places.places import Places
from orbit_lsp.runners import Runner
from orbit_lsp.runs import result_filing
from orbit_lsp.runs.scheduler import RunFailedError
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Timing
from orbit_remote.common.requests import BY_AUTHOR, Job


@dataclass(slots=True)
class VariantRuns:
    """Runs jobs of variants. `show` is told what an author waits for."""

    session: Session
    places: Places
    show: Callable[[str], object]
    allowed: bool = False
    """The author has agreed that they may exceed the month's budget."""

    async def perform(
        self, variant: Variant, run: str, known: dict[str, str], heard: Callable[[c.Event], object]
    ) -> c.Finished:
        """Run one job to its end, and call `heard` with each of its events.

        `known` has the content hashes of the files that the earlier runs of this variant were built from; the files
        of this run are added. Raises RunFailedError if the job did not end well, or a file was changed.
        """
        job = replace(variant.job, run=run)
        finished: c.Finished | None = None
        built: c.Built | None = None
        async with self._runner(job) as runner, aclosing(runner.run(job)) as events:
            async for event in events:
                heard(event)
                match event:
                    case c.Stage(state=state, why=why):
                        self.show(f"{variant.name} {state} ({why})" if why else f"{variant.name} {state}")
                    case c.Built():
                        built = event
                    case c.Finished():
                        finished = event
                    case _:
                        pass
        if finished is None:
            text = f"{variant.name}: the run ended without an answer"
            raise RunFailedError(c.Failure("infrastructure", text, "try again"))
        files = (built.files if built else {}) | finished.files
        if changed := _note_files(known, files, variant.job.path):
            text = f"{variant.name}: {changed} was changed while it was compared"
            raise RunFailedError(c.Failure("infrastructure", text, "compare again", retryable=True))
        if finished.outcome != "ok":
            raise RunFailedError(_failure(variant, finished, built.problems if built else ()))
        return finished

    @asynccontextmanager
    async def _runner(self, job: Job) -> AsyncGenerator[Runner, None]:
        """Give the runner of a click. A rented GPU counts in the month's budget for each job, but the author who
        agreed to exceed it has agreed for all of them. Raises RunFailedError if it may not be exceeded.
        """
        runner = await self.places.runner_of(job)
        if job.gpu is None:
            yield runner
            return
        rental = self.places.rental
        budget, wanted = rental.budget, [rental.wanted(job.run, job.gpu)]
        try:
            if self.allowed:
                await budget.allow(wanted)
            elif question := await budget.question(wanted, self.session.setup.settings.modal.budget_usd):
                self.show("the month's budget may be exceeded")
                if failure := await budget.asked(question, wanted):
                    raise RunFailedError(failure)
                self.allowed = True
            yield rental.runner()
        finally:
            budget.over(wanted)


def _failure(variant: Variant, finished: c.Finished, problems: tuple[c.Problem, ...]) -> c.Failure:
    failure = finished.failure or c.Failure(finished.outcome, finished.outcome)
    errors = [each.message for each in (*problems, *finished.problems) if each.severity == "error"]
    if errors and finished.outcome == "compile error" and errors[0] not in failure.message:
        failure = replace(failure, message=f"{failure.message}: {errors[0]}")
    if (
        finished.outcome == "infrastructure" and variant.job.gpu is None
    ):  # the machine of both sides is at fault
        return replace(failure, place=None)
    return replace(failure, message=f"{variant.name}: {failure.message}", place=None)


def launches_of(variant: Variant, finished: c.Finished) -> tuple[c.Launches, ...]:
    """Return the launches that are compared: all of a launch spec; of a program's kernel the configuration that took
    most of its time. Raises RunFailedError if there are none.
    """
    launched = result_filing.launched(
        variant.session, variant.frozen, variant.job, {variant.target}, finished
    )
    launches = launched[variant.target][1] if variant.target in launched else ()
    if not launches:
        raise RunFailedError(
            c.Failure("runtime error", f"{variant.name}: {variant.target.key} was not launched")
        )
    if variant.job.start.through in BY_AUTHOR:
        launches = (max(launches, key=lambda it: it.timing.median * it.count),)
    return launches


def total_ns(timings: Sequence[Timing]) -> float:
    """Return the time of a run: the sum of its launches' medians."""
    return sum(timing.median for timing in timings)


def _note_files(known: dict[str, str], files: dict[str, str], main: str) -> str:
    """Add `files` to those `known`. Return the name of a file that has changed since the runs before, or "" if none
    has. The main file is left out: its text is frozen.
    """
    changed = next((path for path, now in files.items() if path != main and known.get(path, now) != now), "")
    known |= files
    return Path(changed).name
