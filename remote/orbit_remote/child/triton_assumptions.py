"""Reads how a file calls its Triton kernels, from its text and its module.

Constants come from autotune's configurations, defaults and the keywords of a launch. Argument types are nowhere, and
are assumed from what a kernel does with an argument. Constants that the file does not tell are assumed too.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.dtypes import told

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_OF_BACKENDS = frozenset((
    "waves_per_eu", "matrix_instr_nonkdim", "kpack", "allow_flush_denorm", "schedule_hint", "enable_fp_fusion", "enable_reflect_ftz",
    "launch_cooperative_grid", "launch_pdl", "ptx_version", "ptx_options", "ir_override", "sanitize_overflow", "debug", "extern_libs",
    "max_num_imprecise_acc_default", "instrumentation_mode", "maxreg", "minRegPerThread", "num_buffers_warp_spec",
    "num_consumer_groups", "reg_dec_producer", "reg_inc_consumer", "grf_mode", "arch", "backend_name",
))  # fmt: skip
"""What configurations set for a backend of Triton, NVIDIA's or another, in any of its releases."""
_ADDRESSED = {"load", "store", "make_block_ptr", "make_tensor_descriptor"}  # and atomic_*
_OF_DESCRIPTORS = {"load", "store", "gather", "scatter", "block_shape", "block_type"}
_POINTEES = ("fp32", "fp16", "i32")
_FLOATS = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}
_DEEPEST = 8
_SIZES = (1 << 20, 1 << 10)
"""Where heuristics ask for a size that the file does not tell: the first, unless a block becomes as long as that."""
_LONGEST_BLOCK = 1 << 13
"""A row that a program takes whole is seldom longer; Triton compiles a block of a million for minutes."""
_SIDES = (64, 32, 16)
"""Lengths of blocks to try: each has room for `tl.dot`, and the last fits where many blocks stay in shared memory."""
_PASSES = 3
"""As often is a kernel read: a name may be used above its assignment, in a loop."""
_UNROLLED = 4
"""Turns of a loop that the compiler unrolls."""
_FLAG_NAMES = re.compile(
    r"^(?:is|has|use|do|with|enable|store|apply|need|return|save)_|causal|varlen", re.IGNORECASE
)
_FLOAT_NAMES = re.compile(r"(?:^|_)(?:eps|epsilon|scale|alpha|beta|gamma|lr|momentum|decay|p|prob)$")


@dataclass(frozen=True, slots=True)
class Configuration:
    """Values for a kernel's constants and options, and where in the file they stand. `assumed` are those that stand
    nowhere. `tensors` are parameters to which a launch passes tensors. For a constant that a launch computes, `least`
    has its least possible value. `element` is the type of the tensors that the file makes, if it names only one.
    """

    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    source: str
    assumed: frozenset[str] = frozenset()
    tensors: frozenset[str] = frozenset()
    least: Mapping[str, int] = field(default_factory=dict[str, int])
    element: str = ""


def configurations_of(
    function: Any,
    tree: ast.Module,
    namespace: Mapping[str, Any],
    known: Mapping[str, Any],
    tensors: frozenset[str],
) -> tuple[list[Configuration], list[str]]:
    """Return every full set of constants that the file gives, else which constants it does not give. `known` are
    those of its launch.
    """
    constexprs = [p for p in function.params if p.is_constexpr]
    base: dict[str, Any] = {p.name: p.default for p in constexprs if p.default is not inspect.Parameter.empty}
    options: dict[str, Any] = {}
    source = "no constants to assume"
    if base:
        source = "constants by default"
    for line, values in itertools.islice(_launches(function, tree, namespace), 1):
        base |= {name: value for name, value in values.items() if name in {p.name for p in constexprs}}
        options |= {name: value for name, value in values.items() if name in OPTIONS}
        source = f"constants as launched on line {line}"
    base |= known
    least = _least_of_launch(function.fn.__name__, tree, namespace)
    element = _FLOATS.get(told(tree), "")
    tuned = next(
        (layer.configs for layer in layers(outermost(function, namespace)) if getattr(layer, "configs", ())),
        (),
    )
    configurations = [Configuration(base, options, source, tensors=tensors, least=least, element=element)]
    if tuned:
        configurations = [
            Configuration(
                base | dict(c.kwargs),
                options | {o: v for o in OPTIONS if (v := getattr(c, o, None)) is not None},
                "constants of autotune's configurations",
                tensors=tensors,
                least=least,
                element=element,
            )
            for c in tuned
        ]
    configurations = [_with_heuristics(each, function, namespace) for each in configurations]
    missing = [p.name for p in constexprs if any(p.name not in c.constants for c in configurations)]
    return configurations, missing


