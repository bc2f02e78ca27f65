"""In a job's own process: the launches of a launch spec, counted by CUPTI here, or once for the profiler that this process is under."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Self

from orbit_remote.child import triton_instances, under_profiler
from orbit_remote.child.spec.launch_timing import ColdCache
from orbit_remote.child.spec.launches import Ready
from orbit_remote.child.spec.trial import Backend, Gpu, Trial, Trials
from orbit_remote.common import messages as c
from orbit_remote.common.launch_records import LaunchRecord
from orbit_remote.common.requests import Job, Level
from orbit_remote.counters import click_metrics, profiler, profiles
from orbit_remote.counters.profiler import Counted, LaunchProfiler, UncountedError
from orbit_remote.counters.source_lines import Authorship
from orbit_remote.recording import injection
from orbit_remote.recording.recorder import Native, Recorder, UnderTool
from orbit_remote.spec import launch_spec
from orbit_remote.spec.launch_spec import Checked, Point
from orbit_remote.toolchain import disassembly, dumps


def profiled(torch: Any, job: Job, checked: Checked, backend: Backend, recorder: Recorder) -> c.Finished:
    """With the first set of its values. Before the launches that are profiled come the same that are not, so that everything is
    compiled, chosen and loaded. Nothing is compared or timed.

    Where this process is under no profiler, the launches are counted here; a profile of the tier `times` says why they cannot be.
    """
    every, _ = launch_spec.points(checked.spec)
    point = next((point for point in every if not point.case), every[0])
    timed = [point for point in every if not point.case]
    remarks = [f"profiled with the first of {len(timed)} sets of values"] if len(timed) > 1 else []
    trials = Trials(checked, job, backend, Gpu(torch))
    trials.tune(point)
    if any(backend.tunes(launch) for launch in checked.spec.launches):
        triton_instances.unload()  # see _Counting
    if isinstance(recorder, UnderTool):
        trial = _warmed(torch, trials, point)
        with under_profiler.profiled(torch):
            trial.launch()
        return replace(_finished(job, trial), remarks=tuple(remarks))
    try:
        with _Counting(torch, recorder) as counting, ThreadPoolExecutor() as beside:
            planned = beside.submit(counting.plan)  # it takes as long as making the inputs
            trial = _warmed(torch, trials, point)
            made = [beside.submit(_made, ready) for ready in _of_each_kernel(trial)]
            planned.result()
            counted = counting.profiles(job, trial, remarks)
            packed = dumps.packed([each.result() for each in made], remarks)
    except UncountedError as uncounted:
        name = job.definition.name if job.definition else ""
        return c.ok(job.run, profiles=(c.Profile(name, name, "times", str(uncounted)),))
    versions = {"cupti": counting.cupti.release}
    finished = _finished(job, trial)
    return replace(finished, profiles=counted, dumps=packed, remarks=tuple(remarks), toolchain=versions)


def _warmed(torch: Any, trials: Trials, point: Point) -> Trial:
    """Return a trial that has been launched once, on memory that is restored."""
    trial = trials.make(point, 0)
    trial.launch()
    torch.cuda.synchronize()
    trial.memory.look()
    trial.memory.restore()
    return trial


def _finished(job: Job, trial: Trial) -> c.Finished:
    used = [ready.facts().resources for ready in trial.ready]
    return c.ok(job.run, resources=tuple(resources for resources in used if resources))


def _of_each_kernel(trial: Trial) -> list[Ready]:
    """Return one launch of each kernel, the first."""
    by_code: dict[tuple[str, bytes], Ready] = {}
    for ready in trial.ready:
        by_code.setdefault((ready.facts().symbol, ready.code().cubin), ready)
    return list(by_code.values())


def _made(ready: Ready) -> dumps.Made:
    """Return what the compiler made of a launch's kernel."""
    facts, code = ready.facts(), ready.code()
    sass = disassembly.listing(code.cubin, facts.symbol)
    texts: dict[Level, bytes] = {
        **code.texts,
        **({"sass": sass.encode("utf-8", "replace")} if sass else {}),
    }
    return dumps.Made(facts.symbol, facts.name, facts.constants, texts)


class _Counting:
    """CUPTI's counters and samples of the launches of a trial: each on restored memory and, as under Nsight Compute, with a cold L2.

    The trial is to be made within: CUPTI gives samples of code alone that was loaded while it samples, once this process has
    recorded launches (`CUPTI_ACTIVITY_KIND_KERNEL`; CUPTI 13.0 counts them as of no function).
    """

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        """Raises UncountedError."""
        if not isinstance(recorder, Native):
            raise UncountedError("launches cannot be recorded here")
        try:
            self.cupti = injection.find(in_this_process=True)
        except injection.Unavailable as unavailable:
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
        """On any thread. Raises UncountedError."""
        self._torch.cuda.synchronize()  # makes the context current on this thread
        self._profiler.plan(click_metrics.CLICK)

    def profiles(self, job: Job, trial: Trial, remarks: list[str]) -> tuple[c.Profile, ...]:
        """Of each configuration the first launch; `remarks` are added to. Raises UncountedError."""
        launches = [self._whole(ready.launch) for ready in trial.ready]
        restore, flush = self._whole(trial.memory.restore), self._whole(ColdCache(self._torch).flush)
        restore()
        samples = self._profiler.sampled(launches, restore, flush, max(map(self._seconds, trial.ready)))
        self._profiler.sample_no_more()
        if not any(sampled.samples for sampled in samples):
            remarks.append("CUPTI took no warp samples, so no line has a share")
        if dropped := sum(sampled.dropped for sampled in samples):
            remarks.append(f"CUPTI dropped {dropped:,} warp samples, for which it had no room")
        restore()
        records = [self._record(ready) for ready in trial.ready]
        seconds = sum(record.duration_ns for record in records) / 1e9
        plan, complete = self._profiler.plan_for(seconds)
        values = self._profiler.counted(plan, launches, restore, flush)
        if not complete:
            remarks.append(
                f"the launches take {seconds:.2g} s, so no more counters were read than {plan.passes} passes read"
            )
        properties = self._torch.cuda.get_device_properties(self._torch.cuda.current_device())
        chip = profiles.Chip(f"{properties.major}.{properties.minor}", properties.multi_processor_count)
        authorship = Authorship(job.path, users=job.language == "triton")
        by_configuration: dict[tuple[object, ...], c.Profile] = {}
        for ready, record, counters, sampled in zip(trial.ready, records, values, samples, strict=True):
            resources = ready.facts().resources
            barriers = (resources.barriers if resources else None) or 0
            counted = Counted(counters, sampled)
            result = profiles.profile(
                record, counted, ready.code(), chip, authorship, self.cupti.release, barriers
            )
            by_configuration.setdefault((record.symbol, record.grid, record.block), result)
        return tuple(by_configuration.values())

    def _seconds(self, ready: Ready) -> float:
        """Return about how long a launch takes on the GPU."""
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        ready.launch()
        end.record()
        self._torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

    def _record(self, ready: Ready) -> LaunchRecord:
        """Return what CUPTI records of a launch, which is one kernel."""
        self._recorder.record("serial")
        self._recorder.fresh()
        self._whole(ready.launch)()
        recorded = self._recorder.fresh()
        self._recorder.record("nothing")
        if len(recorded) != 1:
            raise UncountedError(f"a launch of the launch spec starts {len(recorded)} kernels")
        return recorded[0]

    def _whole(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return work that has ended on the GPU when it returns."""

        def whole() -> None:
            work()
            self._torch.cuda.synchronize()

        return whole
