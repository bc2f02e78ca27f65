"""Runs a launch spec on the GPU in a job's own process, point by point.

For each set of values there is one launch on fresh inputs whose outputs are compared with what is expected. Then
there are timed launches, each on the same inputs. Then there is one more with other inputs and other poison, so that
a kernel that computes only once is found out. A point whose first comparison fails is not timed: how long a wrong
answer takes is of no use.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from orbit_remote.child.spec import (
    cuda_backend,
    helper_kernels,
    output_compare,
    recording_overhead,
    spec_profile,
)
from orbit_remote.child.spec.device_memory import POISONS, Memory
from orbit_remote.child.spec.expectation import SpecVerdict, definition
from orbit_remote.child.spec.launch_timing import Bench, Clock
from orbit_remote.child.spec.launches import LaunchFacts
from orbit_remote.child.spec.shared_memory import SharedMemory
from orbit_remote.child.spec.sm_clock import SmClock
from orbit_remote.child.spec.trial import Backend, Gpu, MissingPackageError, Trial, Trials, load_torch
from orbit_remote.common import measure, python_errors, symbols
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Telemetry, Timing
from orbit_remote.common.packages import installing
from orbit_remote.common.requests import Job
from orbit_remote.recording.recorder import Recorder
from orbit_remote.recording.telemetry import Sampler
from orbit_remote.spec import launch_spec
from orbit_remote.spec.dtypes import DTYPES, DType, Tolerance
from orbit_remote.spec.launch_spec import SpecPoint
from orbit_remote.spec.syntax_tree import SpecError
from orbit_remote.spec.values import Scalar, Tensor, Value
from orbit_remote.toolchain.spec_instances import Image

_SAMPLE_S = 0.01
"""Between two looks at the GPU's clock: a point is timed in some hundredths of a second."""
_THROTTLED = (
    f"the GPU's clock was below {measure.CLOCK_FLOOR:.0%} of its default all the time, so no launch was left out; "
    "the times are those of a slowed GPU"
)

Send = Callable[[c.Event], None]
Timed = Callable[[Trial], tuple[c.Launches, ...]]
Instead = Callable[[Any, launch_spec.EvaluatedSpec, Backend], c.Finished]
"""With torch."""


def run_launch_spec(
    job: Job, send: Send, recorder: Recorder, image: Image | None, instead: Instead | None = None
) -> c.Finished:
    """Do the whole job, in this process, which is good for no other afterwards. `instead` does something else with
    the compiled kernels than a run, as for a capture.
    """
    began = time.perf_counter()
    send(c.Stage(job.run, "profiling" if job.action == "profile" else "running", time.time()))
    run: SpecRun | None = None
    timer: _Timer | None = None
    remarks: list[str] = []
    try:
        torch = load_torch(job, "launch specs make their inputs with")
        checked = checked_spec(job)
        backend = _backend(torch, job, image, checked)
        if job.action == "profile":
            finished = spec_profile.profiled(torch, job, checked, backend, recorder)
            return replace(finished, toolchain=finished.toolchain | _toolchain())
        if job.action == "sanitize":
            from orbit_remote.child.spec import spec_sanitize

            finished = spec_sanitize.launch_once(torch, job, send, checked, backend)
            return replace(finished, toolchain=_toolchain())
        if instead:
            return instead(torch, checked, backend)
        kernels = helper_kernels.load(torch, getattr(recorder, "cache", None))
        clock, remark = recording_overhead.clock(torch, recorder, kernels)
        remarks += [remark] if remark else []
        shared = None if isinstance(kernels, str) else SharedMemory(kernels)
        run = SpecRun(job, send, checked, backend, Gpu(torch, shared))
        with Sampler(_device(torch, job), period_s=_SAMPLE_S, energy_s=0.0) as sampler:
            sm_clock = None if isinstance(kernels, str) else SmClock(torch, kernels)
            timed = sum(not point.case for point in launch_spec.points(checked.spec)[0])
            timer = _Timer(torch, clock, run.trials, sampler, remarks, sm_clock, timed)
            finished = run.finished(timer)
        remarks += sampler.remarks
    except SpecError as error:
        finished = _refused(job, error)
    except MissingPackageError as error:
        finished = c.failed(job.run, error.failure)
    except Exception as error:  # noqa: BLE001 - of CUDA, torch or the user's kernel: the author gets a sentence
        finished = _failed(job, error, recorder)
    points = tuple(run.points) if run else ()
    timed = next((point.launches for point in points if point.launches), ())
    return replace(
        finished,
        points=points,
        launches=timed,
        telemetry=timer.telemetry() if timer else None,
        run_s=time.perf_counter() - began,
        toolchain=finished.toolchain | _toolchain(),
        remarks=(*finished.remarks, *remarks),
    )