def foreign(function: Any, namespace: Mapping[str, Any]) -> str:
    """Return what autotune's configurations set that neither the kernel nor a backend of Triton takes. Return "" if
    there is nothing.
    """
    known = {*function.arg_names, *OPTIONS, *_OF_BACKENDS}
    tuned = (
        layer.configs for layer in layers(outermost(function, namespace)) if getattr(layer, "configs", ())
    )
    return ", ".join(
        dict.fromkeys(
            name for configs in tuned for each in configs for name in each.kwargs if name not in known
        )
    )


class _Given(dict[str, Any]):
    """The arguments of a launch as heuristics get them. An unknown one is a size."""

    def __init__(self, known: Mapping[str, Any], size: int) -> None:
        super().__init__(known)
        self.size = size
        self.guessed = False

    def __missing__(self, name: str) -> int:
        self.guessed = True
        return self.size


def _with_heuristics(
    configuration: Configuration, function: Any, namespace: Mapping[str, Any]
) -> Configuration:
    """Add the constants that `@triton.heuristics` makes. One that needs more than sizes stays missing."""
    size, smaller = _SIZES
    made, guessed = _made(configuration, function, namespace, size)
    if max((made[name] for name in guessed if isinstance(made[name], int)), default=0) > _LONGEST_BLOCK:
        size = smaller
        made, guessed = _made(configuration, function, namespace, size)
    if not made:
        return configuration
    sizes = f" for sizes of {size}" if guessed else ""
    return replace(
        configuration,
        constants={**configuration.constants, **made},
        source=f"{configuration.source}; {', '.join(made)} by heuristics{sizes}",
        assumed=frozenset(guessed),
    )


def _made(
    configuration: Configuration, function: Any, namespace: Mapping[str, Any], size: int
) -> tuple[dict[str, Any], list[str]]:
    """Return the constants that heuristics make if unknown sizes are `size`, and which of them depend on one."""
    made: dict[str, Any] = {}
    guessed: list[str] = []
    for layer in layers(outermost(function, namespace)):
        rules: Mapping[str, Any] = getattr(layer, "values", {})
        for name, rule in rules.items():
            with suppress(Exception):  # the author's function may raise anything
                given = _Given({**configuration.constants, **configuration.options, **made}, size)
                value = rule(given)
                if name not in configuration.constants and isinstance(value, bool | int | float | str):
                    made[name] = value
                    guessed += [name] * (given.guessed or bool(guessed))
    return made, guessed


def completed(function: Any, configuration: Configuration, missing: Sequence[str]) -> list[Configuration]:
    """Return configurations with values for the constants that the file does not tell, the likeliest first: a flag is
    off, a block is as long as every other. Return none if one of the constants is a function, which nothing can
    replace.
    """
    tree = ast.parse(function.src)
    uses = {name: _uses(name, tree) for name in missing}
    if "function" in uses.values():
        return []
    deep = any(
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) > 2
        for node in ast.walk(tree)
    )
    ways = [(side, False) for side in (_SIDES[-1:] if deep else _SIDES)]
    ways.insert(1, (ways[0][0], True))
    return [
        replace(
            configuration,
            constants={
                **configuration.constants,
                **{n: _at_least(configuration.least.get(n), _value(n, uses[n], *way)) for n in missing},
            },
            assumed=frozenset(missing),
        )
        for way in ways
    ]


