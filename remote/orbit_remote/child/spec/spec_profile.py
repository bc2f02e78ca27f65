"""In a job's own process under a profiler: the launches of a launch spec, once."""

from __future__ import annotations

from typing import Any

from orbit_remote.child import under_profiler
from orbit_remote.child.spec.trial import Backend, Gpu, Trials
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.spec import launch_spec
from orbit_remote.spec.launch_spec import Checked


def profiled(torch: Any, job: Job, checked: Checked, backend: Backend) -> c.Finished:
    """With the first set of its values. Before the launches that the profiler sees come the same that it does not,
    so that everything is compiled, chosen and loaded. Nothing is compared or timed.
    """
    every, _ = launch_spec.points(checked.spec)
    point = next((point for point in every if not point.case), every[0])
    trials = Trials(checked, job, backend, Gpu(torch))
    trials.tune(point)
    trial = trials.make(point, 0)
    trial.launch()
    trial.memory.restore()
    with under_profiler.profiled(torch):
        trial.launch()
    used = [ready.facts().resources for ready in trial.ready]
    timed = [point for point in every if not point.case]
    remarks = (f"profiled with the first of {len(timed)} sets of values",) if len(timed) > 1 else ()
    return c.ok(job.run, resources=tuple(resources for resources in used if resources), remarks=remarks)
