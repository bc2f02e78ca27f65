"""Compiles Triton kernels as the launch specs of their file launch them, on a machine that may have no GPU.

Triton's own JIT binds and specialises the arguments. Tensors are torch's on its `meta` device: shape, strides, dtype
and offset without memory, at addresses as aligned as those of a run's tensors.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any

from orbit_remote.child.spec import triton_backend
from orbit_remote.child.triton_assumptions import layers, outermost
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import HostLaunch
from orbit_remote.spec import launch_spec
from orbit_remote.spec.comment_scanner import SpecTarget, lines_of
from orbit_remote.spec.dtypes import DType
from orbit_remote.spec.interpreter import SpecScope, evaluate
from orbit_remote.spec.syntax_tree import SpecLaunch, SpecSpan
from orbit_remote.spec.values import Tensor, Value, World, contiguous

_PASSED_OVER = ("CompileTimeAssertionFailure", "OutOfResources", "PTXASError")
"""Errors of a configuration that the autotuner goes past, as long as another compiles."""
_TRIED = 8
"""Of so many configurations for each that is wanted it may go past."""


@dataclass(frozen=True, slots=True)
class SpecifiedLaunch:
    """A launch of a faultless spec, and the values of the spec's names in its first point."""

    launch: SpecLaunch
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Read:
    """What was read. `launches` are by the kernel's name. `faulty` has the line, from 1, of the first fault in a
    kernel's own spec.
    """

    launches: Mapping[str, tuple[SpecifiedLaunch, ...]]
    faulty: Mapping[str, int]

    def known_as(self, alias: str, name: str) -> Read:
        """Return the same with everything under `alias` under the name of the function from which it is made."""
        launches, faulty = dict(self.launches), dict(self.faulty)
        if alias in launches:
            launches[name] = launches[alias]
        if alias in faulty:
            faulty[name] = faulty[alias]
        return Read(launches, faulty)


class _Meta(World):
    def make(
        self,
        span: SpecSpan,
        shape: Sequence[int],
        dtype: DType,
        run: Callable[[], Any],
        terms: int = 1,
        *,
        unset: bool = False,
    ) -> Tensor:
        """Make a tensor without `run`: `meta` has no values, and for a `randn` there torch imports its compiler,
        which takes seconds.
        """
        del run
        self.bound(span, shape, dtype)
        data = self.torch.empty(tuple(shape), dtype=self.type(dtype), device="meta")
        return Tensor(tuple(shape), dtype, contiguous(shape), data, terms, unset)


def read(text: str, tree: ast.Module) -> Read:
    """Read the launches of every spec in a file. A kernel's own spec says how it is launched, else any other spec
    does.
    """
    own: dict[str, tuple[SpecifiedLaunch, ...]] = {}
    variants: dict[str, tuple[SpecifiedLaunch, ...]] = {}
    faulty: dict[str, int] = {}
    lines = lines_of(text)
    for target in _targets(lines, tree):
        checked = launch_spec.check(text, target)
        errors = [fault for fault in checked.faults if fault.severity == "error"]
        if errors:
            faulty[target.name] = errors[0].span.line + 1
        if errors or not checked.spec.launches:
            continue
        values = _values(checked)
        by_name: dict[str, tuple[SpecifiedLaunch, ...]] = {}
        for launch in checked.spec.launches:
            by_name[launch.kernel.name] = (
                *by_name.get(launch.kernel.name, ()),
                SpecifiedLaunch(launch, values),
            )
        for name, launches in by_name.items():
            (own if name == target.name else variants).setdefault(name, launches)
    return Read(variants | own, faulty)


