"""In a job's own process: a launch spec carried out on the GPU, point by point.

For each set of values: one launch on fresh inputs whose outputs are compared with what is expected;
then timed launches, each on the same inputs; then once more with other inputs and other poison, so that
a kernel that computes only once is found out. A point whose first comparison fails is not timed: how
long a wrong answer takes is of no use.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from orbit_remote import contracts as c
from orbit_remote import (
    spec,
    spec_clock,
    spec_compare,
    spec_cuda,
    spec_memory,
    symbols,
    triton_errors,
)
from orbit_remote.recorder import Recorder
from orbit_remote.spec import Point
from orbit_remote.spec_build import Image
from orbit_remote.spec_dtypes import DTYPES, Tolerance, tolerance
from orbit_remote.spec_interpreter import Scope, evaluate
from orbit_remote.spec_launch import Bound, Facts, Ready
from orbit_remote.spec_memory import POISONS, Memory, Trespass
from orbit_remote.spec_parameters import Signature
from orbit_remote.spec_timing import Bench
from orbit_remote.spec_tree import Expect, Launch, Reference, Span, SpecError, Symbol
from orbit_remote.spec_values import Scalar, Tensor, Value, World, amount

Send = Callable[[c.Event], None]


class Backend(Protocol):
    """What differs between CUDA and Triton."""

    def signature(self, launch: Launch, values: Mapping[str, Value]) -> Signature | None: ...

    def bind(self, launch: Launch, values: Mapping[str, Value], world: World) -> Bound: ...

    def set_symbol(self, one: Symbol, values: Mapping[str, Value], world: World) -> None: ...

    def tunes(self, launch: Launch) -> bool:
        """Whether a first launch tries configurations, on the very buffers that it is given."""
        ...

    def results(self, one: Reference, values: Mapping[str, Value], world: World) -> tuple[Any, ...]:
        """What the function of a `reference` returns, as torch's tensors. Raises SpecError."""
        ...


def carry_out(job: c.Job, send: Send, recorder: Recorder, image: Image | None) -> c.Finished:
    """The whole job, in this process, which is good for no other afterwards."""
    began = time.perf_counter()
    send(c.Stage(job.run, "running", time.time()))
    run: _Run | None = None
    try:
        run = _Run(job, send, recorder, image)
        finished = run.finished()
    except SpecError as error:
        finished = _refused(job, error)
    except _Missing as error:
        finished = c.Finished(
            job.run, "infrastructure", c.Failure("infrastructure", error.text, error.remedy)
        )
    except Exception as error:  # noqa: BLE001 - of CUDA, torch or the user's kernel: the author gets a sentence
        finished = _failed(job, error, recorder)
    points = tuple(run.points) if run else ()
    timed = next((point.launches for point in points if point.launches), ())
    return replace(
        finished,
        points=points,
        launches=timed,
        run_s=time.perf_counter() - began,
        toolchain=finished.toolchain | _toolchain(),
        remarks=(*finished.remarks, *(run.remarks if run else ())),
    )


class _Missing(Exception):  # noqa: N818 - what it says, not what went wrong
    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.text = text
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class _Trial:
    """One set of values with the memory that the launches get."""

    values: Mapping[str, Value]
    world: World
    bound: tuple[Bound, ...]
    memory: Memory
    ready: tuple[Ready, ...]


