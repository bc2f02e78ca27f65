"""Decides whether an error of Triton's is in the text, whatever types and constants were assumed for a kernel.

It is if it is about a name that nothing binds or that Triton's language lacks. It is too if it is about what Triton
never takes (a lambda, an unknown keyword, a call of a number), or about an expression that depends on nothing
assumed. An assumed constant may have led into a branch. So in a branch only names count, and expressions without any,
unless what the branch tests depends on nothing assumed. Without a launch every argument is assumed; of a launch that
is known in part, those that follow from a guess. If a kernel cannot be compiled by assumption, its text is searched
for the same errors.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from orbit_remote.common.messages import Place, Problem
from orbit_remote.common.python_errors import points

_OF_NAMES = re.compile(
    r"(?P<name>\w+) is not defined|[\w.]+ cannot be used in a kernel: .*|triton\.language(?:\.(?:core|math|standard))? has no `\w+`"
)
_OF_FORM = re.compile(
    r"unsupported AST node type: \w+|simultaneous multiple comparison is not supported|only tuple comprehensions are supported"
    r"|nested (?:comprehensions are|function definition is) not supported\.?|(?:Attribute assignment|__setitem__) is not supported in triton"
    r"|Only `range` and `static_range` iterators are currently supported|Triton does not support the operator \w+ here"
    r"|`static_assert` requires one or two positional arguments only|Cannot access global variable .*"
    r"|.*got (?:an unexpected keyword argument|multiple values for argument) .*|.*missing (?:a required|\d+ required) .*"
    r"|.*takes .* positional arguments? .* given|too many positional arguments|`other` cannot be provided without `mask`",
    re.DOTALL,
)
"""Messages about what no type and no constant makes right."""
_TENSORS = frozenset(
    [
        "program_id",
        "num_programs",
        "arange",
        "zeros",
        "zeros_like",
        "full",
        "load",
        "dot",
        "sum",
        "cdiv",
        "where",
        "maximum",
        "minimum",
        "abs",
        "exp",
        "exp2",
        "log",
        "log2",
        "sqrt",
        "rsqrt",
        "cast",
        "broadcast_to",
        "reshape",
        "trans",
        "sigmoid",
        "softmax",
        "atomic_add",
        "atomic_cas",
        "atomic_xchg",
        "rand",
        "randn",
    ]
)
"""Functions of `triton.language` that make a tensor; others make descriptors, tuples or nothing."""
_OF_TENSORS = frozenset({"handle", "shape", "numel", "type", "dtype", "value"})
"""Attributes that a tensor, or a constant, is given when it is made."""


class Certainty:
    """Decides about the errors of one file."""

    def __init__(self, text: str, path: str, tree: ast.Module, namespace: Mapping[str, Any]) -> None:
        self._path = path
        self._lines = text.split("\n")
        self._tree = tree
        self._namespace = namespace
        self._bound = _bound(tree, namespace)
        self._modules = {name for name, value in namespace.items() if isinstance(value, ModuleType)}
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}

    def of(self, problems: Sequence[Problem], assumed: frozenset[str] | None = None) -> bool:
        """Say whether every one of the errors is there whatever was assumed: these parameters of the kernel, or all
        of them.
        """
        return bool(problems) and all(self._is_certain(problem, assumed) for problem in problems)

    def of_text(self, function: Any) -> tuple[Problem, ...]:
        """Return the first error of a kernel that Triton would report before it needs a type: all except those in
        branches.
        """
        line = function.fn.__code__.co_firstlineno
        body = [
            statement
            for node in ast.walk(self._tree)
            if isinstance(node, ast.FunctionDef)
            and node.name == function.fn.__name__
            and line in {each.lineno for each in (node, *node.decorator_list)}
            for statement in node.body
        ]
        problems = [
            self._problem(node, words)
            for statement in body
            for node in ast.walk(statement)
            if (words := self._refused(node)) and not self._is_in_a_branch(node)
        ]
        problems.sort(
            key=lambda problem: (problem.place.line, problem.place.column or 0) if problem.place else (0, 0)
        )
        return tuple(problems[:1])

    def _refused(self, node: ast.AST) -> str:
        """Return what Triton says of a node, whatever surrounds it. Return "" if it accepts it."""
        if isinstance(node, ast.Name):
            read = isinstance(node.ctx, ast.Load) and node.id not in self._bound
            return f"{node.id} is not defined" if read else ""
        if isinstance(node, ast.Attribute):
            module = self._value(node.value)
            if _is_of_triton(module):
                return "" if hasattr(module, node.attr) else f"{module.__name__} has no `{node.attr}`"
            return f"a number has no `{node.attr}`" if self._lacks(node) else ""
        if isinstance(node, ast.Call):
            return "a number cannot be called" if self._is_number(node.func) else ""
        if isinstance(node, ast.keyword) and isinstance(call := self._parents.get(node), ast.Call):
            return _unknown_keyword(self._value(call.func), node.arg)
        if isinstance(node, (ast.stmt, ast.expr)) and not isinstance(node, (ast.FormattedValue, ast.Starred)):
            generator = importlib.import_module("triton.compiler.code_generator").CodeGenerator
            kind = type(node).__name__
            return "" if hasattr(generator, f"visit_{kind}") else f"unsupported AST node type: {kind}"
        return ""

    def _value(self, node: ast.expr) -> Any:
        """Return the value of `tl.math.exp`, if every part of it is there."""
        if isinstance(node, ast.Name):
            return self._namespace.get(node.id) if node.id in self._modules else None
        if isinstance(node, ast.Attribute):
            return getattr(self._value(node.value), node.attr, None)
        return None

    def _lacks(self, node: ast.Attribute) -> bool:
        """Say whether an attribute is of a number, and neither a tensor nor a constant has it."""
        language = importlib.import_module("triton.language")
        kinds: tuple[type, ...] = (language.tensor, language.constexpr, int, float, str)
        known = node.attr in _OF_TENSORS or any(hasattr(kind, node.attr) for kind in kinds)
        return not known and self._is_number(node.value)

    def _is_number(self, node: ast.expr, seen: frozenset[str] = frozenset()) -> bool:
        """Say whether a node is a number or a tensor, whatever the arguments are: those may be functions."""
        match node:
            case ast.Constant():
                return isinstance(node.value, (int, float))
            case ast.BinOp() | ast.Compare() | ast.UnaryOp():
                return True
            case ast.Call():
                function = self._value(node.func)
                return (
                    inspect.isroutine(getattr(function, "fn", function))
                    and ast.unparse(node.func).rpartition(".")[2] in _TENSORS
                )
            case ast.Name():
                return node.id in seen or self._is_name_of_number(node, seen | {node.id})
            case _:
                return False

    def _is_name_of_number(self, name: ast.Name, seen: frozenset[str]) -> bool:
        function = self._function(name)
        if function is None or name.id in _arguments(function):
            return False
        values = list(_values(function, name.id))
        if not values:
            constant: Any = self._namespace.get(name.id)
            return type(constant).__name__ == "constexpr" and isinstance(constant.value, (int, float))
        return all(value is not None and self._is_number(value, seen) for value in values)

    def _function(self, node: ast.AST) -> ast.FunctionDef | None:
        """Return the function around a node."""
        at: ast.AST | None = node
        while not isinstance(at, (ast.FunctionDef, type(None))):
            at = self._parents.get(at)
        return at

    def _problem(self, node: Any, words: str) -> Problem:
        line = self._lines[int(node.lineno) - 1]
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        start, stop = (points(line, offset) + 1 for offset in (node.col_offset, end))
        return Problem("error", words, "triton", Place(self._path, node.lineno, start, stop))

    def _is_certain(self, problem: Problem, assumed: frozenset[str] | None) -> bool:
        named = _OF_NAMES.fullmatch(problem.message)
        own = problem.place is not None and problem.place.file == self._path
        if (
            named and named["name"] not in self._bound and (own or not named["name"])
        ):  # another file binds names of its own
            return True
        node = self._node(problem.place)
        parent = self._parents.get(node) if node else None
        if isinstance(node, ast.keyword) or (isinstance(parent, ast.For) and parent.iter is node):
            node = parent  # the error is of the call, or of the loop
        if node is None:
            return False
        if self._modules.issuperset(_names(node)) and not _is_assertion(node):
            return True
        calls = [self._node(note.place) for note in problem.notes if note.message == "called from here"]
        way = [node, *(call for call in calls if call is not None)]
        if len(way) <= len(calls):
            return False
        tests = [(test, at) for at, each in enumerate(way) for test in self._tests(each)]
        if not self._is_free(tests, way, assumed):
            return False
        certain = bool(_OF_FORM.fullmatch(problem.message) or self._refused(node))
        return certain or self._is_free([(node, 0)], way, assumed)

    def _node(self, place: Place | None) -> ast.AST | None:
        """Return the outermost node of a place in the file."""
        if place is None or place.file != self._path or place.column is None or place.line > len(self._lines):
            return None
        line = self._lines[place.line - 1]
        start, end = (
            len(line[: column - 1].encode()) for column in (place.column, place.end_column or place.column)
        )
        for node in ast.walk(self._tree):
            at: Any = node
            if (getattr(at, "lineno", None), getattr(at, "col_offset", None)) == (place.line, start) and (
                at.end_lineno > place.line or at.end_col_offset == end
            ):
                return node
        return None

    def _is_in_a_branch(self, node: ast.AST) -> bool:
        return any(self._tests(node))

    def _tests(self, node: ast.AST) -> Iterator[ast.expr]:
        """Yield what decides, in the function around a node, whether it is compiled at all."""
        while not isinstance(parent := self._parents.get(node), (ast.FunctionDef, type(None))):
            match parent:
                case ast.If(test=test) | ast.IfExp(test=test) if node is not test:
                    yield test
                case ast.BoolOp(values=[first, *_]) if node is not first:
                    yield parent
                case _:
                    pass
            node = parent

    def _is_free(
        self, parts: Sequence[tuple[ast.AST, int]], way: Sequence[ast.AST], assumed: frozenset[str] | None
    ) -> bool:
        """Say whether the values of these parts depend on nothing assumed. `way` leads from an error through calls to
        the kernel. Each part is in the function around one of its nodes, whose number stands beside it.
        """
        waiting = list(parts)
        seen: set[tuple[str, int]] = set()
        while waiting:
            node, at = waiting.pop()
            function = self._function(way[at])
            if function is None:
                continue
            arguments = _arguments(function)
            for name in _names(node) - self._modules:
                if (name, at) in seen:
                    continue
                seen.add((name, at))
                if name in arguments and at + 1 < len(way) and assumed is not None:
                    waiting += [(value, at + 1) for value in _passed(name, function, way[at + 1])]
                elif name in arguments and (assumed is None or name in assumed):
                    return False
                for value in _values(function, name):
                    if value is None:
                        return False
                    waiting += [(value, at), *((test, at) for test in self._tests(value))]
        return True


def _is_of_triton(value: Any) -> bool:
    return isinstance(value, ModuleType) and value.__name__.startswith("triton.language")


def _arguments(function: ast.FunctionDef) -> set[str]:
    return {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}


def _passed(name: str, function: ast.FunctionDef, call: ast.AST) -> list[ast.expr]:
    """Return what calls within a node give a parameter of a function. Return all of the calls if that is not clear,
    as with `*values`.
    """
    every = [each for each in ast.walk(call) if isinstance(each, ast.Call)]
    calls = [each for each in every if ast.unparse(each.func).rpartition(".")[2] == function.name]
    places = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    values: list[ast.expr] = []
    for each in calls:
        unpacked = any(isinstance(part, ast.Starred) for part in each.args) or any(
            part.arg is None for part in each.keywords
        )
        named = [keyword.value for keyword in each.keywords if keyword.arg == name]
        if unpacked or not (named or name in places):
            return [*every]
        values += named or each.args[places.index(name) :][:1]
    return values if calls else [*every]


def _is_assertion(node: ast.AST) -> bool:
    """Say whether a node is a static_assert. It may stand where an assumed constant has led, as its words say."""
    call = node.value if isinstance(node, ast.Expr) else node
    return isinstance(call, ast.Call) and ast.unparse(call.func).endswith("static_assert")


def _unknown_keyword(called: Any, name: str | None) -> str:
    function = getattr(called, "fn", called)
    if name is None or not inspect.isfunction(function):
        return ""
    parameters = inspect.signature(function).parameters
    if name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return ""
    return f"{function.__name__}() got an unexpected keyword argument '{name}'"


def _names(node: ast.AST) -> set[str]:
    """Return the names in a node, with those that are assigned to: Triton reads the target of `x *= 2`, too."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _values(function: ast.FunctionDef, name: str) -> Iterator[ast.expr | None]:
    """Yield what a local name is assigned, and None if that is not one expression."""
    for node in ast.walk(function):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            targets, value = node.targets if isinstance(node, ast.Assign) else [node.target], node.value
        elif isinstance(node, (ast.For, ast.comprehension)):
            targets, value = [node.target], node.iter
        elif isinstance(node, ast.withitem) and node.optional_vars:
            targets, value = [node.optional_vars], None
        else:
            continue
        if any(
            isinstance(each, ast.Name) and each.id == name for target in targets for each in ast.walk(target)
        ):
            yield value


def _bound(tree: ast.Module, namespace: Mapping[str, Any]) -> set[str]:
    names = {*namespace, *dir(builtins)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.partition(".")[0])
    return names
