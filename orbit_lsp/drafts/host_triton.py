"""A draft from the `kernel[grid](…)` in a Python file: the calls and assignments around it, as far as specs know them.

Read as a syntax tree; nothing of the file is executed. What a function is given by its callers is guessed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from orbit_lsp.drafts import triton
from orbit_lsp.drafts.guesses import Statement, Subject, guessed
from orbit_remote.spec.dtypes import named
from orbit_remote.spec.functions.function_table import function
from orbit_remote.spec.python_expressions import PythonParser
from orbit_remote.spec.rules import OPTIONS
from orbit_remote.spec.syntax_tree import Attribute, Call, Lambda, Name, walk

_SHAPES = ("1 << 20", "1024, 1024", "8, 512, 64", "2, 8, 512, 64")
_ATTRIBUTES = frozenset(("shape", "dtype", "T", "mT", "ndim", "itemsize"))
_CONSTANTS = frozenset(("True", "False", "None", "inf", "nan", "pi"))
_DEVICE = re.compile(
    r"\.(?:cuda|cpu|detach)\(\)|\.to\((?:'[^']*'|device=[\w.']+|\w*dev\w*)\)"
    r"|, (?:device|requires_grad|pin_memory|generator)=(?:'[^']*'|[\w.]+)"
)
"""What chooses where a tensor is, in `ast.unparse`'s spelling."""
_DEEPEST = 12

Function = ast.FunctionDef | ast.AsyncFunctionDef


def draft(subject: Subject, body: triton.Body, tree: ast.Module) -> list[Statement] | None:
    """None where the file launches the kernel nowhere, or in no way that a spec can say."""
    if any(parameter.refused for parameter in subject.header.parameters):
        return None
    functions = [node for node in ast.walk(tree) if isinstance(node, Function)]
    for call in ast.walk(tree):
        match call:
            case ast.Call(func=ast.Subscript(value=ast.Name(id=name))) if name == subject.name:
                around = [
                    function
                    for function in functions
                    if function.lineno <= call.lineno <= (function.end_lineno or 0)
                ]
                if statements := _Host(subject, body, [tree, *around], call.lineno).statements(call):
                    return statements
            case _:
                pass
    return None