class _Run:
    def __init__(self, job: c.Job, send: Send, recorder: Recorder, image: Image | None) -> None:
        assert job.definition is not None
        self.job = job
        self.points: list[c.Point] = []
        self.remarks: list[str] = []
        self._send = send
        self._torch = _torch()
        if job.device:
            self._torch.cuda.set_device(job.device)
        self._target = spec.target_of(job.definition, job.language)
        self._checked = spec.check(job.text, self._target)
        self._spec = self._checked.spec
        errors = [fault for fault in self._checked.faults if fault.severity == "error"]
        if errors:
            raise SpecError(errors[0].span, errors[0].message)
        self._backend = self._made_backend(image)
        self._clock, remark = spec_clock.clock(self._torch, recorder, getattr(recorder, "cache", None))
        self.remarks += [remark] if remark else []
        self._seed = int(self._amount("seed", {}) or 0)
        iterations = self._amount("iterations", {})
        self._iterations = int(iterations) if iterations else None
        self._problems: list[c.Problem] = []
        self._worst: c.Failure | None = None
        self._said = 0

    def _made_backend(self, image: Image | None) -> Backend:
        if self.job.language == "cuda":
            assert image is not None
            try:
                return spec_cuda.Cuda(self._torch, image, self._checked.signature)
            except ImportError:
                text = f"launch specs of CUDA kernels need cuda-core, which {sys.executable} lacks"
                raise _Missing(
                    text, "pip install cuda-core cuda-bindings, or name another `orbit.python`"
                ) from None
        from orbit_remote import spec_triton

        return spec_triton.Triton(self._torch, self.job)

    # -- points -------------------------------------------------------------------------------------

    def finished(self) -> c.Finished:
        every, _ = spec.points(self._spec)
        for at, point in enumerate(every):
            if len(every) > 1:
                why = f"{_named(point) or 'the first values'} ({at + 1} of {len(every)})"
                self._send(c.Stage(self.job.run, "running", time.time(), why))
            self.points.append(self._point(point))
        if self._worst:
            return c.Finished(self.job.run, self._worst.category, self._worst, problems=tuple(self._problems))
        return c.Finished(self.job.run, "ok", problems=tuple(self._problems))

    def _point(self, point: Point) -> c.Point:
        if any(self._backend.tunes(launch) for launch in self._spec.launches):
            self._tune(point)
        trial = self._trial(point, 0)
        before = self._said
        checks = self._checked_once(trial, point, "first")
        shown = _shown(point, trial.values)
        done = c.Point(
            shown, point.case, (), checks, self._amount("bytes", trial.values),
            self._amount("flops", trial.values), trial.memory.footprint,
        )  # fmt: skip
        if point.case or self._said > before:
            return done
        launches = self._timed(trial)
        del trial
        if checks:
            again = self._trial(point, 1)
            checks += self._checked_once(again, point, "again")
        return replace(done, launches=launches, checks=checks)

    def _tune(self, point: Point) -> None:
        """Have autotuning done on memory of its own: it launches as often as it likes."""
        for one in self._trial(point, 0).ready:
            one.launch()
        self._torch.cuda.synchronize()

    def _trial(self, point: Point, turn: int) -> _Trial:
        """Values and memory for them. Raises SpecError, at its place, for what does not go."""
        header = self._header(point)
        free = int(self._torch.cuda.mem_get_info()[0]) + int(self._unused())
        self._room(point, header, free)
        world = World(self._spec.language, self._torch, "cuda", seed=self._seed, turn=turn, memory=free)
        values, faults = spec.compute(self._spec, header, point, world)
        if faults:
            raise SpecError(faults[0].span, faults[0].message)
        for one in self._spec.symbols:
            self._backend.set_symbol(one, values, world)
        bound = tuple(self._backend.bind(launch, values, world) for launch in self._spec.launches)
        memory = Memory(self._torch, _tensors(bound), POISONS[turn])
        return _Trial(values, world, bound, memory, tuple(one.ready(memory.of) for one in bound))

    def _header(self, point: Point) -> Signature | None:
        """The kernel's parameters, as the compiler gave them where there is one."""
        described, _ = spec.compute(self._spec, self._checked.signature, point, World(self._spec.language))
        for launch in self._spec.launches:
            if launch.kernel.name == self._target.name:
                return self._backend.signature(launch, described) or self._checked.signature
        return self._checked.signature

    def _unused(self) -> int:
        """Bytes that torch holds and nobody uses."""
        return int(self._torch.cuda.memory_reserved()) - int(self._torch.cuda.memory_allocated())

    def _room(self, point: Point, header: Signature | None, free: int) -> None:
        """Refuse what cannot fit before anything is allocated."""
        described, _ = spec.compute(self._spec, header, point, World(self._spec.language))
        tensors = {name: value for name, value in described.items() if isinstance(value, Tensor)}
        wanted = spec_memory.needed((value, value.storage == name) for name, value in tensors.items())
        if wanted <= free or not tensors:
            return
        largest = max(tensors, key=lambda name: tensors[name].bytes)
        span = next(one.span for one in self._spec.assignments if one.name.name == largest)
        message = (
            f"The inputs and the copies that kernels get take {amount(wanted)} ({largest} alone "
            f"{amount(tensors[largest].bytes)}), and the GPU has {amount(free)} free."
        )
        raise SpecError(span, message)

    def _amount(self, word: str, values: Mapping[str, Value]) -> float | None:
        one = self._spec.amounts.get(word)
        if one is None:
            return None
        value = evaluate(
            one.value, World(self._spec.language, wide=word in ("bytes", "flops")), Scope(values)
        )
        return float(value.value) if isinstance(value, Scalar) else None

    # -- timing -------------------------------------------------------------------------------------

    def _timed(self, trial: _Trial) -> tuple[c.Launches, ...]:
        facts = [one.facts() for one in trial.ready]
        bench = Bench(self._torch, self._clock, [one.symbol for one in facts], self._iterations)
        launches = [one.launch for one in trial.ready]
        cold = bench.cold(trial.memory.restore, launches)
        warm = bench.warm(trial.memory.restore, launches)
        if not cold:
            self.remarks.append("the launches could not be timed: not all of them were recorded")
            return ()
        return tuple(
            _launches(one, timing, warm[at] if warm else None, bench)
            for at, (one, timing) in enumerate(zip(facts, cold, strict=True))
        )

    # -- checking -----------------------------------------------------------------------------------

    def _checked_once(self, trial: _Trial, point: Point, when: str) -> tuple[c.Check, ...]:
        for one in trial.ready:
            one.launch()
        self._torch.cuda.synchronize()
        trial.memory.look()
        for found in trial.memory.trespasses():
            self._outside(found, point)
        after = {
            name: replace(value, data=trial.memory.of(value)) if isinstance(value, Tensor) else value
            for name, value in trial.values.items()
        }
        checks = [self._expected(one, trial, after, point, when) for one in self._spec.expects]
        for one in self._spec.references:
            checks += self._referenced(one, trial, after, point, when)
        return tuple(checks)

    def _expected(
        self, one: Expect, trial: _Trial, after: Mapping[str, Value], point: Point, when: str
    ) -> c.Check:
        actual = evaluate(one.actual, trial.world, Scope(after))
        expected = evaluate(one.expected, replace(trial.world, exact=True), Scope(trial.values))
        assert isinstance(actual, Tensor)
        terms = 1
        if isinstance(expected, Tensor):
            data, terms = expected.data, expected.terms
        else:
            assert isinstance(expected, Scalar)
            whole = expected.integral or isinstance(expected.value, bool)
            kind = self._torch.int64 if whole else self._torch.float64
            data = self._torch.tensor(expected.value, dtype=kind, device="cuda")
        allowed = self._tolerance(one, actual, terms, trial)
        name = self._text(one.actual.span)
        return self._compared(name, self._text(one.span), one.span, actual.data, data, allowed, point, when)

    def _tolerance(self, one: Expect | Reference, actual: Tensor, terms: int, trial: _Trial) -> Tolerance:
        if one.within is None:
            return tolerance(actual.dtype, terms)
        bounds = [
            float(value.value) if node is not None and isinstance(value := evaluate(node, trial.world, Scope(trial.values)), Scalar) else 0.0
            for node in (one.within.rtol, one.within.atol)
        ]  # fmt: skip
        return Tolerance(*bounds)

    def _referenced(
        self, one: Reference, trial: _Trial, after: Mapping[str, Value], point: Point, when: str
    ) -> list[c.Check]:
        """The outputs against what a function returns, or what another kernel leaves in them."""
        if one.launch is not None:
            names, right = self._of_kernel(one, one.launch, trial)
        else:
            results = self._backend.results(one, trial.values, trial.world)
            names = [name.name for name in one.outputs] or _written(trial)
            if len(results) != len(names):
                message = (
                    f"This returns {len(results)} tensors for the {len(names)} outputs {', '.join(names)}."
                )
                raise SpecError(one.span, message)
            right = dict(zip(names, results, strict=True))
        # a kernel or a function adds in an order of its own: as many terms as the longest input is wide
        terms = max((max(t.shape, default=1) for t, _ in _tensors(trial.bound)), default=1)
        checks: list[c.Check] = []
        for name in names:
            actual = after[name]
            assert isinstance(actual, Tensor)
            data = right[name]
            if tuple(data.shape) != actual.shape:
                message = (
                    f"The reference gives {name} the shape {tuple(data.shape)}, the kernel {actual.shape}."
                )
                raise SpecError(one.span, message)
            if data.dtype.is_floating_point:
                data = data.to(self._torch.float64)
            allowed = self._tolerance(one, actual, terms, trial)
            what = self._text(one.span) + (f": {name}" if len(names) > 1 else "")
            checks.append(self._compared(name, what, one.span, actual.data, data, allowed, point, when))
        return checks

    def _of_kernel(self, one: Reference, launch: Launch, trial: _Trial) -> tuple[list[str], dict[str, Any]]:
        bound = self._backend.bind(launch, trial.values, trial.world)
        memory = Memory(self._torch, _tensors((bound,)), POISONS[0])
        bound.ready(memory.of).launch()
        self._torch.cuda.synchronize()
        both = [name for name in _written(trial) if name in bound.outputs]
        names = [name.name for name in one.outputs] or both
        found: dict[str, Any] = {}
        for name in names:
            value = trial.values.get(name)
            if not isinstance(value, Tensor) or name not in bound.outputs:
                raise SpecError(one.span, f"'{name}' is no output of {launch.kernel.name}.")
            found[name] = memory.of(value)
        if not found:
            raise SpecError(one.span, f"{launch.kernel.name} writes no tensor that the kernel writes.")
        return names, found

    def _compared(
        self,
        name: str,
        what: str,
        span: Span,
        actual: Any,
        expected: Any,
        allowed: Tolerance,
        point: Point,
        when: str,
    ) -> c.Check:
        found = spec_compare.compare(self._torch, actual, expected, allowed)
        place = self._place(span)
        check = c.Check(
            what, found.differing == 0, place, found.elements, found.differing, found.index, found.actual,
            found.expected, found.error, allowed.rtol, allowed.atol, "again" if when == "again" else "first",
        )  # fmt: skip
        if not check.passed:
            self._wrong(check, name, point)
        return check

    # -- what is wrong ------------------------------------------------------------------------------

    def _wrong(self, check: c.Check, name: str, point: Point) -> None:
        text = f"wrong answer{_where(point)}: {difference(check, name)}"
        self._say(c.Problem("error", text, "orbit", check.place), "wrong answer")

    def _outside(self, found: Trespass, point: Point) -> None:
        where = (
            f"{found.offset} bytes after its end"
            if found.offset >= 0
            else f"{-found.offset} bytes before its start"
        )
        many = "a byte" if found.bytes == 1 else f"{found.bytes} bytes"
        text = f"the kernel writes outside of {found.name}{_where(point)}: {many}, one of them {where}"
        self._say(c.Problem("error", text, "orbit", self._definition()), "runtime error")

    def _say(self, problem: c.Problem, category: c.Outcome) -> None:
        self._said += 1
        if any(one.place == problem.place and one.message == problem.message for one in self._problems):
            return
        self._problems.append(problem)
        if self._worst is None or (self._worst.category == "wrong answer" and category == "runtime error"):
            self._worst = c.Failure(category, problem.message, place=problem.place)

    def _definition(self) -> c.Place:
        return definition(self.job)

    def _place(self, span: Span) -> c.Place:
        end = span.end_column + 1 if span.end_line == span.line else None
        return c.Place(self.job.path, span.line + 1, span.column + 1, end)

    def _text(self, span: Span) -> str:
        """The spec's own words."""
        lines = self.job.text.splitlines()
        line = lines[span.line] if span.line < len(lines) else ""
        return line[span.column : span.end_column if span.end_line == span.line else None].strip()


