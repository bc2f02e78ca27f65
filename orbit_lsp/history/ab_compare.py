"""*Compare with…*: a kernel and something else in turn, a whole job each, until measuring says which is faster.

Every job goes the way of a click, through the ordinary runner, so both sides are built, checked, budgeted and cancelled
as any run. The first of each is not counted: it builds, and it is the one that would fail.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from orbit_lsp.history import counter_diff, variants
from orbit_lsp.history.compare_candidates import Other
from orbit_lsp.history.history_tracker import Versions
from orbit_lsp.history.variants import NoSide, Side
from orbit_lsp.runners import Runner
from orbit_lsp.runners.modal import spending
from orbit_lsp.runs import result_filing
from orbit_lsp.runs.run_environment import Environment
from orbit_lsp.runs.run_group import Joint
from orbit_lsp.runs.scheduler import Run, Watcher
from orbit_lsp.specs import job_builder
from orbit_lsp.state import harness, placement
from orbit_lsp.state.session import KernelId, Running, Session, Versus, path_of
from orbit_remote.common import measure
from orbit_remote.common import messages as c

log = logging.getLogger("orbit.runs")


@dataclass(slots=True, eq=False)
class Contest:
    """A comparison under way. `run` stands for all of its jobs: its bar, its lens, its end."""

    run: Run
    target: KernelId
    other: Other
    now: Side | None
    then: Side | None = None
    pair: int = 0
    allowed: bool = False
    """The author has said that it may pass the month's budget."""
    ended: tuple[list[c.Finished], list[c.Finished]] = field(default_factory=lambda: ([], []))
    built: c.Built | None = None
    times: tuple[list[list[c.Timing]], list[list[c.Timing]]] = field(default_factory=lambda: ([], []))
    """For each side, first the other and then the kernel as it stands now, as everywhere here: of each counted run, of
    each launch.
    """
    read: tuple[dict[str, str], dict[str, str]] = field(default_factory=lambda: ({}, {}))
    """The files that each side was built from, by content hash."""
    shapes: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))
    comparison: measure.Comparison | None = None


