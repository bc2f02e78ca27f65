"""Launches a spec's Triton kernels through the JIT, as their author would launch them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, get_args

from orbit_remote.child import triton_instances
from orbit_remote.child.spec.launches import BoundLaunch, LaunchFacts, Memory, Ready
from orbit_remote.child.triton_assumptions import layers
from orbit_remote.child.user_module import UserFile
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Tried
from orbit_remote.common.requests import Job, Level
from orbit_remote.counters.profiles import LaunchedCode
from orbit_remote.spec import rules as spec_rules
from orbit_remote.spec.interpreter import SpecScope, evaluate
from orbit_remote.spec.interpreter import grid as grid_of
from orbit_remote.spec.signature import Signature
from orbit_remote.spec.syntax_tree import (
    Assignment,
    Call,
    Lambda,
    Name,
    Reference,
    SpecError,
    SpecLaunch,
    SpecSpan,
)
from orbit_remote.spec.values import Dim3, Scalar, Tensor, TensorMap, Value, World, shown

_OWN_NAMES = {"bool": "int1", "float8_e4m3fn": "float8e4nv", "float8_e5m2": "float8e5"}
"""Types that triton.language calls otherwise than torch."""


class Triton:
    """The kernels of a file, which is executed here as an import would execute it."""

    def __init__(self, torch: Any, job: Job, module: Any = None) -> None:
        """Load the kernels. `module` is the file's if it has been executed. Raises whatever the file raises."""
        self._torch = torch
        self._module = module
        if module is not None:
            return
        file = UserFile(job.path, job.text, job.directory, job.arguments)
        file.prepare()
        self._module = file.execute(file.module_name())

    def signature(self, launch: SpecLaunch, values: Mapping[str, Value]) -> Signature | None:  # noqa: ARG002
        """Return None: Python's own text says it all."""
        return None

    def set_symbol(self, assignment: Assignment, values: Mapping[str, Value], world: World) -> None:  # noqa: ARG002
        """Refuse a symbol: only CUDA has them. Always raises SpecError."""
        raise SpecError(assignment.span, "Only CUDA has symbols.")

    def tunes(self, launch: SpecLaunch) -> bool:
        """Say whether a first launch tries configurations, on the very buffers that it is given."""
        return any(hasattr(layer, "configs") for layer in layers(self._kernel(launch)))

    def bind(self, launch: SpecLaunch, values: Mapping[str, Value], world: World) -> BoundLaunch:
        kernel = self._kernel(launch)
        scope = SpecScope(values)
        positional = [(node.span, evaluate(node, world, scope)) for node in launch.arguments]
        keywords = {
            keyword.name: (keyword.value.span, evaluate(keyword.value, world, scope))
            for keyword in launch.keywords
        }
        tensors: list[tuple[Tensor, bool]] = []
        for _, value in (*positional, *keywords.values()):
            if isinstance(value, TensorMap):
                tensors.append((value.tensor, True))
            elif isinstance(value, Tensor):
                tensors.append((value, True))
        extents = self._grid(launch, values, world)

        def ready(memory: Memory) -> Ready:
            arguments = [passed(value, memory, span) for span, value in positional]
            options = {name: passed(value, memory, span) for name, (span, value) in keywords.items()}
            return _TritonLaunch(kernel, extents, arguments, options)

        return BoundLaunch(launch.span, tuple(tensors), ready)

    def results(self, reference: Reference, values: Mapping[str, Value], world: World) -> tuple[Any, ...]:
        """Return what the function of a `reference` returns for copies of the spec's values. Raises SpecError."""
        assert reference.call is not None
        function = self._function(reference.call)
        if isinstance(reference.call, Call):
            scope = SpecScope(values)
            arguments = [evaluate(node, world, scope) for node in reference.call.arguments]
            keywords = {each.name: evaluate(each.value, world, scope) for each in reference.call.keywords}
        else:
            wanted = list(inspect.signature(function).parameters.values())
            missing = [each.name for each in wanted if each.name not in values and each.default is each.empty]
            if missing:
                message = f"{function.__name__} takes '{missing[0]}', and the spec assigns no such name."
                raise SpecError(reference.call.span, message)
            arguments = []
            keywords = {each.name: values[each.name] for each in wanted if each.name in values}

        def copied(tensor: Tensor) -> Any:
            return tensor.data.clone()

        given = [passed(value, copied, reference.call.span) for value in arguments]
        named = {name: passed(value, copied, reference.call.span) for name, value in keywords.items()}
        made: Any = function(*given, **named)
        results: tuple[Any, ...] = (made,) if isinstance(made, self._torch.Tensor) else tuple(made)
        if not all(isinstance(each, self._torch.Tensor) for each in results):
            raise SpecError(reference.call.span, f"{function.__name__} does not return tensors.")
        return results

    # -- the file's own objects ---------------------------------------------------------------------

    def _kernel(self, launch: SpecLaunch) -> Any:
        function = getattr(self._module, launch.kernel.name, None)
        if function is None or not hasattr(function, "__getitem__"):
            raise SpecError(
                launch.kernel.span, f"The file has no kernel '{launch.kernel.name}' once it is run."
            )
        return function

    def _function(self, call: Name | Call) -> Any:
        place = call.span if isinstance(call, Name) else call.name_span
        function = getattr(self._module, call.name, None)
        if not callable(function):
            raise SpecError(place, f"The file has no function '{call.name}' once it is run.")
        return function

    # -- the grid -------------------------------------------------------------------------------------

    def _grid(self, launch: SpecLaunch, values: Mapping[str, Value], world: World) -> Any:
        """Return the extents, or a function of the constants that tuning has chosen."""
        node = launch.grid
        assert node is not None
        if not isinstance(node, Lambda):
            return spec_rules.extents(
                evaluate(node, world, SpecScope(values)), node.span, "grid", spec_rules.MOST_GRID
            )

        def extents(constants: Mapping[str, Any]) -> tuple[int, ...]:
            known: dict[str, Value] = {}
            for name, value in constants.items():
                kind = type(value).__name__
                if kind in ("int", "float", "bool"):
                    known[name] = Scalar(value, kind)
            described = World("triton", work=world.work)
            value = grid_of(node, described, SpecScope(values), known, tuned=False)
            return spec_rules.extents(value, node.span, "grid", spec_rules.MOST_GRID)

        return extents


