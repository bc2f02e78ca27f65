"""*Compare with…*: runs a kernel and something else in turn, a whole job each, until one is known to be faster.

Every job takes the way of a click, through the ordinary runner. So both sides are built, checked, budgeted and
cancelled as any run. The first job of each side is not counted: it builds, and it is the one that would fail. A coin
decides the order of each pair.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from dataclasses import field, replace
from pathlib import Path

from orbit_lsp.history import counter_diff, variant_runs, variants
from orbit_lsp.history.compare_candidates import Candidate
from orbit_lsp.history.history_tracker import HistoryTracker
from orbit_lsp.history.variant_runs import VariantRuns
from orbit_lsp.history.variants import NoVariantError, UnchangedVariantError, Variant
from orbit_lsp.places.places import Places
from orbit_lsp.runners.modal import spending
from orbit_lsp.runs import result_filing
from orbit_lsp.runs.scheduler import Run, RunFailedError, RunWatcher, Scheduler
from orbit_lsp.specs import job_builder
from orbit_lsp.state import harness
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import AbResult
from orbit_lsp.state.session import Session, path_of
from orbit_remote.common import measure
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Timing
from orbit_remote.common.requests import BY_AUTHOR

_PREFIX = "compare"


@dataclass(slots=True)
class _Side:
    """One of the two versions, and the results of its runs."""

    variant: Variant | None = None
    ended: list[c.Finished] = field(default_factory=list[c.Finished])
    times: list[list[Timing]] = field(default_factory=list["list[Timing]"])
    """Of each counted run, of each launch."""
    files: dict[str, str] = field(default_factory=dict[str, str])
    """What it was built from, by content hash."""
    shapes: set[str] = field(default_factory=set[str])
    profile: c.Profile | None = None
    """The last one of just this code."""

    @property
    def name(self) -> str:
        return self.variant.name if self.variant else ""

    @property
    def devices(self) -> str:
        """Return the GPUs by NVML's names."""
        return ", ".join(dict.fromkeys(finished.device.name for finished in self.ended if finished.device))


@dataclass(frozen=True, slots=True)
class AbCompare:
    """Starts comparisons."""

    session: Session
    places: Places
    history: HistoryTracker
    scheduler: Scheduler
    watcher: RunWatcher
    coin: random.Random = field(default_factory=random.SystemRandom)
    """It draws which variant of a pair runs first."""

    def start(self, target: KernelId, other: Candidate) -> Run | None:
        """Compare the present text of a kernel with `other`, and return at once. Join a comparison of the same kernel
        that is under way. Return None if the file is not open.
        """
        if (frozen := self.session.freeze(target.uri)) is None:
            return None
        if under_way := self.scheduler.several(target.uri, {target}, _PREFIX):
            return under_way
        plan = job_builder.plan_of(self.session, target)
        job = job_builder.make(self.session, frozen, "run", self.scheduler.new_id(_PREFIX), plan)
        run = Run(job.run, "run", frozen, job, {target}, self.session.disk.changes, plan, of_several=True)
        run.named = f"Compare {harness.named(target) or target.key} with {other.title}"
        work = _Comparison(run, target, other, self)
        self.scheduler.launch(run, work)
        return run


