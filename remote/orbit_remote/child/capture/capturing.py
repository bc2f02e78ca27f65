"""Makes a launch spec from a launch that was taken: values, what is expected, and the file from which both are
loaded.

All of it is found out by launching the kernel again, in the process of its driver, which has ended by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Protocol

from orbit_remote.child.capture import launch_watch, values, written_outputs
from orbit_remote.child.capture.launch_watch import Copies, Form, LaunchWatch, NotCapturedError, WatchedLaunch
from orbit_remote.child.capture.layouts import layout
from orbit_remote.child.capture.spec_text import SpecText
from orbit_remote.child.capture.values import TensorRecipe
from orbit_remote.child.capture.written_outputs import Roles
from orbit_remote.child.spec import as_captured
from orbit_remote.child.spec.trial import Backend, Gpu, Trial, Trials
from orbit_remote.child.spec.triton_backend import Triton
from orbit_remote.common import codec
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Job, KernelDefinition, SpecStart
from orbit_remote.spec import launch_spec, stored_tensors
from orbit_remote.spec.comment_scanner import lines_of
from orbit_remote.spec.dtypes import DTYPES
from orbit_remote.spec.launch_spec import EvaluatedSpec, SpecPoint
from orbit_remote.spec.stored_tensors import StoredTensor
from orbit_remote.spec.syntax_tree import SpecError
from orbit_remote.spec.values import Tensor, amount

_MOST_KEPT: Final = 64 << 20
"""Bytes of values that are stored as they were."""
_LAUNCHES: Final = 8
"""Launches from which the spread of an output is measured, whose order of adding is not fixed."""
_SPREAD: Final = 4
"""How many times that spread is allowed."""


def of_driver(torch: Any, job: Job, watch: LaunchWatch, gpu: Gpu) -> c.Captured:
    """Return the launch that the driver of a job has made, or why there is no launch spec for it. Never raises."""
    watch.settle()

    def made() -> c.Captured:
        if refused := watch.refusal():
            raise refused
        assert watch.taken
        form = _OfTriton(torch, job, watch.taken)
        remarks = ["no launch had the grid of the run before"] if watch.fell_back else []
        captured = Capturing(torch, job, watch.taken, form, gpu, remarks).captured()
        return replace(captured, relaunched_ns=watch.relaunched_ns)

    captured = without_failing(job, made)
    return replace(captured, launch=watch.taken.number if watch.taken else 0, seen=watch.seen)


def without_failing(job: Job, made: Callable[[], c.Captured]) -> c.Captured:
    """Return what `made` returns, or why it cannot."""
    try:
        return made()
    except NotCapturedError as why:
        refused = why
    except SpecError as error:
        refused = NotCapturedError(f"the launch spec would not run: {error.fault.message.rstrip('.')}")
    except Exception as error:  # noqa: BLE001 - of CUDA, torch or the kernel, which is launched on copies
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        refused = NotCapturedError(f"launching it again failed: {first[:200]}")
    kernel = job.definition.name if job.definition else job.kernel or "the kernel"
    return c.Captured(kernel, why=str(refused), remedy=refused.remedy)


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """The spec with one way to make its tensors, and its first trial, launched."""

    statements: tuple[str, ...]
    trials: Trials
    trial: Trial
    names: Mapping[str, str]
    """The name in the spec of each parameter's tensor."""
    hash: str

    def value(self, parameter: str) -> Tensor:
        value = self.trial.values[self.names.get(parameter, parameter)]
        assert isinstance(value, Tensor)
        return value

    def output(self, parameter: str, trial: Trial | None = None) -> Any:
        """Return torch's tensor in the memory that was launched on."""
        at = trial or self.trial
        value = at.values[self.names.get(parameter, parameter)]
        assert isinstance(value, Tensor)
        return at.memory.of(value)


class LanguageForm(Protocol):
    """The differences between captures of CUDA and of Triton."""

    remarks: Sequence[str]
    stored: Mapping[str, StoredTensor]
    """What the statements load beside the tensors that are passed."""
    bounded: bool
    """Whether the lengths of tensors were found out, and are confirmed by a launch on memory of that length."""

    def backend(self, checked: EvaluatedSpec) -> Backend: ...

    def statements(self, made: Mapping[str, TensorRecipe], same: Mapping[str, str]) -> list[str]: ...