def of_host(text: str, tree: ast.Module, launch: HostLaunch) -> tuple[SpecifiedLaunch, ...]:
    """Return a launch of host code as if it stood above its kernel as a launch spec. Return nothing if that has a
    fault.
    """
    lines = lines_of(text)
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == launch.kernel
    ]
    if not functions:
        return ()
    function = functions[-1]
    first = min([function.lineno, *(node.lineno for node in function.decorator_list)]) - 1
    indentation = " " * function.col_offset
    written = "\n".join(
        [
            *lines[:first],
            *(f"{indentation}# orbit: {statement}" for statement in launch.statements),
            *lines[first:],
        ]
    )
    host_code = read(written, ast.parse(written))
    return host_code.launches.get(launch.kernel, ())


def _targets(lines: list[str], tree: ast.Module) -> Iterable[SpecTarget]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            line = node.lineno - 1
            end = lines[line].index(node.name, lines[line].index("def") + 3) + len(node.name)
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
            yield SpecTarget(node.name, "triton", first, line, line, end)
    for name, node in made_by_calls(tree).items():
        line = node.lineno - 1
        yield SpecTarget(name, "triton", line, line, line, node.col_offset + len(name))


def made_by_calls(tree: ast.Module) -> dict[str, ast.Assign]:
    """Return the statements `k = triton.jit(f)` of a file, by the names that they give. Any call may make a kernel of
    `f`.
    """
    return {
        node.targets[0].id: node
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and isinstance(node.targets[0], ast.Name)
        and any(isinstance(argument, ast.Name) for argument in node.value.args)
    }


def _values(checked: launch_spec.EvaluatedSpec) -> dict[str, Value]:
    """Return values with torch's tensors if `meta` can make them, else with their descriptions."""
    torch: Any = importlib.import_module("torch")
    world = _Meta("triton", torch, "meta")
    made, _ = launch_spec.compute(
        checked.spec, checked.signature, launch_spec.points(checked.spec)[0][0], world
    )
    return {**checked.values, **made}


# -- compiling --------------------------------------------------------------------------------------


def compile_kernel(
    function: Any,
    specified: SpecifiedLaunch,
    namespace: Mapping[str, Any],
    most: int,
    options: Mapping[str, int],
) -> tuple[list[Any], int]:
    """Return what Triton compiles for a launch, and how many variants there are: several if it is autotuned, of which
    `most` are compiled. `options` of its compiler go before those of the launch.

    Raises what Triton and the user's own hooks raise, and SpecError.
    """
    arguments, keywords = _given(specified)
    return _compiled(outermost(function, namespace), arguments, {**keywords, **options}, most)


@dataclass(frozen=True, slots=True)
class Guesses:
    """What is guessed of a kernel's parameters in a launch: those that may be of another type or, if they are
    constants, of another value, and the constants that may not. `tensors` are the parameters that are tensors.
    """

    assumed: frozenset[str]
    known: Mapping[str, Any]
    tensors: frozenset[str]


def guesses(
    function: Any, specified: SpecifiedLaunch, launch: HostLaunch, namespace: Mapping[str, Any]
) -> Guesses:
    """Return the guesses of a launch. With other sizes a number may become a constant, as the JIT makes one of 1.
    Functions of the file may choose other constants and configurations.
    """
    try:
        arguments, keywords = _given(specified)
    except Exception:  # noqa: BLE001 - what compiling raised before
        return Guesses(frozenset(function.arg_names), {}, frozenset())
    values = {**dict(zip(function.arg_names, arguments, strict=False)), **keywords}
    constants = {each.name for each in function.params if each.is_constexpr}
    ones = {name for name, value in values.items() if isinstance(value, int) and value == 1}
    assumed = {*launch.assumed, *((constants | ones) & {*launch.sized})}
    chosen: set[str] = set()
    for layer in layers(outermost(function, namespace)):
        heuristics: Mapping[str, Any] = getattr(layer, "values", {})
        chosen.update(heuristics)
        if getattr(layer, "early_config_prune", None) or getattr(layer, "perf_model", None):
            chosen.update(name for each in layer.configs for name in each.kwargs)
    known = {name: value for name, value in values.items() if name in constants - assumed - chosen}
    torch: Any = importlib.import_module("torch")
    tensors = {name for name, value in values.items() if isinstance(value, torch.Tensor)}
    return Guesses(frozenset(assumed | chosen), known, frozenset(tensors))


