"""KernelBench's contract: `ModelNew` must compute what `Model` computes, made and called with the same arguments.

It follows `src/kernelbench/eval.py` of github.com/ScalingIntelligence/KernelBench (as of 423217d, 2026-03-05): both
models are made with the seed 42, several trials have seeds drawn from it, and absolute and relative tolerance are the
same number. It differs in this: inputs keep the type that `get_inputs` gives them (there all become float32),
integers must be equal, each side gets inputs of its own, and both get the same seed before each call.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from orbit_remote.child.harness import tensor_data
from orbit_remote.child.harness.harness_case import ContractCase, ContractError, ExplainedCheck, described
from orbit_remote.child.spec import output_compare
from orbit_remote.child.spec.expectation import difference
from orbit_remote.child.user_module import UserFile
from orbit_remote.common import limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.contracts import harness_files
from orbit_remote.common.contracts.harness_files import AllowedDifference
from orbit_remote.spec.dtypes import Tolerance

SEED: Final = 42
TRIALS: Final = 5
"""`num_correct_trials` of KernelBench's scripts/run_and_check.py."""
_WIDE: Final = 1e-4
_NARROW: Final = 1e-2
"""`get_tolerance_for_precision`: for float32, and for float16 and bfloat16, after torchbench."""
_EARLIER: Final = 1e-2
"""What KernelBench allowed float32 up to its version 0.1."""


_OTHERWISE = "ModelNew made its parameters otherwise than Model; they have the same"
ADOPTED: Final = {
    "names": f"{_OTHERWISE} names and shapes, so Model's were loaded into it",
    "order": f"{_OTHERWISE} shapes in the same order, so Model's were loaded into it",
}
"""Remarks, by how parameters fit."""