def difference(check: c.Check, name: str) -> str:
    """What a failed comparison says, in a few words. `name` is the output as the author writes it."""
    index = ", ".join(map(str, check.index))
    at = f"{name}[{index}]" if index else name
    many = f"{check.differing} of {check.elements} elements differ" if check.elements > 1 else "it differs"
    largest = "" if check.error is None else f", the largest error is {check.error:.3g}"
    later = "; only when launched again with other inputs" if check.when == "again" else ""
    return f"{at} is {check.actual}, expected {check.expected}; {many}{largest}{later}"


def definition(job: c.Job) -> c.Place:
    """The kernel's name where it is defined."""
    assert job.definition is not None
    end = job.definition.name_end
    return c.Place(job.path, job.definition.name_line + 1, end - len(job.definition.name) + 1, end + 1)


def _torch() -> Any:
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        text = f"launch specs make their inputs with torch, which {sys.executable} lacks"
        raise _Missing(text, "install torch there, or name another `orbit.python`") from None
    if not torch.cuda.is_available():
        text = f"the torch {torch.__version__} of {sys.executable} finds no GPU"
        raise _Missing(text, "install a build of torch for CUDA, or look at the driver: `orbit-lsp doctor`")
    return torch


def _tensors(bound: Sequence[Bound]) -> list[tuple[Tensor, bool]]:
    return [each for one in bound for each in one.tensors]