def _uses(name: str, tree: ast.Module) -> str:
    """Return what a kernel does with a constant: calls it, gives it as a type, unrolls by it, tests it, or counts
    with it.
    """
    uses: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=called)) if called == name:
                uses.add("function")
            case ast.Call(func=ast.Attribute(attr="to" | "cast"), args=[*_, ast.Name(id=of)]) if of == name:
                uses.add("type")
            case ast.keyword(arg="dtype", value=ast.Name(id=of)) if of == name:
                uses.add("type")
            case ast.Call(func=ast.Attribute(attr="zeros" | "full"), args=[_, *_, ast.Name(id=of)]) if (
                of == name
            ):
                uses.add("type")
            case ast.Call(func=ast.Attribute(attr="static_range")) if _names(name, *node.args):
                uses.add("unrolled")
            case ast.Compare(comparators=[ast.Constant(value=str(text))], left=ast.Name(id=of)) if of == name:
                return f"text {text}"
            case ast.If(test=test) | ast.IfExp(test=test) | ast.UnaryOp(op=ast.Not(), operand=test) if (
                isinstance(test, ast.Name)
            ):
                uses |= {"flag"} if test.id == name else set()
            case ast.BoolOp(values=values):
                uses |= {"flag"} if any(isinstance(v, ast.Name) and v.id == name for v in values) else set()
            case _:
                pass
    kinds = ("function", "type", "unrolled", "flag")
    return next((kind for kind in kinds if kind in uses), "flag" if _FLAG_NAMES.search(name) else "")


def _names(name: str, *nodes: ast.expr) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for node in nodes for each in ast.walk(node))


def _value(name: str, use: str, side: int, flag: bool) -> Any:
    if use == "type" or re.search(r"dtype|(?:^|_)type$", name.lower()):
        return importlib.import_module("triton.language").float32
    if use == "flag":
        return flag
    if use.startswith("text "):
        return use.removeprefix("text ")
    if use == "unrolled":
        return _UNROLLED
    if "group" in name.lower():
        return 8
    return 1.0 if _FLOAT_NAMES.search(name.lower()) else side


def _at_least(least: int | None, value: Any) -> Any:
    return max(least, value) if least is not None and type(value) is int else value


def _least_of_launch(kernel: str, tree: ast.Module, namespace: Mapping[str, Any]) -> dict[str, int]:
    """Return the least possible values of the constants that the first launch of a kernel computes."""
    values = {
        name: value
        for node in ast.walk(tree)
        for name, value in _assigned(node)
        if not isinstance(value, ast.Name)
    }
    for call, _ in _calls(kernel, tree):
        bounds = {each.arg: _least(each.value, values, namespace) for each in call.keywords if each.arg}
        return {name: bound for name, bound in bounds.items() if bound is not None}
    return {}


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            yield name, value
        case _:
            pass


def _least(
    node: ast.expr, values: Mapping[str, ast.expr], namespace: Mapping[str, Any], depth: int = 0
) -> int | None:
    """Return the least possible value of an integer, whatever the sizes are. Return None if its text does not say. No
    function is called; the source of a Python function is read.
    """
    if depth > _DEEPEST:
        return None

    def of(each: ast.expr) -> int | None:
        return _least(each, values, namespace, depth + 1)

    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name) if name in values:
            return of(values[name])
        case ast.Name(id=name) if type(namespace.get(name)) is int:
            return namespace[name]
        case ast.IfExp(body=body, orelse=orelse):
            sides = [of(body), of(orelse)]
            return None if None in sides else min(side for side in sides if side is not None)
        case ast.Call(func=ast.Name(id="max"), args=given):
            return max((bound for each in given if (bound := of(each)) is not None), default=None)
        case ast.Call(func=ast.Name(id="min"), args=given):
            bounds = [of(each) for each in given]
            return (
                None if None in bounds else min((each for each in bounds if each is not None), default=None)
            )
        case ast.Call(
            func=ast.Name(id="next_power_of_2") | ast.Attribute(attr="next_power_of_2"), args=[of_what]
        ):
            return 1 << (max(1, of(of_what) or 1) - 1).bit_length()
        case ast.Call(func=ast.Name(id=name)) if inspect.isfunction(function := namespace.get(name)):
            try:
                source = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
            except (OSError, TypeError, SyntaxError, IndexError):
                return None
            statements = source.body if isinstance(source, ast.FunctionDef) else []
            returned = [
                each
                for statement in statements
                for each in ast.walk(statement)
                if isinstance(each, ast.Return)
            ]
            if len(returned) != 1 or returned != statements[-1:] or returned[0].value is None:
                return None
            own = dict(pair for statement in statements for pair in _assigned(statement))
            return _least(returned[0].value, own, function.__globals__, depth + 1)
        case _:
            return None


def layers(kernel: Any) -> list[Any]:
    """Return the kernel and what it wraps: `@autotune` around `@heuristics` around `@jit`."""
    functions = [kernel]
    while not hasattr(functions[-1], "params") and hasattr(functions[-1], "fn"):
        functions.append(functions[-1].fn)
    return functions


