"""The loop of a gate: which pair of runs is next, which pairs count, and when each kernel is decided.

Both sides of a pair are whole jobs, in an order that a coin decides. The first job of each side is not counted: it
builds, and it is the one that would fail. One kernel in ten also runs against itself in the same loop: if that
differs, the machine is at fault.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import field, replace
from itertools import count

from orbit_lsp.gate.changes import ChangedKernel, GateUnit
from orbit_lsp.gate.results import GateControl, GatedKernel, KernelVerdict
from orbit_lsp.history import variant_runs
from orbit_lsp.history.variant_runs import VariantRuns
from orbit_lsp.history.variants import Variant
from orbit_lsp.runs.scheduler import RunFailedError
from orbit_remote.common import measure
from orbit_remote.common import messages as c
from orbit_remote.common.evidence import sign_bets
from orbit_remote.common.evidence.sign_bets import GateQuestion
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Job

KERNELS_PER_CONTROL = 10
_DISCARDS_IN_A_ROW = 8
"""So many unfit pairs of a unit, one after the other, and it is given up."""
_NO_TIME = "a run has no times of the kernel"
"""As where the recorder lost launches: the kernel was launched in the first run."""
_AT_FIRST = 2
"""Pairs of each kernel before it is guessed how many it needs."""
_FAULTS = {
    "hardware slowdown", "thermal slowdown (driver)", "thermal slowdown (hardware)", "power brake", "reliability",
}  # fmt: skip
"""Reasons for a low clock that come and go with the machine. The power cap is not among them: heavy kernels always reach it."""


@dataclass(slots=True)
class GateRow:
    """A kernel of a gate while it runs. Its pairs may begin with those of an earlier gate of the same code."""

    kernel: ChangedKernel
    then_ns: list[float] = field(default_factory=list[float])
    now_ns: list[float] = field(default_factory=list[float])
    discarded: int = 0
    failure: c.Failure | None = None
    reason: str = ""
    untimed: bool = False
    """Its first run had no times of it."""
    noise: float | None = None
    """Known before the gate."""
    pair_s: float | None = None

    ratios: list[float] = field(default_factory=list[float])

    def add(self, then_ns: float, now_ns: float) -> None:
        """A pair that counts."""
        self.then_ns.append(then_ns)
        self.now_ns.append(now_ns)
        self.ratios.append(now_ns / then_ns)

    @property
    def compared(self) -> bool:
        return self.kernel.base is not None and self.failure is None and not self.reason


@dataclass(slots=True)
class _Runs:
    """A unit while it runs: its two jobs, and how long their runs took. A control is a unit whose sides are the same."""

    rows: list[GateRow]
    sides: tuple[Variant, Variant]
    files: tuple[dict[str, str], dict[str, str]] = field(default_factory=lambda: ({}, {}))
    seconds: list[float] = field(default_factory=list[float])
    """Of each counted or discarded pair."""
    of: GateRow | None = None
    """Of a control, the kernel that it is."""
    in_a_row: int = 0
    """Pairs that were discarded, since the last that counted."""

    @property
    def pair_s(self) -> float:
        return measure.median(self.seconds) if self.seconds else self.rows[0].pair_s or 0.0

    @property
    def pairs(self) -> int:
        return len(self.rows[0].ratios)


class GateLoop:
    def __init__(
        self,
        units: Sequence[GateUnit],
        question: GateQuestion,
        runs: VariantRuns,
        *,
        run_id: str,
        coin: random.Random,
        limit_s: float | None = None,
    ) -> None:
        """Make a loop. `question.kernels` is how many kernels are compared."""
        self.question = question
        self.rows: list[GateRow] = []
        self.discarded = Counter[str]()
        self.ended: list[c.Finished] = []
        self.failure: c.Failure | None = None
        """Why the loop ended before the kernels were decided: the machine's fault, the budget, or the limit of time."""
        self._runs, self._coin, self._limit_s = runs, coin, limit_s
        self._run_id, self._numbers = run_id, count(1)
        self._units: list[_Runs] = []
        self._alone: list[tuple[list[GateRow], Variant]] = []
        for unit in units:
            rows = [GateRow(kernel) for kernel in unit.kernels]
            self.rows += rows
            now, base = unit.jobs
            if base:
                self._units.append(_Runs(rows, (base, now)))
            else:
                self._alone.append((rows, now))
        self._controls = self._made_controls()
        self._began = time.monotonic()
        self._first_s = 0.0
        """From the beginning to the first pair."""

    def _made_controls(self) -> list[_Runs]:
        rows = [row for unit in self._units for row in unit.rows]
        chosen = rows[::KERNELS_PER_CONTROL]
        return [
            _Runs([GateRow(replace(row.kernel, base=now))], (now, now), of=row)
            for row in chosen
            if (now := row.kernel.now)
        ]

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def device(self) -> str:
        return next((ended.device.name for ended in self.ended if ended.device), "")

    @property
    def is_blind(self) -> bool:
        """Say whether no kernel has a time although one ran. Neither side may launch one kernel; if that is so for
        all, launches are not recorded.
        """
        return any(row.untimed for row in self.rows) and not any(row.ratios for row in self.rows)

    # -- the loop -----------------------------------------------------------------------------

    async def run(self, timed: Callable[[float], object]) -> None:
        """Run until each kernel is decided. `timed` is called once each kernel has run a pair, with the seconds that
        the rest is expected to take.
        """
        try:
            await self._build_ahead()
            for rows, now in self._alone:
                await self._check(rows, now)
            for unit in self._units:
                await self._first(unit)
            self._first_s, told = self.seconds, False
            while (unit := self._next() or self._control_behind()) and not self._is_late():
                await self._pair(unit)
                if self.red_control:
                    return
                if not told and all(each.seconds for each in self._units if self._open(each)):
                    told = True
                    timed(self.expected_s())
        except RunFailedError as error:
            self.failure = error.failure

    def expected_s(self) -> float:
        """Return the expected seconds of the pairs that are still to run, if no kernel is slower, controls included."""
        total = sum(self._expected_pairs(unit) * unit.pair_s for unit in self._units if self._open(unit))
        units = len(self._units)
        return total * (1 + len(self._controls) / units) if units else 0.0

    def _expected_pairs(self, unit: _Runs) -> float:
        known = [row.noise for row in unit.rows if row.noise is not None]
        pairs = sign_bets.pairs_expected(max(known, default=0.0), self.question)
        return max(1.0, pairs - unit.pairs)

    def _is_late(self) -> bool:
        if self._limit_s is None or self.seconds < self._limit_s:
            return False
        self.failure = c.Failure(
            "timed out", f"the limit of {self._limit_s:g} s was reached", "raise --limit"
        )
        return True

    @property
    def slower(self) -> list[bool]:
        """Return whether each row is slower, by all evidence so far."""
        evidence = [self._evidence(row) if row.compared else 0.0 for row in self.rows]
        unlooked = self.question.kernels - len(evidence)
        return sign_bets.holm([*evidence, *[0.0] * max(0, unlooked)], self.question.false_alarm)[
            : len(self.rows)
        ]

    def _evidence(self, row: GateRow) -> float:
        return sign_bets.log_evidence(row.ratios, self.question.margin)

    @property
    def red_control(self) -> bool:
        return any(control.red for control in self.controls())

    def _open(self, unit: _Runs) -> list[GateRow]:
        """Return the kernels of a unit that more pairs may decide."""
        if unit.in_a_row >= _DISCARDS_IN_A_ROW or len(unit.seconds) >= 2 * self.question.most_pairs:
            return []
        slower = dict(zip(map(id, self.rows), self.slower, strict=True))
        return [
            row
            for row in unit.rows
            if row.compared
            and len(row.ratios) < self.question.most_pairs
            and not slower[id(row)]
            and not self.question.is_clear(row.ratios)
        ]

    def _next(self) -> _Runs | None:
        """Return the unit with the kernel that is decided soonest, by what its pairs show. Return a control if it is
        behind the others.
        """
        is_open = [(unit, rows) for unit in self._units if (rows := self._open(unit))]
        if not is_open:
            return None
        mean = sum(unit.pairs for unit in self._units) / len(self._units)
        behind = [each for each in self._running_controls() if len(each.seconds) < mean]
        if behind:
            return min(behind, key=lambda each: len(each.seconds))
        new = [unit for unit, _ in is_open if unit.pairs < _AT_FIRST]
        if new:
            return min(new, key=lambda unit: len(unit.seconds))
        slower = sum(self.slower)

        def left(unit: _Runs, rows: list[GateRow]) -> float:
            return unit.pair_s * min(self.question.pairs_left(row.ratios, slower) for row in rows)

        return min(is_open, key=lambda each: (left(*each), each[0].pairs))[0]

    def _control_behind(self) -> _Runs | None:
        """Return a control with fewer pairs than a kernel that is slower: with as many it would show a machine that
        favours a side.
        """
        slower = [len(row.ratios) for row, is_slower in zip(self.rows, self.slower, strict=True) if is_slower]
        return next((each for each in self._running_controls() if each.pairs < max(slower, default=0)), None)

    def _running_controls(self) -> list[_Runs]:
        return [
            each
            for each in self._controls
            if each.rows[0].compared
            and each.in_a_row < _DISCARDS_IN_A_ROW
            and len(each.seconds) < 2 * self.question.most_pairs
        ]

    # -- a pair -------------------------------------------------------------------------------

    async def _build_ahead(self) -> None:
        """Compile all sides, several at once, while nothing needs the GPU. The run that builds a side reports its
        failure.
        """
        sides = [variant for unit in self._units for variant in unit.sides] + [now for _, now in self._alone]
        jobs = [
            replace(variant.job, action="build", run=f"{self._run_id}.{next(self._numbers)}")
            for variant in sides
            if variant.job.start.through == "spec"
            and variant.job.language == "cuda"
            and variant.job.gpu is None
        ]
        if jobs:
            self._runs.show(f"{len(jobs)} build{'s' if len(jobs) > 1 else ''}")
        lanes = asyncio.Semaphore(max(1, min(8, (os.cpu_count() or 2) // 2)))

        async def build(job: Job) -> None:
            async with lanes:
                with suppress(RunFailedError):
                    runner = await self._runs.places.runner_of(job)
                    async with aclosing(runner.run(job)) as events:
                        async for _ in events:
                            pass

        await asyncio.gather(*map(build, jobs))

    async def _check(self, rows: list[GateRow], now: Variant) -> None:
        """Run a kernel once that the base does not have: it may fail."""
        try:
            await self._once(now, {})
        except RunFailedError as error:
            self._fail(rows, error.failure, of_base=False)

    async def _first(self, unit: _Runs) -> None:
        """Build both sides and run each once, with the same checks as ever; nothing counts."""
        for at, variant in enumerate(unit.sides):
            try:
                finished = await self._once(variant, unit.files[at])
            except RunFailedError as error:
                self._fail(unit.rows, error.failure, of_base=at == 0)
                return
            for row, time_ns in zip(unit.rows, self._times(unit.rows, finished, at), strict=True):
                if row.compared and time_ns is None:
                    row.untimed = True
                    remarks = f" ({'; '.join(finished.remarks)})" if finished.remarks else ""
                    row.reason = (
                        f"{variant.name}: {row.kernel.name} was not launched, or has no time{remarks}"
                    )

    async def _pair(self, unit: _Runs) -> None:
        begin = time.monotonic()
        finished: dict[int, c.Finished] = {}
        for at in measure.in_drawn_order((0, 1), self._coin):
            try:
                finished[at] = await self._once(unit.sides[at], unit.files[at])
            except RunFailedError as error:
                self._fail(unit.rows, error.failure, of_base=at == 0 and unit.of is None)
                if unit.of:  # its code is the change's
                    self._fail([unit.of], error.failure, of_base=False)
                return
        unit.seconds.append(time.monotonic() - begin)
        unfit = _unfit(finished[0], finished[1])
        then, now = (self._times(unit.rows, finished[at], at) for at in (0, 1))
        counted, reasons = False, set[str]()
        for row, before, after in zip(unit.rows, then, now, strict=True):
            if not row.compared:
                continue
            if why := unfit or ("" if before and after else _NO_TIME):
                row.discarded += 1
                reasons.add(why)
            else:
                assert before
                assert after
                row.add(before, after)
                counted = True
        self.discarded.update(reasons)
        unit.in_a_row = 0 if counted else unit.in_a_row + 1

    async def _once(self, variant: Variant, files: dict[str, str]) -> c.Finished:
        """Run once. Raises RunFailedError, also if a program ended well because it found no GPU. A failure that may
        pass by itself is tried once more.
        """

        def heard(event: c.Event) -> None:
            if isinstance(event, c.Finished):
                self.ended.append(event)

        for last in (False, True):
            try:
                run = f"{self._run_id}.{next(self._numbers)}"
                return _on_a_gpu(await self._runs.perform(variant, run, files, heard))
            except RunFailedError as error:
                if last or not (error.failure.category == "infrastructure" and error.failure.retryable):
                    raise
        raise AssertionError

    def _times(self, rows: list[GateRow], finished: c.Finished, at: int) -> list[float | None]:
        """Return the time of each kernel in a run of side `at`. It is None for a kernel that was not launched, or
        whose launches were not recorded.
        """
        times: list[float | None] = []
        for row in rows:
            variant = row.kernel.now if at else row.kernel.base
            time_ns = None
            if variant and row.compared:
                with suppress(RunFailedError):
                    launches = variant_runs.launches_of(variant, finished)
                    time_ns = variant_runs.total_ns([launch.timing for launch in launches]) or None
            times.append(time_ns)
        return times

    def _fail(self, rows: list[GateRow], failure: c.Failure, *, of_base: bool) -> None:
        """Record what a side's failure means for its kernels. Raises RunFailedError if it is the machine's or the
        user's.
        """
        if failure.category in ("infrastructure", "cancelled"):
            raise RunFailedError(failure)
        text = failure.message.removeprefix("now: ")
        for row in rows:
            if of_base:
                row.reason = f"it cannot be compared, because {text} [{failure.category}]"
            else:
                row.failure = replace(failure, message=text)

    # -- what came of it ----------------------------------------------------------------------

    def controls(self) -> tuple[GateControl, ...]:
        """Return the controls. A control is red to either side, at the level of the whole gate for each: with a pair
        as good as any kernel's, it is found no later.
        """
        question = self.question
        false_alarm = question.false_alarm / max(1, len(self._controls))
        controls: list[GateControl] = []
        for control in self._controls:
            (row,) = control.rows
            found = sign_bets.same_code(row.ratios, question.margin, false_alarm)
            controls.append(
                GateControl(row.kernel.file, row.kernel.name, found.pairs, found.ratio, found.red)
            )
        return tuple(controls)

    def kernels(self) -> tuple[GatedKernel, ...]:
        """Return what is known of each kernel that was to run."""
        slower = self.slower
        given_up = {
            id(row) for unit in self._units if unit.in_a_row >= _DISCARDS_IN_A_ROW for row in unit.rows
        }
        pair_s = {id(row): unit.pair_s for unit in self._units if unit.seconds for row in unit.rows}
        return tuple(
            self._kernel(row, pair_s.get(id(row)), slower=slower[at], given_up=id(row) in given_up)
            for at, row in enumerate(self.rows)
        )

    def _kernel(self, row: GateRow, pair_s: float | None, *, slower: bool, given_up: bool) -> GatedKernel:
        kernel, ratios, question = row.kernel, row.ratios, self.question
        now, base = kernel.now, kernel.base
        assert now
        verdict: KernelVerdict = "inconclusive"
        reason = row.reason or kernel.reason
        if row.failure:
            verdict, reason = "failed", ""
        elif not row.compared:
            verdict = "not compared"
        elif slower:
            verdict = "slower"
        elif question.is_clear(ratios):
            verdict = "not slower"
        elif given_up:
            reason = f"{_DISCARDS_IN_A_ROW} pairs in a row were discarded: {', '.join(self.discarded)}"
        elif len(ratios) >= question.most_pairs:
            reason = f"{len(ratios)} pairs were too few for its noise"
        elif self.failure:
            reason = self.failure.message
        elif self.red_control:
            reason = "a control differed from itself"
        known = sign_bets.noise(ratios)
        driver = now.plan.driver
        return GatedKernel(
            kernel.file, kernel.name, kernel.line, verdict,
            driver.id if driver else {"spec": "launch spec", "program": "its program"}.get(now.plan.through, now.plan.through),
            ratio=measure.median(ratios) if ratios else None,
            low=sign_bets.lower_bound(ratios, 0.025) or None,
            high=bound if (bound := sign_bets.upper_bound(ratios, 0.025)) < math.inf else None,
            then_ns=measure.median(row.then_ns) if row.then_ns else None,
            now_ns=measure.median(row.now_ns) if row.now_ns else None,
            evidence=self._evidence(row), needed=question.log_goal(),
            pairs=len(ratios), discarded=row.discarded, noise=known,
            finds=sign_bets.effect_found(known, question) if known is not None else None,
            reason=reason, failure=row.failure,
            remarks=tuple(dict.fromkeys((*now.remarks, *(base.remarks if base else ())))),
            runs=(tuple(row.then_ns), tuple(row.now_ns)), pair_s=pair_s, first_s=self._first_s / max(1, len(self._units)),
        )  # fmt: skip


def _on_a_gpu(finished: c.Finished) -> c.Finished:
    """Return a run that ended well. Raises RunFailedError if it launched nothing because there was no GPU: a program
    may allow that.
    """
    if finished.device or finished.launches:
        return finished
    raise RunFailedError(c.Failure("infrastructure", c.NO_GPU, "`orbit-lsp doctor` shows what is missing"))


def _unfit(one: c.Finished, other: c.Finished) -> str:
    """Return why a pair does not count, by the GPUs, the clocks and the neighbours of both runs. Return "" if it
    does. Times are not looked at, and the rule is the same for both sides: it cannot favour one.
    """
    if one.device and other.device and one.device.uuid != other.device.uuid:
        return "the two runs had different GPUs"
    for telemetry in (one.telemetry, other.telemetry):
        if telemetry is None:
            continue
        if telemetry.shared:
            return "another process used the GPU"
        if _FAULTS & set(telemetry.throttle_reasons or ()):
            return "the GPU slowed down for heat or power"
        clock, default = telemetry.sm_clock_mhz, telemetry.default_sm_clock_mhz
        if clock and default and clock[1] < measure.CLOCK_FLOOR * default:
            return "the clock was low"
    return ""