def _written(trial: _Trial) -> list[str]:
    """The tensors that the spec's launches changed; those that were empty before count as changed."""
    found: dict[str, None] = {}
    changed = trial.memory.changed()
    for each in trial.bound:
        for name in each.outputs:
            if name in changed:
                found[name] = None
    return list(found)


def _launches(one: Facts, cold: c.Timing, warm: c.Timing | None, bench: Bench) -> c.Launches:
    """What the record of a launch says goes before what was asked for."""
    known = one.resources
    record = bench.seen.get(one.symbol)
    return c.Launches(
        symbol=one.symbol,
        name=one.name,
        grid=record.grid if record else one.grid or (1, 1, 1),
        block=record.block if record else one.block or (1, 1, 1),
        timing=cold,
        count=cold.n + (warm.n if warm else 0),
        cluster=record.cluster if record else one.cluster,
        registers=record.registers if record else (known.registers if known else None),
        static_shared=record.static_shared if record else (known.static_shared if known else None),
        dynamic_shared=record.dynamic_shared if record else one.dynamic_shared,
        local_per_thread=record.local_per_thread if record else None,
        constants=one.constants or (dict(known.constants) if known else {}),
        place=known.place if known else None,
        warm=warm,
        tuning=one.tuning,
    )


def _named(point: Point) -> str:
    if point.case:
        return f"case {point.case}"
    return ""