def outermost(function: Any, namespace: Mapping[str, Any]) -> Any:
    """Return `@autotune` and `@heuristics` around a kernel, as the module has it."""
    for wrapper in namespace.values():
        of_triton = type(wrapper).__module__.startswith("triton.")
        if of_triton and wrapper is not function and layers(wrapper)[-1] is function:
            return wrapper
    return function


def _launches(
    function: Any, tree: ast.Module, namespace: Mapping[str, Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line and known arguments of each launch: literals, names of the module's own values, and names of
    literals at that place. What the grid is does not matter here.
    """
    names = [parameter.name for parameter in function.params]
    certain = all(parameter.default is inspect.Parameter.empty for parameter in function.params)
    for call, local in _calls(function.fn.__name__, tree):
        values: dict[str, Any] = {}
        for name, node in _passed(call, names, behind_stars=certain):
            written: ast.expr | None = node
            if isinstance(node, ast.Name):
                written = local.get(node.id)
                module = namespace.get(node.id)
                if node.id not in local and isinstance(module, int | float | str | bool):
                    values[name] = module
            with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                value = ast.literal_eval(written) if written else ()
                if value is None or isinstance(value, int | float | str | bool):
                    values[name] = value
        yield call.lineno, values


def _calls(kernel: str, tree: ast.Module) -> list[tuple[ast.Call, Mapping[str, ast.expr | None]]]:
    """Return the launches `kernel[…](…)` of a kernel, each with the names of the function around it.

    They use the kernel's name, an attribute of that name (`Ops.kernel`), or a name or an attribute that only this
    kernel is assigned to (`self.run = kernel`). Each name has what is assigned to it, None if that is several values,
    or a parameter.
    """
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[target], value=value) if name := _last_name(target):
                assigned.setdefault(name, []).append(value)
            case _:
                pass
    names = {kernel} | {
        name for name, values in assigned.items() if all(_last_name(value) == kernel for value in values)
    }
    calls: dict[ast.Call, Mapping[str, ast.expr | None]] = {}
    for scope in ast.walk(tree):  # functions before those within them
        if isinstance(scope, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
            own = [
                node
                for node in ast.walk(scope)
                if isinstance(node, ast.Call)
                and isinstance(node.func, ast.Subscript)
                and _last_name(node.func.value) in names
            ]
            local = _local(scope) if own and not isinstance(scope, ast.Module) else {}
            calls.update((call, {**calls.get(call, {}), **local}) for call in own)
    return sorted(calls.items(), key=lambda item: (item[0].lineno, item[0].col_offset))


def _local(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr | None]:
    once: dict[str, ast.expr] = {}
    stores: dict[str, int] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                once[name] = value
            case ast.arg(arg=name):
                stores[name] = 2
            case ast.Name(id=name, ctx=ast.Store()):
                stores[name] = stores.get(name, 0) + 1
            case _:
                pass
    return {name: once.get(name) if count == 1 else None for name, count in stores.items()}


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _passed(call: ast.Call, names: Sequence[str], *, behind_stars: bool) -> Iterator[tuple[str, ast.expr]]:
    """Yield the arguments of a launch by parameter. Those behind one star fill the parameters at the end that no
    keyword names, if none of them may be left out.
    """
    keywords = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    yield from keywords.items()
    stars = [at for at, argument in enumerate(call.args) if isinstance(argument, ast.Starred)]
    before = call.args[: stars[0]] if stars else call.args
    yield from zip(names, before, strict=False)
    if behind_stars and len(stars) == 1 and all(keyword.arg for keyword in call.keywords):
        behind = call.args[stars[0] + 1 :]
        free = [name for name in names[len(before) :] if name not in keywords]
        if 0 < len(behind) <= len(free):
            yield from zip(free[-len(behind) :], behind, strict=True)


def assumed_signatures(function: Any, configuration: Configuration) -> Iterator[dict[str, str]]:
    """Yield signatures, the likeliest first: what is loaded and becomes a place is i32, if the compiler accepts that."""
    tree = ast.parse(function.src)
    constants = configuration.constants
    pointers = addressed(tree, set(function.arg_names)) | configuration.tensors
    places = pointing(tree, pointers)
    for integers in (places, set[str]()) if places else (places,):
        for pointee in dict.fromkeys((configuration.element or _POINTEES[0], *_POINTEES)):
            types = {name: "*i32" if name in integers else f"*{pointee}" for name in pointers}
            yield _signature(function, constants, types)


def _signature(function: Any, constants: Mapping[str, Any], pointers: Mapping[str, str]) -> dict[str, str]:
    """Return types by parameter, as Triton writes them: `constexpr`, an annotation's, those of `pointers`, else a
    number: fp32 if its name says so, or i32.
    """
    signature: dict[str, str] = {}
    for parameter in function.params:
        name = parameter.name
        annotated = getattr(parameter, "annotation_type", None)
        if parameter.is_constexpr or name in constants:
            signature[name] = "constexpr"
        elif annotated:
            signature[name] = annotated
        elif name in pointers:
            signature[name] = pointers[name]
        else:
            signature[name] = "fp32" if _FLOAT_NAMES.search(name.lower()) else "i32"
    return signature


def addressed(tree: ast.Module, parameters: set[str]) -> set[str]:
    """Return the parameters from which an address starts.

    An address is `base + offsets`, so only the leftmost name of a sum counts, followed back through assignments:
    strides and indices stand to the right of it.
    """
    sources: dict[str, set[str]] = {}
    bases: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                sources.setdefault(target, set()).update(_leftmost(value))
            case ast.Call(func=ast.Attribute(attr=attribute), args=given, keywords=keywords) if (
                attribute in _ADDRESSED or attribute.startswith("atomic_")
            ):
                named = (each.value for each in keywords if each.arg in ("base", "pointer"))
                bases |= {base for each in (*given[:1], *named) for base in _leftmost(each)}
            case _:
                pass
    reached: set[str] = set()
    while bases:
        name = bases.pop()
        if name not in reached:
            reached.add(name)
            bases |= sources.get(name, set())
    return reached & parameters


def pointing(tree: ast.Module, pointers: set[str]) -> set[str]:
    """Return the pointers to places and lengths: what is loaded from them becomes a part of an address, or a bound of
    a loop.
    """
    loaded: dict[str, set[str]] = {}

    def sources(node: ast.AST) -> set[str]:
        names: set[str] = set()
        for each in ast.walk(node):
            match each:
                case ast.Call(func=ast.Attribute(attr="load"), args=[first, *_]):
                    names |= addresses.get(next(iter(_leftmost(first)), ""), set())
                case ast.Name(id=name):
                    names |= loaded.get(name, set())
                case _:
                    pass
        return names

    addresses = {name: {name} for name in pointers}
    bound: set[str] = set()
    for _ in range(_PASSES):
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=target)], value=value):
                    if base := {each for name in _leftmost(value) for each in addresses.get(name, set())}:
                        addresses[target] = addresses.get(target, set()) | base
                        bound |= sources(value)
                    else:
                        loaded[target] = loaded.get(target, set()) | sources(value)
                case ast.Call(func=ast.Attribute(attr=attribute), args=[first, *_]) if (
                    attribute in _ADDRESSED or attribute.startswith("atomic_")
                ):
                    bound |= sources(first)
                case ast.For(iter=ast.Call(args=bounds)):
                    bound |= {name for each in bounds for name in sources(each)}
                case _:
                    pass
    return bound & pointers


def described(function: Any) -> list[str]:
    """Return the parameters that are used as tensor descriptors, made on the host. No kernel says how large their
    blocks are.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(function.src)):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if attribute in _OF_DESCRIPTORS:
                names.add(name)
            case ast.Call(func=ast.Attribute(attr=attribute), args=[ast.Name(id=name), *_]) if (
                attribute.endswith("_tensor_descriptor") and not attribute.startswith("make")
            ):
                names.add(name)
            case _:
                pass
    return [name for name in function.arg_names if name in names]


def _leftmost(node: ast.expr) -> set[str]:
    match node:
        case ast.Name(id=name):
            return {name}
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub()):
            return _leftmost(left)
        case ast.IfExp(body=body, orelse=orelse):
            return _leftmost(body) | _leftmost(orelse)
        case ast.Call(func=ast.Attribute(value=value, attr="to" | "advance")):
            return _leftmost(value)
        case ast.Call(func=ast.Attribute(attr="advance" | "multiple_of" | "cast"), args=[first, *_]):
            return _leftmost(first)
        case _:
            return set()
