"""How a file calls its Triton kernels, from its text and its module.

Constants come from autotune's configurations, defaults and the keywords of a launch; argument types
are nowhere, and are assumed from what a kernel does with an argument.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_ADDRESSED = {"load", "store", "make_block_ptr", "make_tensor_descriptor"}  # and atomic_*
_OF_DESCRIPTORS = {"load", "store", "gather", "scatter", "block_shape", "block_type"}
_FLOAT_NAMES = re.compile(r"(?:^|_)(?:eps|epsilon|scale|alpha|beta|gamma|lr|momentum|decay|p|prob)$")


@dataclass(frozen=True, slots=True)
class Configuration:
    """Values for a kernel's constants and options, and where in the file they stand."""

    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    source: str


def configurations_of(
    function: Any, tree: ast.Module, namespace: Mapping[str, Any]
) -> tuple[list[Configuration], list[str]]:
    """Every full set of constants the file gives, else which constants it does not give."""
    constexprs = [p for p in function.params if p.is_constexpr]
    base: dict[str, Any] = {p.name: p.default for p in constexprs if p.default is not inspect.Parameter.empty}
    options: dict[str, Any] = {}
    source = "no constants to assume"
    if base:
        source = "constants by default"
    for line, values in itertools.islice(_launches(function.fn.__name__, tree, namespace), 1):
        base |= {name: value for name, value in values.items() if name in {p.name for p in constexprs}}
        options |= {name: value for name, value in values.items() if name in OPTIONS}
        source = f"constants as launched on line {line}"
    tuned = next(
        (one.configs for one in layers(outermost(function, namespace)) if getattr(one, "configs", ())), ()
    )
    found = [Configuration(base, options, source)]
    if tuned:
        found = [
            Configuration(
                base | dict(c.kwargs),
                options | {o: v for o in OPTIONS if (v := getattr(c, o, None)) is not None},
                "constants of autotune's configurations",
            )
            for c in tuned
        ]
    missing = [p.name for p in constexprs if any(p.name not in c.constants for c in found)]
    return found, missing


def layers(kernel: Any) -> list[Any]:
    """`@autotune` around `@heuristics` around `@jit`: the kernel and what it wraps."""
    found = [kernel]
    while not hasattr(found[-1], "params") and hasattr(found[-1], "fn"):
        found.append(found[-1].fn)
    return found


def outermost(function: Any, namespace: Mapping[str, Any]) -> Any:
    """`@autotune` and `@heuristics` around a kernel, as the module has it."""
    for wrapper in namespace.values():
        of_triton = type(wrapper).__module__.startswith("triton.")
        if of_triton and wrapper is not function and layers(wrapper)[-1] is function:
            return wrapper
    return function


def _launches(
    kernel: str, tree: ast.Module, namespace: Mapping[str, Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line and known keywords of each `kernel[grid](…)`: literals, and names of the module's own values."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == kernel):
            continue
        values: dict[str, Any] = {}
        for keyword in node.keywords:
            match keyword.value:
                case ast.Constant(value=value):
                    pass
                case ast.Name(id=name) if isinstance(namespace.get(name), int | float | str | bool):
                    value = namespace[name]
                case _:
                    continue
            if keyword.arg is not None:
                values[keyword.arg] = value
        yield node.lineno, values


def assumed_signature(function: Any, constants: Mapping[str, Any], pointee: str) -> dict[str, str]:
    pointers = addressed(ast.parse(function.src), set(function.arg_names))
    signature: dict[str, str] = {}
    for parameter in function.params:
        name = parameter.name
        annotated = getattr(parameter, "annotation_type", None)
        if parameter.is_constexpr or name in constants:
            signature[name] = "constexpr"
        elif annotated:
            signature[name] = annotated
        elif name in pointers:
            signature[name] = f"*{pointee}"
        else:
            signature[name] = "fp32" if _FLOAT_NAMES.search(name.lower()) else "i32"
    return signature


def addressed(tree: ast.Module, parameters: set[str]) -> set[str]:
    """Parameters that an address starts from.

    An address is `base + offsets`, so only the leftmost name of a sum counts, followed back through
    assignments: strides and indices stand to the right of it.
    """
    sources: dict[str, set[str]] = {}
    bases: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                sources.setdefault(target, set()).update(_leftmost(value))
            case ast.Call(func=ast.Attribute(attr=attribute), args=[first, *_]) if (
                attribute in _ADDRESSED or attribute.startswith("atomic_")
            ):
                bases |= _leftmost(first)
            case _:
                pass
    reached: set[str] = set()
    while bases:
        name = bases.pop()
        if name not in reached:
            reached.add(name)
            bases |= sources.get(name, set())
    return reached & parameters


def described(function: Any) -> list[str]:
    """Parameters that are used as tensor descriptors, made on the host: how large their blocks are no kernel says."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(function.src)):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if attribute in _OF_DESCRIPTORS:
                found.add(name)
            case ast.Call(func=ast.Attribute(attr=attribute), args=[ast.Name(id=name), *_]) if (
                attribute.endswith("_tensor_descriptor") and not attribute.startswith("make")
            ):
                found.add(name)
            case _:
                pass
    return [name for name in function.arg_names if name in found]


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