def _shown(point: Point, values: Mapping[str, Value]) -> dict[str, str]:
    """The values of the names that this point replaces."""
    found: dict[str, str] = {}
    for name in point.replaced:
        value = values.get(name)
        if isinstance(value, Scalar):
            found[name] = f"{value.value:g}" if isinstance(value.value, float) else str(value.value)
        elif value is not None:
            found[name] = value.name if value in DTYPES.values() else type(value).__name__  # type: ignore[union-attr]
    return found


def _where(point: Point) -> str:
    return f" (case {point.case})" if point.case else ""


def _refused(job: c.Job, error: SpecError) -> c.Finished:
    span = error.fault.span
    end = span.end_column + 1 if span.end_line == span.line else None
    place = c.Place(job.path, span.line + 1, span.column + 1, end)
    problem = c.Problem("error", error.fault.message, "orbit", place)
    failure = c.Failure("runtime error", f"the launch spec: {error.fault.message}", place=place)
    return c.Finished(job.run, "runtime error", failure, problems=(problem,))


def _failed(job: c.Job, error: BaseException, recorder: Recorder) -> c.Finished:
    """A CUDA error, or whatever torch, the driver and the user's file raise."""
    recorder.end()
    recorded = recorder.recorded()
    where = definition(job)
    if fatal := next((one for one in recorded.errors if one.fatal), None):
        kernel = symbols.short_name(fatal.last_kernel) if fatal.last_kernel else job.definition.name  # type: ignore[union-attr]
        known = triton_errors.cuda_failure(fatal).failure
        failure = c.Failure("runtime error", f"{kernel} ended with {fatal.name}", known.remedy, place=where)
        return c.Finished(job.run, "runtime error", failure, problems=(_problem(failure, where),))
    explained = triton_errors.explain(error, job.path)
    failure = explained.failure
    if failure.place is None:
        failure = replace(failure, place=where)
    problems = explained.problems or (_problem(failure, where),)
    return c.Finished(job.run, failure.category, failure, problems=problems)


def _problem(failure: c.Failure, place: c.Place) -> c.Problem:
    text = f"{failure.message}. {failure.remedy}" if failure.remedy else failure.message
    return c.Problem("error", text, "cuda", place)


def rehearse(torch: Any) -> None:
    """Do once, on next to nothing, what every spec does: CUDA loads each kernel of torch's when it is
    first launched, which is 0.2 s of the first comparison (H100).
    """
    made = torch.Generator(device="cuda")
    for kind in (torch.float32, torch.float16, torch.bfloat16):
        one = torch.randn(64, generator=made, device="cuda", dtype=kind)
        tensor = Tensor((64,), DTYPES[str(kind).removeprefix("torch.")], (1,), one, storage="x")
        memory = Memory(torch, ((tensor, True),), POISONS[0])
        memory.look()
        memory.restore()
        memory.trespasses()
        spec_compare.compare(
            torch, memory.of(tensor), one.double() * 2 + one.double(), Tolerance(0.0, 0.0, 1.0)
        )
    whole = torch.randint(0, 9, (64,), generator=made, device="cuda", dtype=torch.int32)
    spec_compare.compare(torch, whole, whole.to(torch.int64), Tolerance(0.0, 0.0))
    torch.sum(torch.zeros(1 << 20, device="cuda"), dim=0, out=torch.zeros((), device="cuda"))
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def _toolchain() -> dict[str, str]:
    from orbit_remote import triton_job

    found = dict(triton_job.toolchain())
    core = sys.modules.get("cuda.core")
    if core is not None:
        found["cuda-core"] = str(getattr(core, "__version__", ""))
    return found