class KernelBench:
    """The two models, made. Raises ContractError, or whatever the user's code raises. Each turn has other inputs of
    the same shapes. `trials` is with how many different data a benchmark is checked before it is timed.
    """

    name = "ModelNew"
    reference = "Model"
    trials = TRIALS

    def __init__(self, torch: Any, file: UserFile, module: Any, device: str) -> None:
        self._torch = torch
        self._device = device
        path = Path(file.path)
        made = model_class(torch, module, "ModelNew", path.name)
        source, text = module, file.text
        if not (hasattr(module, "Model") and hasattr(module, "get_inputs")):
            source = reference_module(path)
            text = regular_files.text(source.__file__, limits.SOURCE)
        self._within = harness_files.within(text)
        where = Path(source.__file__).name
        original = model_class(torch, source, "Model", where)
        if made is original:
            raise ContractError("ModelNew is Model itself: there is nothing to compare")
        if made.forward is original.forward:
            raise ContractError(
                "ModelNew takes its forward from Model: there is nothing to compare",
                "give ModelNew a forward of its own",
            )
        self._get_inputs: Any = getattr(source, "get_inputs", None)
        if not callable(self._get_inputs):
            raise ContractError(f"{where} has no function get_inputs that makes the arguments of a call")
        self._seeds = self._drawn()
        self._new = self._model(made, source)
        self._original = self._model(original, source)
        self._changed: set[str] = set()
        self.tests: tuple[ContractCase, ...] = ()
        self.benchmarks = (ContractCase("", {}),)

    def _drawn(self) -> list[int]:
        self._torch.manual_seed(SEED)
        # two more than trials: one for a second content while timing, one for the check after it
        return [int(self._torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(TRIALS + 2)]

    def _model(self, kind: Any, source: Any) -> Any:
        """Make a model. Its arguments are made with the same seed each time, in case a model changes them."""
        self._torch.manual_seed(SEED)
        wanted = getattr(source, "get_init_inputs", None)
        arguments: Any = wanted() if callable(wanted) else []
        arguments = tensor_data.moved(self._torch, arguments, self._device)
        if not isinstance(arguments, list | tuple | dict):
            raise ContractError(
                f"get_init_inputs returns {described(arguments)}; KernelBench's returns a list of arguments"
            )
        self._torch.manual_seed(SEED)
        with self._torch.no_grad():
            model = kind(**arguments) if isinstance(arguments, dict) else kind(*arguments)
            return model.to(device=self._device)

    def settle(self, turn: int) -> None:
        """Seed what draws random numbers in a call."""
        self._torch.manual_seed(self._seeds[turn % len(self._seeds)])

    def inputs(self, case: ContractCase, turn: int) -> Any:
        """Return inputs. They are made on the GPU if `get_inputs` lets torch choose the device: on the host gigabytes
        take seconds. Raises ContractError if `get_inputs` returns no list, and whatever it raises.
        """
        del case
        made: Any = None
        if self._device != "cpu":
            try:
                self.settle(turn)
                with self._torch.device(self._device):
                    made = self._get_inputs()
            except Exception:  # noqa: BLE001 - it may count on the host's memory; if it is wrong, it is wrong again below
                made = None
        if made is None:
            self.settle(turn)
            made = self._get_inputs()
        if not isinstance(made, list | tuple):
            raise ContractError(
                f"get_inputs returns {described(made)}; KernelBench's returns a list of arguments"
            )
        return tensor_data.moved(self._torch, list(cast("list[Any]", made)), self._device)

    def call(self, data: Any) -> Any:
        """Call the candidate on inputs that it may write to."""
        return self._new(*data)

    def call_reference(self, data: Any) -> Any:
        return self._original(*data)

    def changes(self) -> set[str] | None:
        """Return the names of inputs that Model changes itself, so that ModelNew may change them too."""
        return self._changed

    def adopt(self) -> str:
        """Give ModelNew the parameters of Model, if it made others that these fit. Return a remark about it, "" if it
        did not.
        """
        return ADOPTED.get(adopted(self._torch, self._new, self._original), "")

    # -- judging ------------------------------------------------------------------------------------

    def judge(self, data: Any, output: Any, turn: int) -> list[ExplainedCheck]:
        """Judge an output. `data` are the inputs as they were before the call; they are not changed. Raises
        ContractError if Model returns no tensor.
        """
        given = tensor_data.cloned(self._torch, data)
        self.settle(turn)
        expected = self.call_reference(given)
        self._changed |= set(tensor_data.changed(self._torch, data, given, "inputs"))
        wanted = dict(tensor_data.leaves(self._torch, expected, "output"))
        leaves = dict(tensor_data.leaves(self._torch, output, "output"))
        if not wanted:
            raise ContractError(
                f"Model returns {described(expected)}, which contains no tensor to compare with"
            )
        if list(wanted) != list(leaves):
            return [_refuted("output", described(output), described(expected))]
        pairs = [compared(self._torch, name, leaves[name], wanted[name], self._within) for name in wanted]
        return [
            judged
            if judged.check.passed or not judged.check.elements
            else replace(judged, hint=judged.hint or self._weights())
            for judged in pairs
        ]

    def _weights(self) -> str:
        """Return a sentence if the two models do not have the same parameters. They are made with one seed."""
        mine, theirs = (list(model.named_parameters()) for model in (self._new, self._original))
        same = len(mine) == len(theirs) and all(
            tensor_data.same_bytes(self._torch, first, other)
            for (_, first), (_, other) in zip(mine, theirs, strict=True)
        )
        if same:
            return ""
        shown = [", ".join(name for name, _ in each[:4]) or "none" for each in (mine, theirs)]
        return (
            f"the models' parameters differ (ModelNew: {shown[0]}; Model: {shown[1]}): both are made with the seed {SEED}, so that "
            "the same layers made in the same order are equal"
        )


def adopted(torch: Any, mine: Any, theirs: Any) -> str:
    """Load the parameters and buffers of the model `theirs` into `mine` if they fit and differ: by name, or in their
    order if names differ. Return how they fit, a word of `ADOPTED`; "" if nothing was loaded.
    """
    own, other = (dict(model.state_dict()) for model in (mine, theirs))
    forms = [[(tuple(value.shape), value.dtype) for value in each.values()] for each in (own, other)]
    if not own or sorted(map(str, forms[0])) != sorted(map(str, forms[1])):
        return ""
    by_name = own.keys() == other.keys() and all(
        own[name].shape == other[name].shape and own[name].dtype == other[name].dtype for name in own
    )
    if not by_name and forms[0] != forms[1]:
        return ""
    values = [other[name] for name in own] if by_name else [*other.values()]
    if all(
        tensor_data.same_bytes(torch, first, value) for first, value in zip(own.values(), values, strict=True)
    ):
        return ""
    with torch.no_grad():
        for first, value in zip(own.values(), values, strict=True):
            first.copy_(value)
    return "names" if by_name else "order"


def compared(
    torch: Any, name: str, actual: Any, expected: Any, within: AllowedDifference | None = None
) -> ExplainedCheck:
    """Compare one output, by the reference's own tolerance or else by KernelBench's."""
    if type(actual) not in (torch.Tensor, torch.nn.Parameter):
        return _refuted(name, f"a {type(actual).__name__}", "a plain torch.Tensor")
    for what in ("shape", "dtype", "device"):
        mine, theirs = getattr(actual, what), getattr(expected, what)
        if mine != theirs:
            shown = [str(tuple(value)) if what == "shape" else str(value) for value in (mine, theirs)]
            return _refuted(name, f"of {what} {shown[0]}", f"of {what} {shown[1]}")
    if expected.is_complex():
        actual, expected = torch.view_as_real(actual), torch.view_as_real(expected)
    # NaN never passes there, as with torch.allclose; the comparison here would take it for equal
    wide = expected.float() if expected.is_floating_point() and expected.itemsize == 1 else expected
    if bool(wide.isnan().any()):  # fp8 has no isnan of its own
        return _refuted(name, "compared with NaN", "without NaN: Model itself computes NaN for these inputs")
    allowed = tolerance(expected, within)
    bound = _bound(expected)
    result = output_compare.compare(torch, actual, expected, Tolerance(allowed.rtol, allowed.atol))
    check = c.Check(
        f"{name} of ModelNew == Model", _passes(result, actual, allowed), None, result.elements, result.differing,
        result.index, result.actual, result.expected, result.error, allowed.rtol, allowed.atol,
    )  # fmt: skip
    if check.passed:
        return ExplainedCheck(
            check,
            hint=output_compare.zeros_pass(torch, name, expected, Tolerance(allowed.rtol, allowed.atol)),
        )
    if not result.differing:
        return ExplainedCheck(
            check,
            f"an element of {name} is {result.error:.3g} from what was expected, the limit is {allowed.cap:g}",
        )
    hint = ""
    if within is None and bound and bound < _EARLIER:
        looser = output_compare.compare(torch, actual, expected, Tolerance(_EARLIER, _EARLIER))
        if looser.differing == 0:
            hint = f"within {_EARLIER:g}, which KernelBench allowed up to version 0.1, it is right"
    return ExplainedCheck(check, difference(check, name), hint)


def tolerance(expected: Any, within: AllowedDifference | None) -> AllowedDifference:
    """Return the reference's own tolerance or else KernelBench's, by the type. Integers must be equal."""
    bound = _bound(expected)
    return within if within and bound else AllowedDifference(bound, bound)


def _bound(expected: Any) -> float:
    if not expected.is_floating_point():
        return 0.0
    return _WIDE if expected.itemsize > 2 else _NARROW


def _passes(result: output_compare.Comparison, actual: Any, allowed: AllowedDifference) -> bool:
    """Say whether a comparison passes. Elements that need not match have to be numbers."""
    if allowed.cap is not None and (result.error or 0.0) > allowed.cap:
        return False
    if not result.differing:
        return True
    wide = actual.float() if actual.is_floating_point() and actual.itemsize == 1 else actual
    return result.differing <= (1 - allowed.matched) * result.elements and bool(wide.isfinite().all())


def _refuted(name: str, actual: str, expected: str) -> ExplainedCheck:
    check = c.Check(f"{name} of ModelNew == Model", False, actual=actual, expected=expected)
    return ExplainedCheck(check, f"{name} is {actual}, expected {expected}")


def model_class(torch: Any, module: Any, name: str, where: str) -> Any:
    """Return the module's class of this name. Raises ContractError if there is none, or if it is not a
    torch.nn.Module.
    """
    value = getattr(module, name, None)
    if value is None:
        raise ContractError(f"{where} has no class {name}")
    if not (isinstance(value, type) and issubclass(value, torch.nn.Module)):
        raise ContractError(f"{name} in {where} is not a torch.nn.Module")
    return value


def reference_module(path: Path) -> Any:
    """Return the module with Model, from the file beside the open one. Raises ContractError, or what executing it
    raises.
    """
    file = harness_files.model_file(path)
    if file is None:
        names = " or ".join(candidate.name for candidate in harness_files.model_files(path))
        raise ContractError(
            f"{path.name} has ModelNew, and neither Model nor get_inputs to check it against",
            f"define or import both in {path.name}, or put them beside it in {names}",
        )
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module