class ReadError(Exception):
    """Triton has read a kernel and found no error."""


@contextlib.contextmanager
def reading_alone() -> Generator[None]:
    """Let Triton only read kernels within the block, because it takes minutes to make code of a block of a million
    elements. What would compile raises ReadError.
    """
    source: Any = importlib.import_module("triton.compiler").ASTSource
    make = source.make_ir

    def read(*arguments: Any, **keywords: Any) -> Any:
        make(*arguments, **keywords)
        raise ReadError

    source.make_ir = read
    try:
        yield
    finally:
        source.make_ir = make


def _given(specified: SpecifiedLaunch) -> tuple[list[Any], dict[str, Any]]:
    """Return what a launch passes, by place and by name. Raises SpecError."""
    torch: Any = importlib.import_module("torch")
    world = _Meta("triton", torch, "meta")
    scope = SpecScope(specified.values)

    def memory(tensor: Tensor) -> Any:
        if tensor.data is not None:
            return tensor.data
        return torch.empty_strided(
            tensor.shape, tensor.strides, dtype=getattr(torch, tensor.dtype.name), device="meta"
        )

    arguments = [
        triton_backend.passed(evaluate(node, world, scope), memory, node.span)
        for node in specified.launch.arguments
    ]
    keywords = {
        each.name: triton_backend.passed(evaluate(each.value, world, scope), memory, each.value.span)
        for each in specified.launch.keywords
    }
    return arguments, keywords


def _compiled(kernel: Any, arguments: list[Any], keywords: dict[str, Any], most: int) -> tuple[list[Any], int]:  # fmt: skip
    """Compile as `Autotuner.run`, `Heuristics.run` and `JITFunction.run` do, without the launch."""
    if hasattr(kernel, "configs"):
        named = dict(zip(kernel.arg_names, arguments, strict=False))
        kernel.nargs = named
        configurations = list(kernel.prune_configs(keywords))
        compiled: list[Any] = []
        refused: list[Exception] = []
        for configuration in configurations[: most * _TRIED]:
            chosen = keywords | configuration.all_kwargs()
            if configuration.pre_hook is not None:  # it may give descriptors their blocks
                configuration.pre_hook({**named, **chosen})
            try:
                compiled += _compiled(kernel.fn, arguments, chosen, most)[0]
            except Exception as error:
                if len(configurations) == 1 or type(error).__name__ not in _PASSED_OVER:
                    raise
                refused.append(error)
            if len(compiled) >= most:
                break
        if len(refused) == len(configurations):
            raise refused[0]
        return compiled, len(configurations) - len(refused)
    if not hasattr(kernel, "params"):
        named = dict(zip(kernel.arg_names, arguments, strict=False))
        chosen = dict(keywords)
        for name, heuristic in kernel.values.items():
            chosen[name] = heuristic({**named, **chosen})
        return _compiled(kernel.fn, arguments, chosen, most)
    return [kernel.run(*arguments, grid=(1,), warmup=True, **keywords)], 1


def types(function: Any, compiled: Any) -> dict[str, str]:
    """Return the type that each argument has in the compiled kernel, and for integers and pointers what else holds
    for them.
    """
    dtypes: dict[str, str] = {}
    for at, parameter in enumerate(function.params):
        kind = compiled.src.signature[parameter.name]
        if kind == "constexpr":
            if not parameter.is_constexpr:  # the JIT makes constants of None and of the integer 1
                dtypes[parameter.name] = repr(compiled.src.constants[at,])
            continue
        divisible = ["tt.divisibility", 16] in (compiled.src.attrs.get((at,)) or [])
        known = ", 16-byte aligned" if str(kind).startswith("*") else ", divisible by 16"
        dtypes[parameter.name] = f"{kind}{known if divisible else ''}"
    return dtypes