class _OfTriton:
    bounded = False

    def __init__(self, torch: Any, job: Job, taken: WatchedLaunch) -> None:
        self._torch, self._job, self._taken = torch, job, taken
        self._tuned = launch_watch.tuned(taken.function)
        remarks: list[str] = []
        if self._tuned.configurations:
            known = taken.arguments | taken.options
            names = [
                name
                for each in self._tuned.configurations[:1]
                for name in each
                if known.get(name) is not None
            ]
            chosen = ", ".join(f"{name}={known[name]}" for name in names)
            remarks.append(f"autotuning had chosen {chosen}, and tunes again for this launch spec")
        self.remarks: Sequence[str] = remarks
        self.stored: Mapping[str, StoredTensor] = {}

    def backend(self, checked: EvaluatedSpec) -> Backend:  # noqa: ARG002 - a CUDA kernel's signature is in it
        return Triton(self._torch, self._job, _module(self._taken.function))

    def statements(self, made: Mapping[str, TensorRecipe], same: Mapping[str, str]) -> list[str]:
        return SpecText(self._taken, made, same, self._tuned).statements()


class Capturing:
    """Launches one taken launch again and again until its launch spec is known."""

    def __init__(
        self,
        torch: Any,
        job: Job,
        taken: WatchedLaunch,
        form: LanguageForm,
        gpu: Gpu,
        remarks: Sequence[str] = (),
    ) -> None:
        assert job.definition
        self._torch = torch
        self._job = job
        self._taken = taken
        self._form = form
        self._gpu = gpu
        self._kernel = job.definition.name
        self._file = file_name(job.path)
        self._stored: dict[str, StoredTensor] = {}
        self._output = ""
        self._remarks = [*remarks, *form.remarks]

    def captured(self) -> c.Captured:
        """Raises NotCapturedError, SpecError, and what launches raise."""
        if self._gpu.device == "cuda" and self._taken.device is not None:
            self._torch.cuda.set_device(self._taken.device)
        self._addresses()
        same = self._aliases()
        forms = {name: form for name, form in self._taken.forms.items() if name not in same}
        found = written_outputs.roles(self._torch, self._taken, forms, self._gpu.synchronize)
        if not found.outputs:
            raise NotCapturedError("it writes to none of its arguments, so there is nothing to compare")
        self._output = found.outputs[0]
        before = Copies(self._torch, self._taken)
        made = {name: self._made(name, form, before, found) for name, form in forms.items()}
        evaluated = self._with_sure_values(made, same, forms, found, before)
        if self._form.bounded:
            self._confirm(evaluated, forms, found, before)
        evaluated, expects, orderly = self._expected(evaluated, made, same, found)
        tensors = self._stored_of(made)
        for name, (key, _) in expects.items():
            tensors |= as_captured.parts(self._torch, key, evaluated.output(name))
        data = stored_tensors.written(tensors, {self._kernel: evaluated.hash})
        lines = [
            f'expect {name} == load("{self._file}", "{key}") as captured{within}'
            for name, (key, within) in expects.items()
        ]
        return c.Captured(
            self._kernel,
            (*evaluated.statements, *lines),
            file=self._file,
            data=codec.packed(data),
            launch=self._taken.number,
            random=tuple(name for name, each in made.items() if each.how == "random"),
            kept=tuple(name for name, each in made.items() if each.how == "kept"),
            orderly=orderly,
            remarks=tuple(self._remarks),
        )

    # -- what no launch spec can describe ---------------------------------------------------------

    def _addresses(self) -> None:
        """Check the integers in the launch's tensors. Raises NotCapturedError if one is an address of memory, which
        means nothing in another process.
        """
        wide = {
            name: form
            for name, form in self._taken.forms.items()
            if form.dtype in ("int64", "uint64") and self._taken.segments
        }
        copies = Copies(self._torch, self._taken) if wide else None
        for name, form in wide.items():
            assert copies
            numbers = copies.of(form).view(self._torch.int64) if 0 not in form.shape else None
            if numbers is not None and any(
                bool(((numbers >= begin) & (numbers < end)).any()) for begin, end in self._taken.segments
            ):
                raise NotCapturedError(
                    f"{name} holds addresses of memory, which a launch spec cannot describe"
                )
        for name, value in self._taken.arguments.items():
            if type(value) is int and any(begin <= value < end for begin, end in self._taken.segments):
                raise NotCapturedError(f"{name} is an address of memory, which a launch spec cannot describe")

    def _aliases(self) -> dict[str, str]:
        """Return the parameters that are given the tensor of an earlier one, by name. Raises NotCapturedError if two
        share a part.
        """
        same: dict[str, str] = {}
        known: dict[str, Form] = {}
        for name, form in self._taken.forms.items():
            for other, before in known.items():
                if form == before:
                    same[name] = other
                elif form.address < before.end and before.address < form.end and self._overlap(form, before):
                    raise NotCapturedError(
                        f"{other} and {name} share memory, each a part of it, which a launch spec cannot describe"
                    )
            if name not in same:
                known[name] = form
        return same

    def _overlap(self, one: Form, other: Form) -> bool:
        """Say whether two tensors in one stretch of memory share an element."""
        if one.size != other.size:
            return True
        begin, end = min(one.address, other.address), max(one.end, other.end)
        marks = self._torch.zeros(
            (end - begin) // one.size, dtype=self._torch.uint8, device=self._taken.device
        )
        first, second = (
            marks.as_strided(each.shape, each.strides, (each.address - begin) // each.size)
            for each in (one, other)
        )
        _single(first).fill_(1)
        return bool(second.any())

    # -- values -----------------------------------------------------------------------------------

    def _made(self, name: str, form: Form, before: Copies, found: Roles) -> TensorRecipe:
        own, tensor = layout(name, form), before.of(form)
        if name in found.fresh:
            return values.empty(form.dtype, own)
        if name in found.unread:
            return values.zeros(form.dtype, own)
        pattern = values.pattern(self._torch, tensor, form.dtype, own)
        if pattern:
            return pattern
        if tensor.is_floating_point():
            return values.random(self._torch, tensor, form.dtype, own)
        return self._kept(name, form, before)

    def _kept(self, name: str, form: Form, before: Copies) -> TensorRecipe:
        """Return the stored values as they were. Raises NotCapturedError if there are too many."""
        own, tensor = layout(name, form), before.of(form)
        dense = self._torch.zeros(own.extents, dtype=tensor.dtype, device=tensor.device)
        _single(own.of(dense)).copy_(_single(tensor))
        key = f"{self._kernel}.{name}"
        self._stored[key] = as_captured.stored(self._torch, dense)
        total = sum(len(each.data) for each in self._stored.values())
        if total > _MOST_KEPT:
            raise NotCapturedError(
                f"its values matter, and with {name} there are {amount(total)} of them: more than {amount(_MOST_KEPT)} are not stored",
                "name a smaller launch with --launch",
            )
        return values.kept(self._file, key, form.dtype, own)

    def _stored_of(self, made: Mapping[str, TensorRecipe]) -> dict[str, StoredTensor]:
        keys = {f"{self._kernel}.{name}" for name, each in made.items() if each.how == "kept"}
        return {key: each for key, each in self._stored.items() if key in keys} | dict(self._form.stored)

    def _with_sure_values(
        self,
        made: dict[str, TensorRecipe],
        same: dict[str, str],
        forms: Mapping[str, Form],
        found: Roles,
        before: Copies,
    ) -> _Evaluated:
        """Keep the floats that the kernel's control flow depends on, as far as outputs show it, and evaluate the
        spec. Changes `made`.
        """
        evaluated = self._evaluated(made, same, forms)
        loose = [name for name, each in made.items() if each.how == "random"]
        if not loose or self._flows_alike(found, forms, {n: evaluated.output(n) for n in found.outputs}):
            return evaluated
        guilty: list[str] = []
        for name in loose:
            copies = Copies(self._torch, self._taken)
            _single(copies.of(forms[name])).copy_(_single(evaluated.value(name).data))
            copies.launch()
            self._gpu.synchronize()
            if not self._flows_alike(found, forms, {n: copies.of(forms[n]) for n in found.outputs}):
                guilty.append(name)
        for wanted in (guilty or loose, loose):
            for name in wanted:
                made[name] = self._kept(name, forms[name], before)
            evaluated = self._evaluated(made, same, forms)
            if self._flows_alike(found, forms, {n: evaluated.output(n) for n in found.outputs}):
                break
        return evaluated

    def _confirm(
        self, evaluated: _Evaluated, forms: Mapping[str, Form], found: Roles, before: Copies
    ) -> None:
        """Launch the spec with the values that were captured. Raises NotCapturedError if it gives something else."""
        trial = evaluated.trials.make(SpecPoint(), 0)
        for name, form in forms.items():
            _single(evaluated.output(name, trial)).copy_(_single(before.of(form)))
        trial.launch()
        self._gpu.synchronize()
        for name in found.outputs:
            if not written_outputs.are_alike(
                self._torch, evaluated.output(name, trial), found.after.of(forms[name])
            ):
                raise NotCapturedError(
                    f"on memory of its own it writes something else to {name}: it reaches beyond what its pointers seem to span"
                )

    def _flows_alike(self, found: Roles, forms: Mapping[str, Form], outputs: Mapping[str, Any]) -> bool:
        """Say whether no integer and no count of NaN and infinities differs from those of the launch that was taken."""
        for name, output in outputs.items():
            first = found.after.of(forms[name])
            if not first.is_floating_point():
                if not written_outputs.same(self._torch, first, output):
                    return False
                continue
            for count in (self._torch.isnan, self._torch.isinf):
                if int(count(first.float()).sum()) != int(count(output.float()).sum()):
                    return False
        return True

    # -- the spec ---------------------------------------------------------------------------------

    def _evaluated(
        self, made: Mapping[str, TensorRecipe], same: Mapping[str, str], forms: Mapping[str, Form]
    ) -> _Evaluated:
        """Evaluate the spec. Raises NotCapturedError if the spec has an error, or makes other tensors; SpecError and
        what launches raise.
        """
        statements = self._form.statements(made, same)
        stored = stored_tensors.written(self._stored_of(made), {})
        # whatever is expected as captured makes random numbers portable; nothing is compared yet
        expected = f'expect {self._output} == load("{self._file}", "{self._kernel}") as captured'
        text, definition = above(self._job, [*statements, expected])
        job = replace(self._job, text=text, start=SpecStart(definition, {self._file: codec.packed(stored)}))
        checked = launch_spec.check(text, launch_spec.target_of(definition, self._job.language))
        if error := next((fault for fault in checked.faults if fault.severity == "error"), None):
            raise NotCapturedError(f"the launch spec would be wrong: {error.message.rstrip('.')}")
        trials = Trials(checked, job, self._form.backend(checked), self._gpu)
        point = SpecPoint()
        trials.tune(point)
        trial = trials.make(point, 0)
        for name, form in forms.items():
            value = trial.values.get(name)
            if not isinstance(value, Tensor) or value.shape != form.shape or not _steps_alike(value, form):
                raise NotCapturedError(f"{name} has strides that a launch spec cannot make")
        trial.launch()
        self._gpu.synchronize()
        return _Evaluated(
            tuple(statements),
            trials,
            trial,
            dict(same),
            launch_spec.inputs(checked.spec, point, trial.values),
        )

    def _expected(
        self, evaluated: _Evaluated, made: dict[str, TensorRecipe], same: Mapping[str, str], found: Roles
    ) -> tuple[_Evaluated, dict[str, tuple[str, str]], bool]:
        """Return the outputs that are expected, each with its key and its tolerance, and whether launches give the
        same bytes. Changes `made`.
        """
        forms = {name: form for name, form in self._taken.forms.items() if name not in same}
        again = evaluated.trials.make(SpecPoint(), 1)
        again.launch()
        self._gpu.synchronize()
        differing = self._differing(evaluated, again, found.outputs)
        unset = [name for name in differing if made[name].how == "empty"]
        if unset:  # other poison, another output: a part of it is not written
            for name in unset:
                made[name] = values.zeros(forms[name].dtype, layout(name, forms[name]))
            evaluated = self._evaluated(made, same, forms)
            again = evaluated.trials.make(SpecPoint(), 1)
            again.launch()
            self._gpu.synchronize()
            differing = self._differing(evaluated, again, found.outputs)
        expects: dict[str, tuple[str, str]] = {}
        spreads = self._spreads(evaluated, differing)
        for name in found.outputs:
            key = f"{self._kernel}.{name}" if made[name].how != "kept" else f"{self._kernel}.{name}.after"
            within = ""
            if name in differing:
                if not evaluated.output(name).is_floating_point():
                    self._remarks.append(f"{name} is not compared: its integers differ from launch to launch")
                    continue
                dtype = DTYPES[forms[name].dtype]
                within = f" within {dtype.rtol:.2g}, {max(dtype.atol, _SPREAD * spreads[name]):.2g}"
            expects[name] = key, within
        if not expects:
            raise NotCapturedError("all that it writes are integers which differ from launch to launch")
        return evaluated, expects, not differing

    def _differing(self, evaluated: _Evaluated, again: Trial, outputs: tuple[str, ...]) -> list[str]:
        return [
            name
            for name in outputs
            if not written_outputs.same(self._torch, evaluated.output(name), evaluated.output(name, again))
        ]

    def _spreads(self, evaluated: _Evaluated, names: list[str]) -> dict[str, float]:
        """Return how far apart the results of some launches on the same inputs lie at most."""
        spreads = dict.fromkeys(names, 0.0)
        for _ in range(_LAUNCHES - 1 if names else 0):
            again = evaluated.trials.make(SpecPoint(), 0)
            again.launch()
            self._gpu.synchronize()
            for name in names:
                one, other = (
                    each.to(self._torch.float64)
                    for each in (evaluated.output(name), evaluated.output(name, again))
                )
                apart = (one - other).abs()
                finite = apart[apart.isfinite()]
                spreads[name] = max(spreads[name], float(finite.max()) if finite.numel() else 0.0)
        return spreads


def above(job: Job, statements: Sequence[str]) -> tuple[str, KernelDefinition]:
    """Return a job's text with a spec of these statements, a line each, in place of what stands above its kernel, and
    where the kernel is then.
    """
    definition, mark = job.definition, "//" if job.language == "cuda" else "#"
    assert definition
    lines = lines_of(job.text)
    target = launch_spec.target_of(definition, job.language)
    old = set(launch_spec.check_lines(lines, target).spec.lines)
    start = definition.start_line
    first = lines[start] if start < len(lines) else ""
    indentation = first[: len(first) - len(first.lstrip())]
    before = [line for at, line in enumerate(lines[:start]) if at not in old]
    added = [f"{indentation}{mark} orbit: {statement}" for statement in statements]
    moved = len(added) - len(old)
    places = {name: getattr(definition, name) + moved for name in ("start_line", "line", "name_line")} | {
        "end_line": None if definition.end_line is None else definition.end_line + moved
    }
    return "\n".join([*before, *added, *lines[start:]]), replace(definition, **places)


def _module(function: Any) -> Any:
    """Return the present text of the file in which a kernel was defined."""
    return SimpleNamespace(**{str(name): value for name, value in function.fn.__globals__.items()})


def file_name(path: str) -> str:
    stem = "".join(
        each if (each.isalnum() and each.isascii()) or each in "_.+-" else "_" for each in Path(path).stem
    )
    return f"{stem.lstrip('.')[:100] or 'captured'}{stored_tensors.SUFFIX}"


def _single(view: Any) -> Any:
    """Return the elements of a view that may be expanded, each once."""
    return view[
        tuple(
            slice(0, 1) if step == 0 and extent > 1 else slice(None)
            for extent, step in zip(view.shape, view.stride(), strict=True)
        )
    ]


def _steps_alike(value: Tensor, form: Form) -> bool:
    pairs = zip(value.shape, value.strides, form.strides, strict=True)
    return all(extent == 1 or step == wanted for extent, step, wanted in pairs)
