"""Finds launches of a Triton kernel in its file's own code that cannot work, from the text alone. Python would find
them in the run.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from orbit_remote.common.messages import Place, Problem
from orbit_remote.common.python_errors import points
from orbit_remote.spec.directives import nearest
from orbit_remote.spec.rules import OPTIONS

_Node = ast.expr | ast.keyword


def of(
    name: str,
    parameters: Sequence[Any],
    tree: ast.Module,
    text: str,
    path: str,
    known: Collection[str],
    *,
    tuned: bool,
) -> list[tuple[int, Problem]]:
    """Return what is wrong in the launches `name[grid](…)` of a file, each with the line of its launch. `parameters`
    are Triton's. `known` are the names that the module has once it is imported. A `tuned` kernel gets some arguments
    from `@autotune` or `@heuristics`.
    """
    lines = text.split("\n")
    bound = set[str]() if _imports_all(tree) else {*known, *_bound(tree), *dir(builtins)}
    return [
        (call.lineno, Problem("error", message, "triton", _place(path, lines, node)))
        for call in _launches(tree, name)
        for node, message in _mistakes(name, call, parameters, bound, tuned=tuned)
    ]


def _launches(tree: ast.Module, name: str) -> Iterator[ast.Call]:
    """Yield the launches in which the name is that of the module: a parameter of the same name may be any kernel."""
    shadowed = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        and name in {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Subscript(value=ast.Name(id=launched))) if (
                launched == name and id(node) not in shadowed
            ):
                yield node
            case _:
                pass


def _mistakes(
    name: str, call: ast.Call, parameters: Sequence[Any], bound: Collection[str], *, tuned: bool
) -> Iterator[tuple[_Node, str]]:
    names = [parameter.name for parameter in parameters]
    for value in (*call.args, *(keyword.value for keyword in call.keywords)) if bound else ():
        for node in ast.walk(value):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound:
                yield node, f"{node.id} is not defined{nearest(node.id, bound)}"
    if any(isinstance(value, ast.Starred) for value in call.args):
        return
    if len(call.args) > len(names):
        yield call.args[len(names)], f"{name} takes {len(names)} arguments, not {len(call.args)}"
        return
    given = {*names[: len(call.args)], *(keyword.arg for keyword in call.keywords)}
    absent = [parameter.name for parameter in parameters if parameter.name not in given]
    meant: set[str] = set()
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg in names or keyword.arg in OPTIONS:
            continue
        if near := nearest(
            keyword.arg, [*absent, *OPTIONS]
        ):  # else it may be an option of another GPU's compiler
            meant.add(near)
            yield keyword, f"{name} has no parameter {keyword.arg}{near}"
    if tuned or meant or None in given:
        return
    needed = [
        parameter.name for parameter in parameters if parameter.name in absent and not parameter.has_default
    ]
    if needed:
        yield call.func, f"this launch of {name} gives no value for {', '.join(needed)}"


def _bound(tree: ast.Module) -> Iterator[str]:
    """Yield every name that the file binds anywhere, whether or not a launch can see it."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield (other or name).partition(".")[0]
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
            case _:
                pass


def _imports_all(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree))


def _place(path: str, lines: Sequence[str], node: _Node) -> Place:
    line = lines[node.lineno - 1]
    start = points(line, node.col_offset) + 1
    end = points(line, node.end_col_offset or 0) + 1 if node.end_lineno == node.lineno else len(line) + 1
    return Place(path, node.lineno, start, end)