class SpecRun:
    """Runs the points of a spec, one after another."""

    def __init__(
        self, job: Job, send: Send, checked: launch_spec.EvaluatedSpec, backend: Backend, gpu: Gpu
    ) -> None:
        self.points: list[c.Point] = []
        self._job = job
        self._send = send
        self._spec = checked.spec
        self.trials = Trials(checked, job, backend, gpu)
        self._verdict = SpecVerdict(job, checked.spec, backend, gpu)

    def finished(self, timed: Timed) -> c.Finished:
        """Return the result. `timed` takes the times of a trial's launches."""
        every, _ = launch_spec.points(self._spec)
        for at, point in enumerate(every):
            if len(every) > 1:
                name = f"case {point.case}" if point.case else "values"
                why = f"{name} ({at + 1} of {len(every)})"
                self._send(c.Stage(self._job.run, "running", time.time(), why))
            self.points.append(self._point(point, timed))
        verdict = self._verdict
        outcome = verdict.failure.category if verdict.failure else "ok"
        problems, remarks = tuple(verdict.problems), tuple(verdict.remarks)
        return c.Finished(self._job.run, outcome, verdict.failure, problems=problems, remarks=remarks)

    def _point(self, point: SpecPoint, timed: Timed) -> c.Point:
        self.trials.tune(point)
        trial = self.trials.make(point, 0)
        checks, sound = self._verdict.check(trial, point, "first")
        done = c.Point(
            _shown(point, trial.values), point.case, (), checks, self.trials.amount("bytes", trial.values),
            self.trials.amount("flops", trial.values), trial.memory.footprint,
        )  # fmt: skip
        if point.case or not sound:
            return done
        launches = timed(trial)
        del trial  # its memory is for the next
        if checks:
            checks += self._verdict.check(self.trials.make(point, 1), point, "again")[0]
        return replace(done, launches=launches, checks=checks)


def checked_spec(job: Job) -> launch_spec.EvaluatedSpec:
    """Raises SpecError for the first error of the spec above the job's kernel."""
    assert job.definition is not None
    checked = launch_spec.check(job.text, launch_spec.target_of(job.definition, job.language))
    for fault in checked.faults:
        if fault.severity == "error":
            raise SpecError(fault.span, fault.message)
    return checked


def _backend(torch: Any, job: Job, image: Image | None, checked: launch_spec.EvaluatedSpec) -> Backend:
    if job.language == "cuda":
        assert image is not None
        try:
            return cuda_backend.Cuda(torch, image, checked.signature)
        except ImportError:
            text = f"launch specs of CUDA kernels need cuda-core, which {sys.executable} lacks"
            remedy = f"{installing.remedy(sys.executable, 'cuda-core', 'cuda-bindings')}, or name another `orbit.python`"
            raise MissingPackageError(text, remedy) from None
    from orbit_remote.child.spec import triton_backend

    return triton_backend.Triton(torch, job)


class _Timer:
    """Takes the times of trials, and what NVML says meanwhile."""

    def __init__(
        self,
        torch: Any,
        clock: Clock,
        trials: Trials,
        sampler: Sampler,
        remarks: list[str],
        sm_clock: SmClock | None,
        points: int,
    ) -> None:
        """Make a timer. It times at most `points` points."""
        self._torch = torch
        self._clock = clock
        self._trials = trials
        self._sampler = sampler
        self._sm_clock = sm_clock
        self._remarks = remarks
        self._left = points
        self._span: tuple[int, int] | None = None

    def __call__(self, trial: Trial) -> tuple[c.Launches, ...]:
        facts = [ready.facts() for ready in trial.ready]
        iterations = self._trials.amount("iterations", trial.values)
        symbols_ = [fact.symbol for fact in facts]
        most = int(iterations) if iterations else None
        warmup = int(self._trials.amount("warmup", trial.values) or 0)
        bench = Bench(self._torch, self._clock, symbols_, most, self._sampler, self._sm_clock, warmup=warmup)
        launches = [ready.launch for ready in trial.ready]
        cold = bench.cold(trial.memory.restore, launches)
        warm = bench.warm(trial.memory.restore, launches)
        self._left -= 1
        if not self._left:
            self._sampler.enough()
        if bench.span_ns:
            self._span = (self._span or bench.span_ns)[0], bench.span_ns[1]
        if bench.throttled and _THROTTLED not in self._remarks:
            self._remarks.append(_THROTTLED)
        if not cold:
            self._remarks.append("the launches could not be timed: not all of them were recorded")
            return ()
        return tuple(
            _launches(launch_facts, timing, warm[at] if warm else None, bench)
            for at, (launch_facts, timing) in enumerate(zip(facts, cold, strict=True))
        )

    def telemetry(self) -> Telemetry | None:
        """Return telemetry of the timed launches only: the idle GPU before and after them has other clocks."""
        if self._span is None:
            return None
        begin, end = self._span
        around = int(_SAMPLE_S * 1e9)
        measured = self._sampler.telemetry(begin - around, end + around)
        return measured if measured and measured.samples else None


