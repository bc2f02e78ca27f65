"""Finds what a name of a Python file stands for at a line: assignments, branches, the calls of the surrounding
function.

The file is read as a syntax tree; nothing is executed. A name that a branch may have assigned is a choice between two
values. A name that a loop changes has none.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import islice

from orbit_lsp.drafts import triton
from orbit_remote.common.lazy_dataclass import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SHOWN = 30
"""Characters that a note shows of a value."""
_LAST_LINE = sys.maxsize
_DEEPEST_CALLS = 4


@dataclass(eq=False)
class ScopeFrame:
    """A function, or the file, while something at `line` of it happens. `given` are the parameters that a call gave
    values. `outer` is the code around the function's definition.
    """

    scope: Function | ast.Module
    line: int
    outer: ScopeFrame | None = None
    given: Mapping[str, Value] = field(default_factory=dict[str, "Value"])

    @cached_property
    def code(self) -> str:
        """Return the code in `ast.unparse`'s spelling."""
        return ast.unparse(self.scope)

    @property
    def caller(self) -> str:
        """Return the function with which the calls that lead here begin, with the parameters of a test (its first
        ones). Return "" if no call is known.
        """
        first: ScopeFrame = self
        while value := next(iter(first.given.values()), None):
            if isinstance(value.frame.scope, ast.Module):
                break
            first = value.frame
        if first is self or isinstance(first.scope, ast.Module):
            return ""
        given = ", ".join(
            f"{name} = {ast.unparse(value.node)[:_SHOWN]}"
            for name, value in first.given.items()
            if isinstance(value.node, ast.expr)
        )
        return f"{first.scope.name}{given and f' with its first parameters, {given}'}"

    @cached_property
    def parameters(self) -> dict[str, ast.expr | None]:
        """Return the parameters, each with its default if it has one."""
        if isinstance(self.scope, ast.Module):
            return {}
        of = self.scope.args
        by_place = [parameter.arg for parameter in (*of.posonlyargs, *of.args)]
        by_name = [parameter.arg for parameter in of.kwonlyargs]
        last = dict(zip(reversed(by_place), reversed(of.defaults), strict=False))
        return {**dict.fromkeys(by_place), **last, **dict(zip(by_name, of.kw_defaults, strict=True))}

    def annotation(self, name: str) -> str:
        """Return the annotation of a parameter that no call gave a value, as in `a: float`. Return "" if there is
        none.
        """
        if isinstance(self.scope, ast.Module) or name in self.given:
            return ""
        of = self.scope.args
        every = (*of.posonlyargs, *of.args, *of.kwonlyargs)
        annotation = next((each.annotation for each in every if each.arg == name), None)
        return annotation.id if isinstance(annotation, ast.Name) else ""


@dataclass(frozen=True, slots=True)
class Value:
    """An expression, and the frame in which its own names are looked up."""

    node: ast.expr | BranchValue
    frame: ScopeFrame
    line: int


@dataclass(frozen=True, slots=True)
class BranchValue:
    """A value that a branch decides: `then if condition else otherwise`."""

    condition: Value
    then: Value
    otherwise: Value


class _UnknownError(Exception):
    """The name has a value that the text does not give."""


def lookup(name: str, frame: ScopeFrame, line: int) -> Value | None:
    """Return the value of `name` at `line` of the frame. Return None if the text does not give it."""
    try:
        at: ScopeFrame | None = frame
        while at is not None:
            if value := _after(at.scope.body, name, line, None, at):
                return value
            if name in at.given:
                return at.given[name]
            if name in at.parameters:
                default = at.parameters[name]
                return (
                    Value(default, at.outer or at, at.scope.lineno)
                    if default is not None and isinstance(at.scope, Function)
                    else None
                )
            at, line = at.outer, _LAST_LINE
    except (_UnknownError, RecursionError):
        pass
    return None


def _after(
    body: Sequence[ast.stmt], name: str, line: int, value: Value | None, frame: ScopeFrame
) -> Value | None:
    """Return the value of `name` at `line`, behind statements before which it was `value`. Raises _UnknownError."""
    for statement in body:
        if statement.lineno >= line:
            break
        value = _behind(statement, name, line, value, frame)
    return value


def _behind(
    statement: ast.stmt, name: str, line: int, value: Value | None, frame: ScopeFrame
) -> Value | None:
    inside = line <= (statement.end_lineno or statement.lineno)
    match statement:
        case ast.AugAssign(target=ast.Name(id=target), op=operator, value=node) if target == name:
            return Value(ast.BinOp(ast.Name(name, ast.Load()), operator, node), frame, statement.lineno)
        case ast.If(test=test, body=body, orelse=orelse):
            if inside:
                branch = body if line <= (body[-1].end_lineno or 0) else orelse
                return _after(branch, name, line, value, frame)
            then, otherwise = (_after(branch, name, line, value, frame) for branch in (body, orelse))
            if then is otherwise or _leaves(body):
                return otherwise
            if _leaves(orelse) or otherwise is None:
                return then
            return (
                Value(
                    BranchValue(Value(test, frame, statement.lineno), then, otherwise),
                    frame,
                    statement.lineno,
                )
                if then
                else otherwise
            )
        case ast.For() | ast.AsyncFor() | ast.While():
            return _in_loop(statement, name, line, value, frame, inside=inside)
        case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
            if any(_binds(item, name) for item in items):
                raise _UnknownError
            return _after(body, name, line, value, frame)
        case ast.Try(body=body, orelse=orelse, finalbody=last):
            return _after([*body, *orelse, *last], name, line, value, frame)
        case ast.FunctionDef(name=defined) | ast.AsyncFunctionDef(name=defined) | ast.ClassDef(name=defined):
            if defined == name:
                raise _UnknownError
            return value
        case _:
            for target, node in triton.assignments(statement):
                if target == name:
                    value = Value(node, frame, statement.lineno)
            return value


