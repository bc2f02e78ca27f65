"""How a launch spec is carried out, point by point: on the CPU, with Python functions that act the kernels.

What acts and what is real: values, memory, comparison and the order of things are the real ones, with torch on
the CPU. Kernels, their launches and times are not; tests/gpu/test_spec_gpu.py has those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

from orbit_lsp.kernels.cuda import cuda_kernels
from orbit_remote.child.spec import spec_job
from orbit_remote.child.spec.launches import BoundLaunch, LaunchFacts, Memory, Ready
from orbit_remote.child.spec.trial import Gpu, Trial
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Timing
from orbit_remote.common.requests import Job, KernelDefinition, SpecStart
from orbit_remote.spec.interpreter import SpecScope, evaluate
from orbit_remote.spec.signature import Signature
from orbit_remote.spec.syntax_tree import Assignment, Reference, SpecError, SpecLaunch
from orbit_remote.spec.values import Scalar, Tensor, Value, World
from tests.later import Later

if TYPE_CHECKING:
    import torch
else:
    torch = Later("torch")

Kernel = Callable[..., None]


class Cpu(Gpu):
    device = "cpu"

    def __init__(self, free: int = 1 << 30) -> None:
        super().__init__(torch)
        self._free = free

    def free(self) -> int:
        return self._free

    def synchronize(self) -> None:
        pass


@dataclass
class Acted:
    """Functions in the place of kernels; they get torch's tensors where a kernel gets pointers."""

    kernels: Mapping[str, Kernel]
    tuned: bool = False
    launched: list[str] = field(default_factory=list[str])

    def signature(self, launch: SpecLaunch, values: Mapping[str, Value]) -> Signature | None:
        return None

    def tunes(self, launch: SpecLaunch) -> bool:
        return self.tuned

    def set_symbol(self, one: Assignment, values: Mapping[str, Value], world: World) -> None:
        raise SpecError(one.span, "no symbols here")

    def results(self, one: Reference, values: Mapping[str, Value], world: World) -> tuple[Any, ...]:
        raise SpecError(one.span, "no functions here")

    def bind(self, launch: SpecLaunch, values: Mapping[str, Value], world: World) -> BoundLaunch:
        arguments = [evaluate(node, world, SpecScope(values)) for node in launch.arguments]
        tensors = tuple((argument, True) for argument in arguments if isinstance(argument, Tensor))

        def ready(memory: Memory) -> Ready:
            given = [
                memory(argument) if isinstance(argument, Tensor) else argument.value
                for argument in arguments
                if isinstance(argument, Tensor | Scalar)
            ]
            return _Act(self, launch.kernel.name, given)

        return BoundLaunch(launch.span, tensors, ready)


@dataclass
class _Act:
    acted: Acted
    name: str
    given: list[Any]

    def launch(self) -> None:
        self.acted.launched.append(self.name)
        self.acted.kernels[self.name](*self.given)

    def facts(self) -> LaunchFacts:
        return LaunchFacts(self.name, self.name)


SPEC = """
    // orbit: n = 1000; x = randn(n); y = empty(n)
    // orbit: launch k<<<4, 256>>>(x, y, n)
    // orbit: expect y == x * 2
    __global__ void k(const float* x, float* y, int n) {}
    """


def run(
    source: str, kernel: Kernel, *, tuned: bool = False, free: int = 1 << 30, **kernels: Kernel
) -> tuple[c.Finished, list[c.Point], Acted]:
    text = dedent(source).lstrip("\n")
    result = cuda_kernels.scan(text).kernels[-1]
    spot = result.name_span
    where = KernelDefinition(
        result.name, result.qualified, result.whole.line, result.line, spot.line, spot.end_column
    )
    job = Job("r", "run", "cuda", "/src/k.cu", text, result.name, start=SpecStart(where))
    acted = Acted({result.name: kernel, **kernels}, tuned)
    made = spec_job.SpecRun(job, lambda _: None, spec_job.checked_spec(job), acted, Cpu(free))

    def timed(trial: Trial) -> tuple[c.Launches, ...]:
        acted.launched.append("timing")
        return tuple(
            c.Launches(
                ready.facts().symbol, ready.facts().name, (1, 1, 1), (1, 1, 1), Timing(1, 1.0, "acted"), 1
            )
            for ready in trial.ready
        )

    return made.finished(timed), made.points, acted


def told(finished: c.Finished, points: list[c.Point]) -> str:
    lines = [finished.outcome]
    lines += [
        f"{problem.place.line if problem.place else '-'}: {problem.message}" for problem in finished.problems
    ]
    for point in points:
        values = " ".join(f"{name}={value}" for name, value in point.values.items())
        marks = "".join("✓" if check.passed else "✗" for check in point.checks)
        timed = " ".join(launch.name for launch in point.launches)
        lines.append(" ".join(filter(None, [point.case or "timed", values, marks, timed])))
    return "\n".join(lines)


def check(source: str, kernel: Kernel, expected: str, **kernels: Kernel) -> None:
    finished, points, _ = run(source, kernel, **kernels)
    assert told(finished, points) == dedent(expected).strip("\n")


def double(x: Any, y: Any, n: int) -> None:
    y.copy_(x * 2)


