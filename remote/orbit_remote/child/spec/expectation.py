"""Checks a launch against its spec: outputs, references, and no write outside of its buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from orbit_remote.child.spec import as_captured, output_compare
from orbit_remote.child.spec.device_memory import POISONS, Memory, Trespass
from orbit_remote.child.spec.output_compare import Comparison
from orbit_remote.child.spec.trial import Backend, Gpu, Trial, tensors
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.spec import launch_spec, stored_tensors
from orbit_remote.spec.dtypes import Tolerance, tolerance
from orbit_remote.spec.interpreter import SpecScope, evaluate
from orbit_remote.spec.launch_spec import SpecPoint
from orbit_remote.spec.syntax_tree import (
    Call,
    Expect,
    LaunchSpec,
    Reference,
    SpecError,
    SpecLaunch,
    SpecSpan,
    Text,
)
from orbit_remote.spec.values import Scalar, Tensor, Value

When = Literal["first", "again"]


class SpecVerdict:
    """The verdict on all points of one job. `failure` is the worst that was found, None while all is well."""

    def __init__(self, job: Job, spec: LaunchSpec, backend: Backend, gpu: Gpu) -> None:
        self.problems: list[c.Problem] = []
        self.failure: c.Failure | None = None
        self.remarks: dict[str, None] = {}
        """What could not be compared, and why."""
        self._job = job
        self._lines = job.text.splitlines()
        self._spec = spec
        self._backend = backend
        self._gpu = gpu

    def check(self, trial: Trial, point: SpecPoint, when: When) -> tuple[tuple[c.Check, ...], bool]:
        """Launch once and look: what was compared, and whether nothing was wrong."""
        trial.launch(before=lambda: self._gpu.fill_shared(("first", "again").index(when)))
        self._gpu.synchronize()
        trial.memory.look()
        trespasses = trial.memory.trespasses()
        for trespass in trespasses:
            self._outside(trespass, point)
        after = {
            name: replace(value, data=trial.memory.of(value)) if isinstance(value, Tensor) else value
            for name, value in trial.values.items()
        }
        checks: list[c.Check] = []
        for expect in self._spec.expects:
            compared = self._as_captured if expect.captured else self._expected
            if check := compared(expect, trial, after, point, when):
                checks.append(check)
        for reference in self._spec.references:
            checks += self._referenced(reference, trial, after, point, when)
        return tuple(checks), not trespasses and all(check.passed for check in checks)

    def _expected(
        self, expect: Expect, trial: Trial, after: Mapping[str, Value], point: SpecPoint, when: When
    ) -> c.Check:
        actual = evaluate(expect.actual, trial.world, SpecScope(after))
        expected = evaluate(expect.expected, replace(trial.world, exact=True), SpecScope(trial.values))
        assert isinstance(actual, Tensor)
        terms = 1
        if isinstance(expected, Tensor):
            data, terms = expected.data, expected.terms
        else:
            assert isinstance(expected, Scalar)
            whole = expected.integral or isinstance(expected.value, bool)
            kind = self._gpu.torch.int64 if whole else self._gpu.torch.float64
            data = self._gpu.torch.tensor(expected.value, dtype=kind, device=self._gpu.device)
        allowed = self._tolerance(expect, actual, terms, trial)
        name = self._text(expect.actual.span)
        return self._compared(
            name, self._text(expect.span), expect.span, actual.data, data, allowed, point, when
        )

    def _as_captured(
        self, expect: Expect, trial: Trial, after: Mapping[str, Value], point: SpecPoint, when: When
    ) -> c.Check | None:
        """Compare an output with the captured one. Return None if the spec makes other inputs than the captured ones:
        the result for these is not stored.
        """
        call = expect.expected
        assert isinstance(call, Call)
        name, key = (each.value for each in call.arguments if isinstance(each, Text))
        actual = evaluate(expect.actual, trial.world, SpecScope(after))
        assert isinstance(actual, Tensor)
        try:
            file = stored_tensors.opened(trial.world.folder, name, trial.world.stored)
            if file.notes.get(key.partition(".")[0]) != launch_spec.inputs(self._spec, point, trial.values):
                which = "other values" if point.replaced else "the spec's inputs"
                text = (
                    f"{self._text(expect.actual.span)} is not compared: {which} are not those of the capture"
                )
                self.remarks[text if point.replaced else f"{text}; capture the launch again"] = None
                return None
            terms = max((max(each.shape, default=1) for each, _ in tensors(trial.bound)), default=1)
            allowed = self._tolerance(expect, actual, terms, trial)
            comparison = as_captured.compare(self._gpu.torch, actual.data, file, key, allowed)
        except OSError as error:
            raise SpecError(call.span, f"{name} cannot be read: {error.strerror or error}.") from None
        except ValueError as error:
            text = str(error)
            raise SpecError(call.span, f"{text if text.startswith(name) else f'{name} {text}'}.") from None
        return self._checked(
            comparison,
            allowed,
            self._text(expect.actual.span),
            self._text(expect.span),
            expect.span,
            point,
            when,
        )

    def _tolerance(
        self, directive: Expect | Reference, actual: Tensor, terms: int, trial: Trial
    ) -> Tolerance:
        if directive.within is None:
            return tolerance(actual.dtype, terms)
        bounds = [
            float(value.value) if node is not None and isinstance(value := evaluate(node, trial.world, SpecScope(trial.values)), Scalar) else 0.0
            for node in (directive.within.rtol, directive.within.atol)
        ]  # fmt: skip
        return Tolerance(*bounds)

    def _referenced(
        self, reference: Reference, trial: Trial, after: Mapping[str, Value], point: SpecPoint, when: When
    ) -> list[c.Check]:
        """Compare the outputs with what a function returns, or with what another kernel leaves in them."""
        if reference.launch is not None:
            names, right = self._of_kernel(reference, reference.launch, trial)
        else:
            results = self._backend.results(reference, trial.values, trial.world)
            names = [name.name for name in reference.outputs] or trial.written
            if len(results) != len(names):
                message = (
                    f"This returns {len(results)} tensors for the {len(names)} outputs {', '.join(names)}."
                )
                raise SpecError(reference.span, message)
            right = dict(zip(names, results, strict=True))
        # a kernel or a function adds in an order of its own: as many terms as the longest input is wide
        terms = max((max(t.shape, default=1) for t, _ in tensors(trial.bound)), default=1)
        checks: list[c.Check] = []
        for name in names:
            actual = after[name]
            assert isinstance(actual, Tensor)
            data = right[name]
            if tuple(data.shape) != actual.shape:
                message = (
                    f"The reference gives {name} the shape {tuple(data.shape)}, the kernel {actual.shape}."
                )
                raise SpecError(reference.span, message)
            if data.dtype.is_floating_point:
                data = data.to(self._gpu.torch.float64)
            allowed = self._tolerance(reference, actual, terms, trial)
            what = self._text(reference.span) + (f": {name}" if len(names) > 1 else "")
            checks.append(self._compared(name, what, reference.span, actual.data, data, allowed, point, when))
        return checks

    def _of_kernel(
        self, reference: Reference, launch: SpecLaunch, trial: Trial
    ) -> tuple[list[str], dict[str, Any]]:
        bound = self._backend.bind(launch, trial.values, trial.world)
        memory = Memory(self._gpu.torch, tensors((bound,)), POISONS[0])
        bound.ready(memory.of).launch()
        self._gpu.synchronize()
        both = [name for name in trial.written if name in bound.outputs]
        names = [name.name for name in reference.outputs] or both
        values: dict[str, Any] = {}
        for name in names:
            value = trial.values.get(name)
            if not isinstance(value, Tensor) or name not in bound.outputs:
                raise SpecError(reference.span, f"'{name}' is not an output of {launch.kernel.name}.")
            values[name] = memory.of(value)
        if not values:
            raise SpecError(reference.span, f"{launch.kernel.name} writes no tensor that the kernel writes.")
        return names, values

    def _compared(
        self,
        name: str,
        what: str,
        span: SpecSpan,
        actual: Any,
        expected: Any,
        allowed: Tolerance,
        point: SpecPoint,
        when: When,
    ) -> c.Check:
        comparison = output_compare.compare(self._gpu.torch, actual, expected, allowed)
        if not comparison.differing and (
            lax := output_compare.zeros_pass(self._gpu.torch, name, expected, allowed)
        ):
            self.remarks[f"{lax}; state a smaller one with `within`"] = None
        return self._checked(comparison, allowed, name, what, span, point, when)

    def _checked(
        self,
        comparison: Comparison,
        allowed: Tolerance,
        name: str,
        what: str,
        span: SpecSpan,
        point: SpecPoint,
        when: When,
    ) -> c.Check:
        check = c.Check(
            what, comparison.differing == 0, span.place(self._job.path), comparison.elements, comparison.differing, comparison.index, comparison.actual,
            comparison.expected, comparison.error, allowed.rtol, allowed.atol, when,
        )  # fmt: skip
        if not check.passed:
            self._wrong(check, name, point)
        return check

    # -- what is wrong ------------------------------------------------------------------------------

    def _wrong(self, check: c.Check, name: str, point: SpecPoint) -> None:
        text = f"wrong answer{_where(point)}: {difference(check, name)}"
        self._say(c.Problem("error", text, "orbit", check.place), "wrong answer")

    def _outside(self, trespass: Trespass, point: SpecPoint) -> None:
        where = (
            f"{trespass.offset} bytes after its end"
            if trespass.offset >= 0
            else f"{-trespass.offset} bytes before its start"
        )
        many = "a byte" if trespass.bytes == 1 else f"{trespass.bytes} bytes"
        text = f"the kernel writes outside of {trespass.name}{_where(point)}: {many}, one of them {where}"
        self._say(c.Problem("error", text, "orbit", definition(self._job)), "runtime error")

    def _say(self, problem: c.Problem, category: c.Outcome) -> None:
        if any(known.place == problem.place and known.message == problem.message for known in self.problems):
            return
        self.problems.append(problem)
        if self.failure is None or (self.failure.category == "wrong answer" and category == "runtime error"):
            self.failure = c.Failure(category, problem.message, place=problem.place)

    def _text(self, span: SpecSpan) -> str:
        """Return the spec's own words."""
        line = self._lines[span.line] if span.line < len(self._lines) else ""
        return line[span.column : span.end_column if span.end_line == span.line else None].strip()


def difference(check: c.Check, name: str) -> str:
    """Say what a failed comparison shows, in a few words. `name` is the output as the author writes it."""
    index = ", ".join(map(str, check.index))
    at = f"{name}[{index}]" if index else name
    many = f"{check.differing} of {check.elements} elements differ" if check.elements > 1 else "it differs"
    largest = "" if check.error is None else f", the largest error is {check.error:.3g}"
    later = "; only when launched again with other inputs" if check.when == "again" else ""
    return f"{at} is {check.actual}, expected {check.expected}; {many}{largest}{later}"


def definition(job: Job) -> c.Place:
    """Return the kernel's name at the place of its definition."""
    assert job.definition is not None
    end = job.definition.name_end
    return c.Place(job.path, job.definition.name_line + 1, end - len(job.definition.name) + 1, end + 1)


def _where(point: SpecPoint) -> str:
    return f" (case {point.case})" if point.case else ""