@dataclass
class _TritonLaunch:
    kernel: Any
    grid: tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]
    arguments: list[Any]
    options: dict[str, Any]
    compiled: Any = None
    chosen: Any = field(default=None)

    def launch(self) -> None:
        self.compiled = self.kernel[self.grid](*self.arguments, **self.options)

    def facts(self) -> LaunchFacts:
        return replace(facts_of(layers(self.kernel)[-1], self.compiled), tuning=tuning(self.kernel))

    def code(self) -> LaunchedCode:
        return code_of(self.compiled)


def facts_of(function: Any, compiled: Any) -> LaunchFacts:
    """Return the known facts of a JIT function that was launched as Triton `compiled` it."""
    resources = triton_instances.instance(function, compiled)
    return LaunchFacts(
        resources.symbol,
        resources.name,
        block=(resources.threads or 1, 1, 1),
        dynamic_shared=resources.dynamic_shared,
        resources=resources,
        constants=resources.constants,
    )


def code_of(compiled: Any) -> LaunchedCode:
    """Return the machine code that Triton compiled, and the texts that it was compiled from."""
    made = compiled.asm  # `[level]` would make Triton disassemble what it has not
    texts = {
        level: text.encode("utf-8", "surrogateescape")
        for level in get_args(Level)
        if isinstance(text := made.get(level), str)
    }
    return LaunchedCode(bytes(made["cubin"]), texts)


def passed(value: Value, memory: Memory, span: SpecSpan) -> Any:
    """Return what a launch is given for a value of its spec. Raises SpecError if nothing can be."""
    match value:
        case Tensor():
            return memory(value)
        case TensorMap():
            descriptors: Any = importlib.import_module("triton.tools.tensor_descriptor")
            return descriptors.TensorDescriptor.from_tensor(memory(value.tensor), list(value.box))
        case Scalar():
            return value.value
        case tuple():
            return tuple(passed(element, memory, span) for element in value)
        case Lambda() | Dim3():
            raise SpecError(span, f"{shown(value).capitalize()} cannot be passed to a kernel.")
        case None | str():
            return value
        case _:
            return getattr(importlib.import_module("triton.language"), _OWN_NAMES.get(value.name, value.name))


def tuning(kernel: Any) -> tuple[Tried, ...]:
    """Return what autotuning tried last, the fastest first. Return nothing if it tried nothing in this process."""
    trials: list[Tried] = []
    for layer in layers(kernel):
        tried: Mapping[Any, Any] = getattr(layer, "configs_timings", None) or {}
        best = getattr(layer, "best_config", None)
        for config, timing in tried.items():
            milliseconds = float(timing[0] if hasattr(timing, "__getitem__") else timing)
            # Triton gives a configuration that does not run an infinite time
            median = milliseconds * 1e6 if milliseconds < float("inf") else None
            trials.append(Tried(str(config), median, config is best or config == best))
    return tuple(sorted(trials, key=lambda each: each.median if each.median is not None else float("inf")))