def test_it_is_checked_timed_and_checked_again() -> None:
    finished, points, acted = run(SPEC, double)
    assert told(finished, points) == "ok\ntimed ✓✓ k"
    assert acted.launched == ["k", "timing", "k"]
    assert [item.when for item in points[0].checks] == ["first", "again"]
    assert points[0].footprint == 8000


def test_an_autotuned_kernel_is_tuned_on_memory_of_its_own() -> None:
    """Here tuning would add to `y` three times, and only the third is checked."""
    source = SPEC.replace("y = empty(n)", "y = zeros(n)").replace("x * 2", "x")
    _, points, acted = run(source, lambda x, y, n: y.add_(x), tuned=True)
    assert acted.launched == ["k", "k", "timing", "k"]
    assert [check.passed for check in points[0].checks] == [True, True]


def test_a_wrong_answer_is_told_at_its_line_and_not_timed() -> None:
    def wrong(x: Any, y: Any, n: int) -> None:
        y.copy_(x * 2)
        y[7] = 100

    finished, points, acted = run(SPEC, wrong)
    assert acted.launched == ["k"]
    first, *_ = told(finished, points).splitlines()[1:]
    assert first.startswith("3: wrong answer: y[7] is 100, expected ")
    assert first.endswith("; 1 of 1000 elements differ, the largest error is " + first.rpartition(" ")[2])
    assert finished.failure
    assert finished.failure.place
    assert finished.failure.place.line == 3


def test_what_was_not_written_is_found() -> None:
    check(
        SPEC.replace("randn(n)", "arange(0, n, dtype=float)"),
        lambda x, y, n: y[1:].copy_(x[1:] * 2),
        """
        wrong answer
        3: wrong answer: y[0] is nan, expected 0; 1 of 1000 elements differ, the largest error is 0
        timed ✗
        """,
    )


def test_a_kernel_that_computes_once_is_found_after_timing() -> None:
    kept: list[Any] = []

    def once(x: Any, y: Any, n: int) -> None:
        kept.append(kept[0] if kept else x * 2)
        y.copy_(kept[0])

    finished, points, _ = run(SPEC, once)
    assert finished.outcome == "wrong answer"
    assert told(finished, points).endswith("timed ✓✗ k")
    assert finished.failure
    assert finished.failure.message.endswith("; only when launched again with other inputs")


def test_cases_are_checked_and_not_timed_and_sweeps_are_both() -> None:
    source = SPEC.replace("n = 1000;", "n = sweep(256, 512);").replace("4, 256", "n / 256, 256")
    source = source.replace("    __global__", "    // orbit: case tail: n = 300\n    __global__")
    check(source, double, "ok\ntimed n=256 ✓✓ k\ntimed n=512 ✓✓ k\ntail n=300 ✓")


def test_a_write_outside_is_worse_than_a_wrong_answer() -> None:
    def beyond(x: Any, y: Any, n: int) -> None:
        torch.empty(0).set_(y.untyped_storage(), y.storage_offset() + n, (2,), (1,)).fill_(0)

    finished, points, _ = run(SPEC, beyond)
    assert finished.outcome == "runtime error"
    assert told(finished, points).splitlines()[1] == (
        "4: the kernel writes outside of y: 8 bytes, one of them 0 bytes after its end"
    )


def test_launches_go_in_order_and_see_each_other() -> None:
    source = """
        __global__ void first(const float* x, float* t) {}
        // orbit: x = randn(64); t = empty(64); y = empty(64)
        // orbit: launch first<<<1, 64>>>(x, t)
        // orbit: launch k<<<1, 64>>>(t, y)
        // orbit: expect y == x * 2 + 1
        __global__ void k(const float* t, float* y) {}
        """
    check(source, lambda t, y: y.copy_(t + 1), "ok\ntimed ✓✓ first k", first=lambda x, t: t.copy_(x * 2))


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("reference other<<<1, 64>>>(x, y)", "ok\ntimed ✓✓ k"),
        ("reference y == other<<<1, 64>>>(x, y)", "ok\ntimed ✓✓ k"),
    ],
)
def test_another_kernel_may_say_what_is_right(reference: str, message: str) -> None:
    source = f"""
        __global__ void other(const float* x, float* y) {{}}
        // orbit: x = randn(64); y = empty(64)
        // orbit: launch k<<<1, 64>>>(x, y)
        // orbit: {reference}
        __global__ void k(const float* x, float* y) {{}}
        """
    check(source, lambda x, y: y.copy_(x * 2), message, other=lambda x, y: y.copy_(x + x))
    finished, _, _ = run(source, lambda x, y: y.copy_(x * 2), other=lambda x, y: y.copy_(x * 3))
    assert finished.outcome == "wrong answer"


def test_within_is_what_the_author_allows() -> None:
    def rough(x: Any, y: Any, n: int) -> None:
        y.copy_(x * 2.01)

    check(SPEC.replace("x * 2\n", "x * 2 within 0.02\n"), rough, "ok\ntimed ✓✓ k")
    assert run(SPEC.replace("x * 2\n", "x * 2 within 0.001\n"), rough)[0].outcome == "wrong answer"


def test_what_does_not_fit_is_refused_before_anything_is_made() -> None:
    with pytest.raises(SpecError) as refused:
        run(SPEC.replace("n = 1000;", "n = 100000000;"), double, free=700 << 20)
    assert refused.value.fault.message == (
        "The inputs and the copies that kernels get take 1.604 GB (x alone 400 MB), and the GPU has 734 MB free."
    )
