"""Makes the launches of a spec under compute-sanitizer, in a job's own process, each once on its inputs as they are.

There are no copies between guard bands and no poison in what is empty: an access one element too far has to leave the
allocation, and what nobody has written has to stay unwritten. Nothing is compared and nothing timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from orbit_remote.child.spec.trial import Backend, Gpu, Trials
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.spec import launch_spec
from orbit_remote.spec.launch_spec import EvaluatedSpec, SpecPoint
from orbit_remote.spec.values import Tensor, World

CACHE: Final = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Environment in which each of torch's tensors is an allocation of its own: out of its cache, an index past the end of one
tensor meets another (torch 2, `CUDACachingAllocator`).
"""
_MOST: Final = 8
"""Sets of values that are launched: a kernel takes 10 to 100 times its time."""

Send = Callable[[c.Event], None]


def launch_once(torch: Any, job: Job, send: Send, checked: EvaluatedSpec, backend: Backend) -> c.Finished:
    """Raises SpecError, and whatever CUDA raises."""
    trials = Trials(checked, job, backend, Gpu(torch))
    every, _ = launch_spec.points(checked.spec)
    chosen = choose(checked, every)
    for at, point in enumerate(chosen):
        if len(chosen) > 1:
            send(c.Stage(job.run, "running", time.time(), f"values {at + 1} of {len(chosen)}"))
        trial = trials.make(point, 0)
        ready = [bound.ready(_as_it_is) for bound in trial.bound]
        for ready_launch in ready:
            ready_launch.launch()
        trials.gpu.synchronize()
    return c.ok(job.run, remarks=_remarks(every, chosen))


def _as_it_is(tensor: Tensor) -> Any:
    return tensor.data


def choose(checked: EvaluatedSpec, every: list[SpecPoint]) -> list[SpecPoint]:
    """Return every case, because indices go wrong at a ragged tail, and of the values that are timed those with the
    least memory.
    """
    timed = [point for point in every if not point.case]
    cases = [point for point in every if point.case]
    return [*sorted(timed, key=lambda point: _bytes(checked, point))[:1], *cases][:_MOST]


def _bytes(checked: EvaluatedSpec, point: SpecPoint) -> int:
    values, _ = launch_spec.compute(checked.spec, checked.signature, point, World(checked.spec.language))
    return sum(value.bytes for value in values.values() if isinstance(value, Tensor))


def _remarks(every: list[SpecPoint], chosen: list[SpecPoint]) -> tuple[str, ...]:
    if len(every) == len(chosen):
        return ()
    return (
        f"checked with {len(chosen)} of {len(every)} sets of values: the one with the least memory, and cases",
    )