def _device(torch: Any, job: Job) -> str | int:
    """Return the GPU as NVML knows it. The number is CUDA's, which CUDA_VISIBLE_DEVICES may have changed."""
    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    return f"GPU-{uuid}" if uuid else job.device


def _launches(facts: LaunchFacts, cold: Timing, warm: Timing | None, bench: Bench) -> c.Launches:
    """Return launches. Values recorded at the launch replace the requested ones."""
    known = facts.resources
    record = bench.seen.get(facts.symbol)
    return c.Launches(
        symbol=facts.symbol,
        name=facts.name,
        grid=record.grid if record else facts.grid or (1, 1, 1),
        block=record.block if record else facts.block or (1, 1, 1),
        timing=cold,
        count=cold.n + (warm.n if warm else 0),
        cluster=record.cluster if record else facts.cluster,
        registers=record.registers if record else (known.registers if known else None),
        static_shared=record.static_shared if record else (known.static_shared if known else None),
        dynamic_shared=record.dynamic_shared if record else facts.dynamic_shared,
        local_per_thread=record.local_per_thread if record else None,
        constants=facts.constants or (dict(known.constants) if known else {}),
        place=known.place if known else None,
        warm=warm,
        tuning=facts.tuning,
    )


def _shown(point: SpecPoint, values: Mapping[str, Value]) -> dict[str, str]:
    """Return the values of the names that this point replaces."""
    texts: dict[str, str] = {}
    for name in point.replaced:
        value = values.get(name)
        if isinstance(value, Scalar):
            texts[name] = f"{value.value:g}" if isinstance(value.value, float) else str(value.value)
        elif value is not None:
            texts[name] = value.name if isinstance(value, DType) else type(value).__name__
    return texts


def _refused(job: Job, error: SpecError) -> c.Finished:
    place = error.fault.span.place(job.path)
    problem = c.Problem("error", error.fault.message, "orbit", place)
    failure = c.Failure("runtime error", f"the launch spec: {error.fault.message}", place=place)
    return c.failed(job.run, failure, problems=(problem,))


def _failed(job: Job, error: BaseException, recorder: Recorder) -> c.Finished:
    """Return a CUDA error, or whatever torch, the driver and the user's file raise, as a failure."""
    recorder.end()
    recorded = recorder.recorded()
    where = definition(job)
    if fatal := next((error for error in recorded.errors if error.fatal), None):
        kernel = symbols.short_name(fatal.last_kernel) if fatal.last_kernel else "the kernel"
        known = python_errors.cuda_failure(fatal).failure
        failure = c.Failure(known.category, f"{kernel} ended with {fatal.name}", known.remedy, place=where)
        return c.failed(job.run, failure, problems=(_problem(failure, where, fatal.name),))
    explained = python_errors.explain(error, job.path)
    failure = explained.failure
    if failure.place is None:
        failure = replace(failure, place=where)
    problems = explained.problems or (_problem(failure, where),)
    return c.failed(job.run, failure, problems=problems)


def _problem(failure: c.Failure, place: c.Place, code: str | None = None) -> c.Problem:
    text = f"{failure.message}. {failure.remedy}" if failure.remedy else failure.message
    return c.Problem("error", text, "cuda", place, code)


def rehearse(torch: Any) -> None:
    """Do once, on next to nothing, what every spec does. CUDA loads each kernel of torch's when it is first launched,
    which is 0.2 s of the first comparison (H100).
    """
    made = torch.Generator(device="cuda")
    for kind in (torch.float32, torch.float16, torch.bfloat16):
        noise = torch.randn(64, generator=made, device="cuda", dtype=kind)
        tensor = Tensor((64,), DTYPES[str(kind).removeprefix("torch.")], (1,), noise, storage="x")
        memory = Memory(torch, ((tensor, True),), POISONS[0])
        memory.look()
        memory.restore()
        memory.trespasses()
        output_compare.compare(
            torch, memory.of(tensor), noise.double() * 2 + noise.double(), Tolerance(0.0, 0.0, 1.0)
        )
    whole = torch.randint(0, 9, (64,), generator=made, device="cuda", dtype=torch.int32)
    output_compare.compare(torch, whole, whole.to(torch.int64), Tolerance(0.0, 0.0))
    torch.sum(torch.zeros(1 << 20, device="cuda"), dim=0, out=torch.zeros((), device="cuda"))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def _toolchain() -> dict[str, str]:
    from orbit_remote.child import triton_instances

    versions = dict(triton_instances.toolchain())
    core = sys.modules.get("cuda.core")
    if core is not None:
        versions["cuda-core"] = str(getattr(core, "__version__", ""))
    return versions