class _EndedError(Exception):
    """A side cannot be compared; the failure says why."""

    def __init__(self, failure: c.Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Turns(Joint[Contest]):
    def __init__(
        self, session: Session, environment: Environment, versions: Versions, watcher: Watcher
    ) -> None:
        super().__init__()
        self._session = session
        self._environment = environment
        self._versions = versions
        self._watcher = watcher
        self._ids = itertools.count(1)

    def start(self, target: KernelId, other: Other) -> Run | None:
        """Compare a kernel as its text stands with `other`, and return at once; a comparison of the same kernel that
        is under way is joined. None where the file is not open.
        """
        if (frozen := self._session.freeze(target.uri)) is None:
            return None
        for active in self._active.values():
            if active.target == target:
                return active.run
        name = f"turns{next(self._ids)}"
        recipe = job_builder.recipe_of(self._session, target)
        job = job_builder.make(self._session, frozen, "run", name, recipe)
        run = Run(name, "run", frozen, job, {target}, self._session.disk, recipe)
        run.named = f"Compare {harness.named(target) or target.key} with {other.title}"
        try:
            now, why = variants.now(self._session, target), None
        except NoSide as none:
            now, why = None, str(none)
        one = Contest(run, target, other, now)
        self._active[name] = one
        self._mark(one, "queued")
        run.task = asyncio.create_task(self._follow(one, why), name=f"compare {name}")
        run.task.add_done_callback(lambda task: self._end(one, _CANCELLED) if task.cancelled() else None)
        self._watcher.begin(run)
        self._watcher.changed({target.uri})
        return run

    # -- following ----------------------------------------------------------------------------

    async def _follow(self, one: Contest, why: str | None) -> c.Finished:
        failure: c.Failure | None = None
        found: tuple[c.Profile | None, c.Profile | None] = (None, None)
        try:
            with tempfile.TemporaryDirectory(prefix="orbit-compare-") as folder:
                found = await self._compare(one, why, Path(folder))
        except NoSide as none:
            failure = c.Failure("infrastructure", str(none))
        except _EndedError as ended:
            failure = ended.failure
        except asyncio.CancelledError:
            log.info("%s was cancelled", one.run.id)
            failure = _CANCELLED
        except Exception as error:
            log.exception("%s failed", one.run.id)
            text = f"the comparison could not be followed: {type(error).__name__}: {error}"
            failure = c.Failure("infrastructure", text, "see the server's log", retryable=True)
        return self._end(one, failure, *found)

    async def _compare(
        self, one: Contest, why: str | None, folder: Path
    ) -> tuple[c.Profile | None, c.Profile | None]:
        """The profiles of both sides, once there is a verdict. Raises NoSide and _EndedError."""
        if one.now is None:
            raise NoSide(why or "")
        one.then = await variants.against(self._session, self._versions, one.now, one.other, folder)
        await self._in_turn(one, one.then, one.now)
        return await self._profiles(one, one.then), await self._profiles(one, one.now)

    async def _in_turn(self, one: Contest, then: Side, now: Side) -> None:
        for pair in range(measure.PAIRS[-1] + 1):
            one.pair = pair
            for at, side in enumerate((then, now)):
                finished = await self._carry_out(one, side, at)
                timings = self._timings(one, side, at, finished)
                if pair:
                    one.times[at].append(timings)
            if pair and (verdict := measure.settled(*map(_totals, one.times))):
                one.comparison = verdict
                return

    async def _carry_out(self, one: Contest, side: Side, at: int) -> c.Finished:
        """One job to its end. Raises _EndedError where it did not end well."""
        job = replace(side.job, run=f"{one.run.id}.{one.pair}.{at}")
        finished: c.Finished | None = None
        problems: tuple[c.Problem, ...] = ()
        files: dict[str, str] = {}
        async with self._runner(one, job) as runner, aclosing(runner.run(job)) as events:
            async for event in events:
                match event:
                    case c.Stage(state=state, why=why):
                        self._mark(one, f"{side.name} {state} ({why})" if why else f"{side.name} {state}")
                    case c.Output(stream=stream, text=text) if not one.pair:
                        self._watcher.output(one.run, stream, text)
                    case c.Built():
                        problems, files = event.problems, event.files
                        one.built = event if at else one.built
                    case c.Finished():
                        finished = event
                    case _:
                        pass
        if finished is None:
            raise _EndedError(
                c.Failure("infrastructure", f"{side.name}: the run ended without an answer", "try again")
            )
        one.ended[at].append(finished)
        if changed := _changed(one.read[at], files | finished.files, side.job.path):
            text = f"{side.name}: {changed} was changed while it was compared"
            raise _EndedError(c.Failure("infrastructure", text, "compare again", retryable=True))
        if finished.outcome != "ok":
            failure = finished.failure or c.Failure(finished.outcome, finished.outcome)
            errors = [one.message for one in (*problems, *finished.problems) if one.severity == "error"]
            if errors and finished.outcome == "compile error":
                failure = replace(failure, message=f"{failure.message}: {errors[0]}")
            raise _EndedError(replace(failure, message=f"{side.name}: {failure.message}", place=None))
        return finished

    @asynccontextmanager
    async def _runner(self, one: Contest, job: c.Job) -> AsyncGenerator[Runner, None]:
        """The runner of a click. A rented GPU counts in the month's budget job by job, but who has said that it may be
        passed has said so of the whole comparison. Raises _EndedError where it may not.
        """
        runner = await self._environment.runner_of(job)
        limit = placement.settings_of(self._session).modal.budget_usd
        if job.gpu is None or limit is None:
            yield runner
            return
        budget, wanted = self._environment.budget, [self._environment.wanted(job.run, job.gpu)]
        try:
            if one.allowed:
                budget.allow(wanted)
            elif question := await budget.question(wanted, limit):
                self._mark(one, "the month's budget may be passed")
                if failure := await budget.asked(question, wanted):
                    raise _EndedError(failure)
                one.allowed = True
            yield self._environment.modal()
        finally:
            budget.over(wanted)

    def _timings(self, one: Contest, side: Side, at: int, finished: c.Finished) -> list[c.Timing]:
        """Of the launches that are compared: all of a launch spec; of a program's kernel the configuration that took
        most of its time. Raises _EndedError where there are none.
        """
        found = result_filing.launched(side.session, side.frozen, side.job, {side.target}, finished)
        launches = found[side.target][1] if side.target in found else ()
        if not launches:
            raise _EndedError(c.Failure("infrastructure", f"{side.name}: {side.target.key} was not launched"))
        if side.job.through == "program":
            launches = (max(launches, key=lambda it: it.timing.median * it.count),)
        for launch in launches:
            grid, block = (", ".join(map(str, size)) for size in (launch.grid, launch.block))
            one.shapes[at].add(f"<<<({grid}), ({block})>>>")
        return [launch.timing for launch in launches]

    async def _profiles(self, one: Contest, side: Side) -> c.Profile | None:
        """The last profile of just this code that the history has."""
        path = path_of(one.target.uri if one.other.kind == "revision" else side.target.uri)
        entries = await self._versions.entries(path, side.target.key)
        wanted = [entry for entry in entries if entry.action == "profile" and entry.digest == side.digest]
        return counter_diff.main(wanted[-1].said.finished.profiles) if wanted else None

    def _mark(self, one: Contest, what: str) -> None:
        pair = f"pair {one.pair} of {measure.PAIRS[0]} to {measure.PAIRS[-1]}: " if one.pair else ""
        known = self._session.running.get(one.target)
        began = known.began if known and known.run == one.run.id else time.monotonic()
        self._session.running[one.target] = Running(one.run.id, "running", pair + what, began)
        self._watcher.stage(one.run, "running", pair + what)

    # -- the end ------------------------------------------------------------------------------

    def _end(
        self,
        one: Contest,
        failure: c.Failure | None,
        then: c.Profile | None = None,
        now: c.Profile | None = None,
    ) -> c.Finished:
        """Exactly once, however it ended."""
        del self._active[one.run.id]
        running = self._session.running.get(one.target)
        if running and running.run == one.run.id:
            del self._session.running[one.target]
        changed = {one.target.uri}
        last = one.ended[1][-1] if one.ended[1] else None
        if last and last.outcome == "ok":
            changed |= result_filing.finished(
                self._session, one.run.frozen, one.run.job, one.run.targets, one.built, last, one.run.recipe
            )
            self._versions.filed(one.run)
        cost = spending.total([finished.cost for finished in (*one.ended[0], *one.ended[1])])
        if failure is None or failure.category != "cancelled":
            self._session.versus[one.target] = Versus(
                one.now.digest if one.now else "",
                time.time(),
                one.then.name if one.then else one.other.title,
                one.comparison,
                then=measure.pooled(one.times[0]),
                now=measure.pooled(one.times[1]),
                runs=(_totals(one.times[0]), _totals(one.times[1])),
                devices=_devices(one),
                moved=counter_diff.moved(then, now) if then and now else (),
                remarks=tuple(_remarks(one)),
                failure=failure,
                cost=cost,
            )
        one.run.finished = finished = self._finished(one, failure, cost)
        self._watcher.end(one.run, finished)
        self._watcher.changed(changed)
        return finished

    def _finished(self, one: Contest, failure: c.Failure | None, cost: c.Cost | None) -> c.Finished:
        if failure:
            one.run.refused = True  # a compiler's words have no line here: they are said
            return c.Finished(one.run.id, failure.category, failure, cost=cost)
        names = (one.then.name if one.then else "", "now")
        launches = [
            replace(ended[-1].launches[0], name=name, timing=together)
            for name, ended, runs in zip(names, one.ended, one.times, strict=True)
            if (together := measure.pooled(runs)) and ended[-1].launches
        ]
        return c.Finished(one.run.id, "ok", launches=tuple(launches), cost=cost)


def _totals(runs: list[list[c.Timing]]) -> tuple[float, ...]:
    """The time of each run: the medians of its launches together."""
    return tuple(sum(timing.median for timing in run) for run in runs)


def _changed(before: dict[str, str], now: dict[str, str], main: str) -> str:
    """The name of a file that is another than in the runs `before`, to which it is added; empty where there is none.
    The text of the main file is frozen.
    """
    found = next(
        (path for path, known in now.items() if path != main and before.get(path, known) != known), ""
    )
    before |= now
    return Path(found).name


_CANCELLED = c.Failure("cancelled", "cancelled")


def _devices(one: Contest) -> tuple[str, str]:
    """The GPUs by NVML's names, several of a side in one text."""
    names = [
        dict.fromkeys(finished.device.name for finished in ended if finished.device) for ended in one.ended
    ]
    return ", ".join(names[0]), ", ".join(names[1])


def _remarks(one: Contest) -> list[str]:
    """What a reader of the verdict has to know."""
    found = [remark for side in (one.then, one.now) if side for remark in side.remarks]
    then, now = one.shapes
    if then and now and then != now and one.run.job.through == "program":
        found.append(f"launched as {_shape(then)} there and as {_shape(now)} now")
    first, second = _devices(one)
    if first and second and first != second and one.other.kind != "gpu":
        found.append(f"the GPUs differ: {first} there and {second} now")
    every = [*one.ended[0], *one.ended[1]]
    reasons = Counter(
        reason
        for finished in every
        if finished.telemetry
        for reason in finished.telemetry.throttle_reasons or ()
    )
    found += [
        f"the GPU was throttled in {count} of {len(every)} runs: {reason}"
        for reason, count in reasons.items()
    ]
    return list(dict.fromkeys(found))


def _shape(shapes: set[str]) -> str:
    return " and ".join(sorted(shapes))