@dataclass
class _Host:
    """`scopes` is where names are looked up, from the innermost outwards, above `line`."""

    subject: Subject
    body: triton.Body
    scopes: list[ast.AST]
    line: int
    assigned: dict[str, Statement] = field(default_factory=dict[str, Statement])

    def statements(self, call: ast.Call) -> list[Statement] | None:
        parameters = {parameter.name: parameter for parameter in self.subject.header.parameters}
        given = [
            *zip(parameters, call.args, strict=False),
            *((keyword.arg, keyword.value) for keyword in call.keywords),
        ]
        unpacked = any(name is None or isinstance(node, ast.Starred) for name, node in given)
        if unpacked or len(call.args) > len(parameters) or not isinstance(call.func, ast.Subscript):
            return None
        parts: list[str] = []
        for at, (name, node) in enumerate(given):
            prefix = f"{name}=" if at >= len(call.args) else ""
            if name in parameters:
                parts.append(prefix + self.argument(node, name))
            elif name in OPTIONS and (value := self.expression(node)):
                parts.append(prefix + value)
        grid = call.func.slice
        if isinstance(grid, ast.Name) and isinstance(value := self.defined(grid.id), ast.Lambda):
            grid = value  # a lambda stands in launches only
        text = self.expression(grid)
        launch = Statement(f"launch {self.subject.name}[{text}]({', '.join(parts)})")
        return [*self.assigned.values(), launch] if text else None

    def argument(self, node: ast.expr, parameter: str) -> str:
        """Its expression, or its name with a guess under it."""
        if (known := self.expression(node)) is not None:
            return known
        name = node.id if isinstance(node, ast.Name) else parameter
        while name in self.assigned and not isinstance(node, ast.Name):
            name += "_"
        if name in self.assigned:
            return name
        sizes = triton.sizes_of(self.subject, self.body)
        if parameter in self.body.pointers:
            self.assigned[name] = self.tensor(name)
        elif parameter in sizes.values:
            self.assigned[name] = guessed(name, sizes.values[parameter])
        else:
            of = next(each for each in self.subject.header.parameters if each.name == parameter)
            self.assigned[name] = triton.value_of(of, self.body, sizes).named(name)
        return name

    # -- tensors -----------------------------------------------------------------------------------

    @cached_property
    def code(self) -> str:
        """The function around, in `ast.unparse`'s spelling."""
        return ast.unparse(self.scopes[-1])

    def tensor(self, name: str) -> Statement:
        """A tensor of as many dimensions as the code around speaks of: `M, K = a.shape`, `a.stride(0)`."""
        unpacked = re.findall(rf"([\w, ]+) = {name}\.shape$|from_tensor\({name}, (?:block_shape=)?\[([^\]]+)\]", self.code, re.MULTILINE)  # fmt: skip
        asked = [int(at) for at in re.findall(rf"\b{name}\.(?:shape\[|stride\(|size\()(-?\d)", self.code)]
        # of a single dimension nobody asks for the last
        known = [1, *(at + 1 if at >= 0 else max(-at, 2) for at in asked)]
        known += [(names or block).count(",") + 1 for names, block in unpacked]
        return guessed(name, f"torch.randn({_SHAPES[min(max(known), 4) - 1]})")

    def is_tensor(self, name: str) -> bool:
        """Whether a parameter of the function around is used as a tensor."""
        scope = self.scopes[-1]
        given = isinstance(scope, Function) and name in _defaults(scope)
        return given and re.search(rf"\b{name}\.|(?:_like|from_tensor)\({name}\b", self.code) is not None

    # -- expressions -------------------------------------------------------------------------------

    def expression(self, node: ast.expr, depth: int = 0) -> str | None:
        """The same expression without what chooses a device, its names assigned before; None where specs cannot
        compute it: then nothing stays assigned for its sake.
        """
        before = dict(self.assigned)
        text = _DEVICE.sub("", ast.unparse(node))
        tree = PythonParser.parsed(text)
        own = tree.parameter if isinstance(tree, Lambda) else ""
        for each in walk(tree) if tree else ():
            match each:
                case Name(name=name):
                    known = (
                        name == own
                        or name in _CONSTANTS
                        or self.resolve(name, depth)
                        or named(name, "triton")
                    )
                case Call(name=name):
                    known = function(name, "triton")
                case Attribute(name=name):
                    known = name in _ATTRIBUTES
                case _:
                    known = True
            if not known:
                self.assigned = before
                return None
        return text if tree else None

    def resolve(self, name: str, depth: int) -> bool:
        """Assigns a name of the code, after those it is made of."""
        if name not in self.assigned and depth <= _DEEPEST:
            value = self.defined(name)
            if value is None and self.is_tensor(name):
                self.assigned[name] = self.tensor(name)
            elif value is not None and (text := self.expression(value, depth + 1)) is not None:
                self.assigned[name] = Statement(f"{name} = {text}")
        return name in self.assigned

    def defined(self, name: str) -> ast.expr | None:
        """What a name was last given above the launch; its part where several were given at once."""
        for scope in reversed(self.scopes):
            values = [
                value
                for node in _statements(scope)
                if node.lineno < self.line or scope is self.scopes[0]
                for target, value in triton.assignments(node)
                if target == name
            ]
            if values:
                return values[-1]
            if isinstance(scope, Function) and name in (own := _defaults(scope)):
                return own[name]
        return None


def _defaults(scope: Function) -> dict[str, ast.expr | None]:
    """A function's parameters, each with its default where it has one."""
    by_place = [parameter.arg for parameter in (*scope.args.posonlyargs, *scope.args.args)]
    by_name = [parameter.arg for parameter in scope.args.kwonlyargs]
    last = dict(zip(reversed(by_place), reversed(scope.args.defaults), strict=False))
    return {**dict.fromkeys(by_place), **last, **dict(zip(by_name, scope.args.kw_defaults, strict=True))}


def _statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """In order, those of its blocks too, but not of functions and classes in it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, Function | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from _statements(child)
