"""Counts launches whose every argument is known by CUPTI in this process: those of a launch spec, and one that a
driver made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from orbit_remote.child.spec.launch_timing import ColdCache
from orbit_remote.child.spec.launches import Ready
from orbit_remote.common import messages as c
from orbit_remote.common.launch_records import LaunchRecord
from orbit_remote.common.requests import Job, Level
from orbit_remote.counters import click_metrics, profiler, profiles
from orbit_remote.counters.profiler import Counted, LaunchProfiler, UncountedError
from orbit_remote.counters.source_lines import Authorship
from orbit_remote.recording import injection
from orbit_remote.recording.recorder import Native, Recorder
from orbit_remote.toolchain import disassembly, dumps


def of_each_kernel(every: Iterable[Ready]) -> list[Ready]:
    """Return one launch of each kernel, the first."""
    by_code: dict[tuple[str, bytes], Ready] = {}
    for ready in every:
        by_code.setdefault((ready.facts().symbol, ready.code().cubin), ready)
    return list(by_code.values())


def made(ready: Ready) -> dumps.DumpedInstance:
    """Return what the compiler made of the launched kernel."""
    facts, code = ready.facts(), ready.code()
    sass = disassembly.listing(code.cubin, facts.symbol)
    texts: dict[Level, bytes] = {
        **code.texts,
        **({"sass": sass.encode("utf-8", "replace")} if sass else {}),
    }
    return dumps.DumpedInstance(facts.symbol, facts.name, facts.constants, texts)


class Counting:
    """CUPTI's counters and samples of launches, each on restored memory and, as under Nsight Compute, with a cold L2.

    The code that is launched has to be loaded within. Once this process has recorded launches
    (`CUPTI_ACTIVITY_KIND_KERNEL`), CUPTI only gives samples of code that was loaded while it samples; CUPTI 13.0
    counts other code as of no function.
    """

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        """Raises UncountedError."""
        if not isinstance(recorder, Native):
            raise UncountedError("launches cannot be recorded here")
        try:
            self.cupti = injection.find(in_this_process=True)
        except injection.RecorderUnavailableError as unavailable:
            raise UncountedError(unavailable.message) from None
        self._profiler = LaunchProfiler(profiler.library(recorder.cache, self.cupti))
        self._torch = torch
        self._recorder = recorder

    def __enter__(self) -> Self:
        self._recorder.record("nothing")  # CUPTI's records exclude its counters and samples
        try:
            self._profiler.sample()
        except BaseException:
            self._recorder.record("automatic")
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._profiler.sample_no_more()
        self._recorder.record("automatic")

    def plan(self) -> None:
        """Make a plan, on any thread. Raises UncountedError."""
        self._torch.cuda.synchronize()  # makes the context current on this thread
        self._profiler.plan(click_metrics.CLICK)

    def profiles(
        self, job: Job, every: Sequence[Ready], restore: Callable[[], None], remarks: list[str]
    ) -> tuple[c.Profile, ...]:
        """Return a profile of the first launch of each configuration. `restore` gives the launches the memory that
        the first had before it. `remarks` gets more remarks. Raises UncountedError.
        """
        launches = [self._whole(ready.launch) for ready in every]
        restore, flush = self._whole(restore), self._whole(ColdCache(self._torch).flush)
        restore()
        samples = self._profiler.sampled(launches, restore, flush, max(map(self.seconds, every)))
        self._profiler.sample_no_more()
        if not any(sampled.samples for sampled in samples):
            remarks.append("CUPTI took no warp samples, so no line has a share")
        if dropped := sum(sampled.dropped for sampled in samples):
            remarks.append(f"CUPTI dropped {dropped:,} warp samples, for which it had no room")
        restore()
        records = [self._record(ready) for ready in every]
        seconds = sum(record.duration_ns for record in records) / 1e9
        plan, complete = self._profiler.plan_for(seconds)
        values = self._profiler.counted(plan, launches, restore, flush)
        if not complete:
            remarks.append(profiler.fewer(seconds, plan.passes))
        properties = self._torch.cuda.get_device_properties(self._torch.cuda.current_device())
        chip = profiles.Chip(f"{properties.major}.{properties.minor}", properties.multi_processor_count)
        authorship = Authorship(job.path, users=job.language == "triton")
        by_configuration: dict[tuple[object, ...], c.Profile] = {}
        for ready, record, counters, sampled in zip(every, records, values, samples, strict=True):
            resources = ready.facts().resources
            barriers = (resources.barriers if resources else None) or 0
            counted = Counted(counters, sampled)
            result = profiles.profile(
                record, counted, ready.code(), chip, authorship, self.cupti.release, barriers
            )
            by_configuration.setdefault((record.symbol, record.grid, record.block), result)
        return tuple(by_configuration.values())

    def seconds(self, ready: Ready) -> float:
        """Return about how long a launch takes on the GPU."""
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        ready.launch()
        end.record()
        self._torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def _record(self, ready: Ready) -> LaunchRecord:
        """Return what CUPTI records of a launch of one kernel."""
        self._recorder.record("serial")
        self._recorder.fresh()
        self._whole(ready.launch)()
        recorded = self._recorder.fresh()
        self._recorder.record("nothing")
        if len(recorded) != 1:
            raise UncountedError(f"a launch starts {len(recorded)} kernels")
        return recorded[0]

    def _whole(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return only when the work has ended on the GPU."""

        def whole() -> None:
            work()
            self._torch.cuda.synchronize()

        return whole