class _Comparison:
    """Compares the present kernel with something else in turn. The run stands for all jobs of both."""

    def __init__(self, run: Run, target: KernelId, other: Candidate, tools: AbCompare) -> None:
        self._run = run
        self._target = target
        self._other = other
        self._tools = tools
        self._then, self._now = _Side(), _Side()
        self._no_side: NoVariantError | None = None
        try:
            # its text as it was clicked
            self._now.variant = variants.now(tools.session, target)
        except NoVariantError as reason:
            self._no_side = reason
        self._pair = 0
        self._now_first: list[bool] = []
        """For each counted pair, whether its first run was of the text as it is now."""
        self._runs = VariantRuns(tools.session, tools.places, self._show)
        self._built: c.Built | None = None
        self._verdict: measure.AbVerdict | None = None

    async def perform(self) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="orbit-compare-") as folder:
                await self._compare(Path(folder))
        except UnchangedVariantError as reason:
            self._run.harmless = True
            raise RunFailedError(c.Failure("infrastructure", str(reason))) from None
        except NoVariantError as reason:
            raise RunFailedError(c.Failure(reason.category, str(reason), reason.remedy)) from None

    async def _compare(self, folder: Path) -> None:
        """Raises NoVariantError and RunFailedError."""
        if self._no_side:
            raise self._no_side
        now = self._now.variant
        assert now
        then = self._then.variant = await variants.against(
            self._tools.session, self._tools.history, now, self._other, folder
        )
        await self._in_turn(then, now)
        self._then.profile = await self._profile(then)
        self._now.profile = await self._profile(now)

    async def _in_turn(self, then: Variant, now: Variant) -> None:
        for pair in range(measure.PAIRS[-1] + 1):
            self._pair = pair
            both = (self._then, then), (self._now, now)
            order = measure.in_drawn_order(both, self._tools.coin)
            if pair:
                self._now_first.append(order[0][0] is self._now)
            for side, variant in order:
                finished = await self._run_once(side, variant)
                timings = self._timings(side, variant, finished)
                if pair:
                    side.times.append(timings)
            verdict = measure.settled(_totals(self._then.times), _totals(self._now.times)) if pair else None
            if verdict:
                self._verdict = verdict
                return

    async def _run_once(self, side: _Side, variant: Variant) -> c.Finished:
        """Run one job to its end. Raises RunFailedError if it did not end well."""
        is_now = side is self._now

        def heard(event: c.Event) -> None:
            match event:
                case c.Output(stream=stream, text=text) if not self._pair:
                    self._tools.watcher.output(self._run, stream, text)
                case c.Built() if is_now:
                    self._built = event
                case c.Finished():
                    side.ended.append(event)
                case _:
                    pass

        run = f"{self._run.id}.{self._pair}.{int(is_now)}"
        return await self._runs.perform(variant, run, side.files, heard)

    def _timings(self, side: _Side, variant: Variant, finished: c.Finished) -> list[Timing]:
        """Return the timings of the launches that are compared. Raises RunFailedError if there are none."""
        launches = variant_runs.launches_of(variant, finished)
        for launch in launches:
            grid, block = (", ".join(map(str, size)) for size in (launch.grid, launch.block))
            side.shapes.add(f"<<<({grid}), ({block})>>>")
        return [launch.timing for launch in launches]

    async def _profile(self, variant: Variant) -> c.Profile | None:
        """Return the last profile in the history of exactly this code."""
        path = path_of(self._target.uri if self._other.kind == "revision" else variant.target.uri)
        entries = await self._tools.history.entries(path, variant.target.key)
        wanted = [entry for entry in entries if entry.action == "profile" and entry.digest == variant.digest]
        return counter_diff.main(wanted[-1].result.finished.profiles) if wanted else None

    def _show(self, what: str) -> None:
        pair = f"pair {self._pair} of {measure.PAIRS[0]} to {measure.PAIRS[-1]}: " if self._pair else ""
        self._tools.scheduler.mark(self._run, "running", pair + what)
        self._tools.watcher.stage(self._run, "running", pair + what)

    # -- the end ------------------------------------------------------------------------------

    def end(self, failure: c.Failure | None) -> tuple[c.Finished, set[str]]:
        run, then, now = self._run, self._then, self._now
        changed = {self._target.uri}
        last = now.ended[-1] if now.ended else None
        if last and last.outcome == "ok":
            changed |= result_filing.finished(
                self._tools.session, run.frozen, run.job, run.targets, self._built, last, run.plan
            )
        cost = spending.total([finished.cost for finished in (*then.ended, *now.ended)])
        if failure is None or failure.category != "cancelled":
            self._tools.session.results.ab[self._target] = AbResult(
                now.variant.digest if now.variant else "",
                time.time(),
                then.name or self._other.title,
                self._verdict,
                then=measure.pooled(then.times),
                now=measure.pooled(now.times),
                runs=(_totals(then.times), _totals(now.times)),
                now_first=tuple(self._now_first),
                devices=(then.devices, now.devices),
                moved=(
                    *counter_diff.energy(then.ended, now.ended),
                    *(counter_diff.moved(then.profile, now.profile) if then.profile and now.profile else ()),
                ),
                remarks=tuple(self._remarks()),
                failure=failure,
                cost=cost,
            )
        if failure:
            run.refused = True  # a compiler's words have no line here: a message shows them
            return c.failed(run.id, failure, cost=cost), changed
        launches = [
            replace(side.ended[-1].launches[0], name=name, timing=together)
            for name, side in ((then.name, then), ("now", now))
            if (together := measure.pooled(side.times)) and side.ended[-1].launches
        ]
        return c.ok(run.id, launches=tuple(launches), cost=cost), changed

    def _remarks(self) -> list[str]:
        """Return what a reader of the verdict has to know, as sentences."""
        then, now = self._then, self._now
        remarks = [remark for side in (then, now) if side.variant for remark in side.variant.remarks]
        if (
            then.shapes
            and now.shapes
            and then.shapes != now.shapes
            and self._run.job.start.through in BY_AUTHOR
        ):
            there, here = (" and ".join(sorted(side.shapes)) for side in (then, now))
            remarks.append(f"launched as {there} there and as {here} now")
        if then.devices and now.devices and then.devices != now.devices and self._other.kind != "gpu":
            remarks.append(f"the GPUs differ: {then.devices} there and {now.devices} now")
        every = [*then.ended, *now.ended]
        reasons = Counter(
            reason
            for finished in every
            if finished.telemetry
            for reason in finished.telemetry.throttle_reasons or ()
        )
        remarks += [
            f"the GPU was throttled in {count} of {len(every)} runs: {reason}"
            for reason, count in reasons.items()
        ]
        return list(dict.fromkeys(remarks))


def _totals(runs: list[list[Timing]]) -> tuple[float, ...]:
    """Return the time of each run: the sum of its launches' medians."""
    return tuple(map(variant_runs.total_ns, runs))
