"""Counts the launches of a launch spec in a job's own process: by CUPTI here, or once for the profiler that this
process is under.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from orbit_remote.child import triton_instances, under_profiler
from orbit_remote.child.spec import launch_counting
from orbit_remote.child.spec.launch_counting import Counting
from orbit_remote.child.spec.trial import Backend, Gpu, Trial, Trials
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.counters.profiler import UncountedError
from orbit_remote.recording.recorder import Recorder, UnderTool
from orbit_remote.spec import launch_spec
from orbit_remote.spec.launch_spec import EvaluatedSpec, SpecPoint
from orbit_remote.toolchain import dumps


def profiled(
    torch: Any, job: Job, checked: EvaluatedSpec, backend: Backend, recorder: Recorder
) -> c.Finished:
    """Return the profile of a spec with the first set of its values. The same launches are first made without being
    profiled, so that everything is compiled, chosen and loaded. Nothing is compared or timed.

    If this process is under no profiler, the launches are counted here; a profile of the tier `times` says why they
    cannot be.
    """
    every, _ = launch_spec.points(checked.spec)
    point = next((point for point in every if not point.case), every[0])
    timed = [point for point in every if not point.case]
    remarks = [f"profiled with the first of {len(timed)} sets of values"] if len(timed) > 1 else []
    trials = Trials(checked, job, backend, Gpu(torch))
    trials.tune(point)
    if any(backend.tunes(launch) for launch in checked.spec.launches):
        triton_instances.unload()  # see Counting
    if isinstance(recorder, UnderTool):
        trial = _warmed(torch, trials, point)
        with under_profiler.profiled(torch):
            trial.launch()
        return replace(_finished(job, trial), remarks=tuple(remarks))
    try:
        with Counting(torch, recorder) as counting, ThreadPoolExecutor() as beside:
            planned = beside.submit(counting.plan)  # it takes as long as making the inputs
            trial = _warmed(torch, trials, point)
            made = [
                beside.submit(launch_counting.made, ready)
                for ready in launch_counting.of_each_kernel(trial.ready)
            ]
            planned.result()
            counted = counting.profiles(job, trial.ready, trial.memory.restore, remarks)
            packed = dumps.packed([each.result() for each in made], remarks)
    except UncountedError as uncounted:
        name = job.definition.name if job.definition else ""
        return c.ok(job.run, profiles=(c.Profile(name, name, "times", str(uncounted)),))
    versions = {"cupti": counting.cupti.release}
    finished = _finished(job, trial)
    return replace(finished, profiles=counted, dumps=packed, remarks=tuple(remarks), toolchain=versions)


def _warmed(torch: Any, trials: Trials, point: SpecPoint) -> Trial:
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