def _in_loop(
    loop: ast.For | ast.AsyncFor | ast.While,
    name: str,
    line: int,
    value: Value | None,
    frame: ScopeFrame,
    *,
    inside: bool,
) -> Value | None:
    """Return the value of `name` with a loop. For a loop over a list in the text, the first round counts."""
    if not inside:
        if _binds(loop, name):
            raise _UnknownError
        return value
    if not isinstance(loop, ast.While) and _binds(loop.target, name):
        first = loop.iter.elts[0] if isinstance(loop.iter, ast.List | ast.Tuple) and loop.iter.elts else None
        if first is None or not isinstance(loop.target, ast.Name):
            raise _UnknownError
        value = Value(first, frame, loop.lineno)
    if any(isinstance(node, ast.AugAssign) and _binds(node, name) for node in ast.walk(loop)):
        raise _UnknownError
    return _after(loop.body, name, line, value, frame)


def _binds(node: ast.AST, name: str) -> bool:
    return any(
        isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Store)
        for each in ast.walk(node)
    )


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


# -- calls -------------------------------------------------------------------------------------------


def frames(
    tree: ast.Module, node: ast.Call, most: int, drivers: Sequence[ast.Module] = ()
) -> list[ScopeFrame]:
    """Return the chains of calls that lead to a call, with a frame for each, at most `most`. Those that begin in
    `drivers` are first: other files that call functions of this one.
    """
    modules = [*drivers, tree]
    functions = {
        module: [each for each in ast.walk(module) if isinstance(each, Function)] for module in modules
    }
    calls = [(module, each) for module in modules for each in ast.walk(module) if isinstance(each, ast.Call)]
    classes = {
        method: each.name for each in ast.walk(tree) if isinstance(each, ast.ClassDef) for method in each.body
    }

    def ways(module: ast.Module, at: ast.Call, depth: int) -> Iterator[ScopeFrame]:
        around = [each for each in functions[module] if each.lineno <= at.lineno <= (each.end_lineno or 0)]
        if not around:
            yield ScopeFrame(module, at.lineno)
            return
        whole = outer = ScopeFrame(module, _LAST_LINE)
        for each in around[:-1]:
            outer = ScopeFrame(each, _LAST_LINE, outer)
        last = around[-1]
        reached = False
        for of, call in calls if depth < _DEEPEST_CALLS else ():
            given = _arguments(call, last, classes.get(last, ""), through_module=of is not module)
            if given is None or (
                of is module
                and any(
                    last is each and each.lineno <= call.lineno <= (each.end_lineno or 0) for each in around
                )
            ):
                continue
            for caller in ways(of, call, depth + 1):
                reached = True
                values = {name: Value(value, caller, call.lineno) for name, value in given.items()}
                yield ScopeFrame(last, at.lineno, outer, values)
        if not reached:
            values = {name: Value(value, whole, _LAST_LINE) for name, value in _parametrized(last)}
            yield ScopeFrame(last, at.lineno, outer, values)

    return list(islice(ways(tree, node, 0), most))


def _arguments(
    call: ast.Call, function: Function, owner: str, *, through_module: bool
) -> dict[str, ast.expr] | None:
    """Return the arguments of a call by parameter. Return None if it does not call the function, or unpacks its
    arguments. `through_module` allows the name of the function's module before it.
    """
    names = [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
    match call.func:
        case ast.Name(id=name) if name == function.name and not owner:
            pass
        case ast.Attribute(value=ast.Name(), attr=name) if (
            name == function.name and not owner and through_module
        ):
            pass
        case ast.Attribute(value=ast.Name(id=base), attr="apply") if (
            base == owner and function.name == "forward"
        ):
            names = names[1:]  # the context
        case ast.Attribute(value=ast.Name(id=base), attr=name) if base == owner and name == function.name:
            pass
        case _:
            return None
    if any(isinstance(each, ast.Starred) for each in call.args) or any(
        each.arg is None for each in call.keywords
    ):
        return None
    return {
        **dict(zip(names, call.args, strict=False)),
        **{each.arg: each.value for each in call.keywords if each.arg},
    }


def _parametrized(function: Function) -> Iterator[tuple[str, ast.expr]]:
    """Yield the first values of `@pytest.mark.parametrize("n, dtype", [(1024, torch.float16), …])`."""
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(
                func=ast.Attribute(attr="parametrize"),
                args=[
                    ast.Constant(value=str(text)),
                    ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]),
                    *_,
                ],
            ):
                names = [name.strip() for name in text.split(",") if name.strip()]
                values = first.elts if len(names) > 1 and isinstance(first, ast.Tuple | ast.List) else [first]
                yield from zip(names, values, strict=False)
            case _:
                pass
