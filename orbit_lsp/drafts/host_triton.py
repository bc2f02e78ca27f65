"""Drafts a spec from the `kernel[grid](…)` in a Python file, with the calls and assignments around it as far as
launch specs support them.

The file is read as a syntax tree; nothing of it is executed. The arguments of a function come from its calls in the
file and from `pytest.mark.parametrize`; missing ones are guessed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from orbit_lsp.drafts import guesses, triton
from orbit_lsp.drafts.guesses import DraftStatement, DraftSubject, guessed, used
from orbit_lsp.drafts.python_scopes import BranchValue, ScopeFrame, frames, lookup
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import HostLaunch
from orbit_remote.spec.dtypes import named, told
from orbit_remote.spec.functions.function_table import function
from orbit_remote.spec.python_expressions import PythonParser
from orbit_remote.spec.rules import OPTIONS
from orbit_remote.spec.syntax_tree import Attribute, Call, Lambda, Name, walk

_SHAPES = ("1 << 20", "1024, 1024", "8, 512, 64", "2, 8, 512, 64")
_ATTRIBUTES = frozenset(("shape", "dtype", "T", "mT", "ndim", "itemsize"))
_NUMBERS = frozenset(("float", "int"))
_CONSTANTS = frozenset(("True", "False", "None", "inf", "nan", "pi"))
_DEVICE = re.compile(
    r"\.(?:cuda|cpu|detach)\(\)|\.to\((?:'[^']*'|device=[\w.']+|\w*dev\w*)\)"
    r"|, (?:device|requires_grad|pin_memory|generator)=(?:'[^']*'|[\w.]+)",
    re.IGNORECASE,
)
"""What chooses where a tensor is, in `ast.unparse`'s spelling."""
_MADE = frozenset(("empty", "full", "ones", "rand", "randint", "randn", "zeros"))
"""Functions that make a tensor of a type that its sizes do not change."""
_DEEPEST = 12
_ANY_NUMBER = "3"
"""A number that stands for an unknown one: Triton makes no constant of 3, and finds no divisibility in it."""
_MOST_WAYS = 8
"""How many ways from the calls of a file to a launch are read; the one with the fewest guesses is taken."""


def draft(subject: DraftSubject, body: triton.Body, tree: ast.Module) -> list[DraftStatement] | None:
    """Draft a spec. Return None if the file launches the kernel nowhere, or in no way that a spec can express."""
    read = _read(subject, body, tree)
    return read.statements if read else None


def launch(
    subject: DraftSubject, body: triton.Body, tree: ast.Module, drivers: Sequence[ast.Module] = ()
) -> HostLaunch | None:
    """Return how host code launches the kernel: the statements that prepare its arguments, and what is guessed or
    unknown of them. `drivers` are files that call functions of this one.
    """
    read = _read(subject, body, tree, drivers)
    if read is None:
        return None
    texts = tuple(
        f"{statement.text} {_ANY_NUMBER}"
        if statement.text.endswith("=") and statement.text[:-2] not in read.unknown
        else statement.text
        for statement in read.statements
    )
    return HostLaunch(
        subject.name, read.line, texts, read.guesses, read.unknown, read.assumed, read.sized, read.caller
    )


class _Read(NamedTuple):
    """A draft that was read, with its guesses: the names that are guessed, those among them that decide a constant,
    and the kernel's parameters whose type or value depends on a guess.
    """

    line: int
    statements: list[DraftStatement]
    guesses: tuple[str, ...]
    unknown: tuple[str, ...]
    assumed: tuple[str, ...]
    sized: tuple[str, ...]
    caller: str


def _read(
    subject: DraftSubject, body: triton.Body, tree: ast.Module, drivers: Sequence[ast.Module] = ()
) -> _Read | None:
    """Read the launch with the fewest guesses; the first of several."""
    if any(parameter.refused for parameter in subject.header.parameters):
        return None
    read: list[_Read] = []
    element = told(tree)
    for call in ast.walk(tree):
        match call:
            case ast.Call(func=ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name))) if (
                name == subject.name
            ):
                ways = (
                    _TritonHostCode(subject, body, frame, element).launch(call)
                    for frame in frames(tree, call, _MOST_WAYS, drivers)
                )
                read += filter(None, ways)
            case _:
                pass
    return min(read, key=lambda read: (len(read.unknown), len(read.guesses)), default=None)


@dataclass
class _TritonHostCode:
    """The code around a launch. `frame` is that code. `names` has the spec's name for each value of the code.
    `element` is the type of guessed tensors, if the file says it.
    """

    subject: DraftSubject
    body: triton.Body
    frame: ScopeFrame
    element: str = ""
    assigned: dict[str, DraftStatement] = field(default_factory=dict[str, DraftStatement])
    names: dict[tuple[int, str, int], str] = field(default_factory=dict["tuple[int, str, int]", str])
    typed: set[str] = field(default_factory=set[str])
    """Names of the spec that are guessed numbers whose type an annotation of the code tells."""

    def launch(self, call: ast.Call) -> _Read | None:
        parameters = {parameter.name: parameter for parameter in self.subject.header.parameters}
        left = (
            len(parameters)
            - len(call.keywords)
            - sum(not isinstance(each, ast.Starred) for each in call.args)
        )
        told = not self.subject.header.tuned and not any(each.optional for each in parameters.values())
        one = sum(isinstance(each, ast.Starred) for each in call.args) == 1
        call = ast.Call(
            call.func,
            [each for node in call.args for each in self.unpacked(node, left if one and told else 0)],
            call.keywords,
            lineno=call.lineno,
        )
        given = [
            *zip(parameters, call.args, strict=False),
            *(each for keyword in call.keywords for each in self.named(keyword, call.lineno)),
        ]
        unpacked = any(name is None or isinstance(node, ast.Starred) for name, node in given)
        if unpacked or len(call.args) > len(parameters) or not isinstance(call.func, ast.Subscript):
            return None
        parts: list[str] = []
        constants: list[str] = []
        passed: dict[str, str] = {}
        line = call.lineno
        for at, (name, node) in enumerate(given):
            prefix = f"{name}=" if at >= len(call.args) else ""
            if name in parameters:
                passed[name] = self.argument(node, name)
                parts.append(prefix + passed[name])
            elif name in OPTIONS and (value := self.expression(node, self.frame, line)):
                parts.append(prefix + value)
            else:
                continue
            if name in OPTIONS or name in self.body.constants:
                constants.append(parts[-1].removeprefix(prefix))
        grid: ast.expr | BranchValue = call.func.slice
        frame = self.frame
        value = lookup(grid.id, frame, line) if isinstance(grid, ast.Name) else None
        if value and isinstance(value.node, ast.Lambda):  # a lambda stands in launches only
            grid, frame, line = value.node, value.frame, value.line
        text = self.expression(grid, frame, line)
        if not text:
            return None
        statements = used(
            [
                *self.assigned.values(),
                DraftStatement(f"launch {self.subject.name}[{text}]({', '.join(parts)})"),
            ]
        )
        guesses = {statement.text.partition(" =")[0] for statement in statements if statement.remark}
        assumed = [name for name, value in passed.items() if guesses & self.behind_type(value)]
        sized = [name for name, value in passed.items() if guesses & self.behind([value])]
        return _Read(
            call.lineno,
            statements,
            tuple(sorted(guesses)),
            tuple(sorted(guesses & self.behind(constants))),
            tuple(assumed),
            tuple(name for name in sized if name not in assumed),
            self.frame.caller,
        )

    def unpacked(self, node: ast.expr, left: int) -> list[ast.expr]:
        """Return `x.stride(0), x.stride(1)` for `*x.stride()`, if the code says how many dimensions x has, or that
        many parameters are `left` for it. Otherwise return the node itself.
        """
        match node:
            case ast.Starred(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id=of), attr="stride" | "size" as what), args=[]
                )
            ):
                text = f"{of}.{what}({{}})"
            case ast.Starred(value=ast.Attribute(value=ast.Name(id=of), attr="shape")):
                text = f"{of}.shape[{{}}]"
            case _:
                return [node]
        rank = self.rank(of, self.frame, self.frame.line) or max(left, 0)
        return [ast.parse(text.format(at), mode="eval").body for at in range(rank)] if rank else [node]

    def named(self, keyword: ast.keyword, line: int) -> list[tuple[str | None, ast.expr]]:
        """Return the named arguments of `**{"BLOCK": 64}`, of `**dict(BLOCK=64)`, or of a variable to which the
        function assigns one of these. An argument has no name if the name is not known.
        """
        node = keyword.value
        if keyword.arg is None and isinstance(node, ast.Name):
            value = lookup(node.id, self.frame, line)
            node = (
                value.node
                if value and value.frame is self.frame and isinstance(value.node, ast.expr)
                else node
            )
        match node if keyword.arg is None else None:
            case ast.Dict(keys=keys, values=values):
                names = [key.value if isinstance(key, ast.Constant) else None for key in keys]
                return [
                    (name if isinstance(name, str) else None, each)
                    for name, each in zip(names, values, strict=True)
                ]
            case ast.Call(func=ast.Name(id="dict"), args=[], keywords=inner):
                return [(each.arg, each.value) for each in inner]
            case _:
                return [(keyword.arg, keyword.value)]

    def rank(self, name: str, frame: ScopeFrame, line: int, depth: int = 0) -> int:
        """Return how many dimensions a tensor has, by `M, K = a.shape` or the call that makes it. Return 0 if neither
        says.
        """
        if names := re.search(
            rf"(?<![\w, ])([\w, ]+) = {name}\.(?:shape|size\(\))$", frame.code, re.MULTILINE
        ):
            return names[1].count(",") + 1
        value = lookup(name, frame, line)
        if value is None or depth > _DEEPEST:
            return 0
        match value.node:
            case (
                ast.Name(id=other)
                | ast.Call(
                    func=ast.Attribute(
                        attr="empty_like" | "zeros_like" | "ones_like" | "rand_like" | "randn_like"
                    ),
                    args=[ast.Name(id=other), *_],
                )
            ):
                return self.rank(other, value.frame, value.line, depth + 1)
            case ast.Call(
                func=ast.Attribute(value=made, attr="half" | "to" | "cuda" | "bfloat16" | "float")
            ) if isinstance(made, ast.Call):
                node = made
            case ast.Call() as node:
                pass
            case _:
                return 0
        match node:
            case ast.Call(
                func=ast.Attribute(attr=maker), args=[ast.Tuple(elts=sizes) | ast.List(elts=sizes), *_]
            ) if maker in _MADE - {"randint"}:
                return len(sizes)
            case ast.Call(func=ast.Attribute(attr=maker), args=sizes) if maker in _MADE - {"randint", "full"}:
                return len(sizes)
            case _:
                return 0

    def behind(self, texts: Sequence[str]) -> set[str]:
        """Return the names in expressions, and the names in their values."""
        reached: set[str] = set()
        waiting = [word for text in texts for word in re.findall(r"[^\W\d]\w*", text)]
        while waiting:
            name = waiting.pop()
            if name in self.assigned and name not in reached:
                reached.add(name)
                waiting += re.findall(r"[^\W\d]\w*", self.assigned[name].text)
        return reached

    def behind_type(self, text: str) -> set[str]:
        """Return the names on which the type of an expression depends. How large a number is does not matter."""
        reached: set[str] = set()
        waiting = [text]
        while waiting:
            for node in _typing(ast.parse(waiting.pop(), mode="eval").body):
                if not isinstance(node, ast.Name):
                    reached |= self.behind([ast.unparse(node)])
                elif node.id in self.assigned and node.id not in reached | self.typed:
                    reached.add(node.id)
                    waiting += [value] if (value := self.assigned[node.id].text.partition(" = ")[2]) else []
        return reached

    def argument(self, node: ast.expr, parameter: str) -> str:
        """Return a parameter's expression, or its name with a guess for it."""
        if (known := self.expression(node, self.frame, self.frame.line)) is not None:
            return known
        name = node.id if isinstance(node, ast.Name) else parameter
        while name in self.assigned and not isinstance(node, ast.Name):
            name += "_"
        if name in self.assigned:
            return name
        sizes = triton.sizes_of(self.subject, self.body)
        kind = self.frame.annotation(node.id) if isinstance(node, ast.Name) else ""
        if kind in _NUMBERS and parameter not in self.body.pointers:
            self.typed.add(name)
        if kind == "float" and name in self.typed:
            self.assigned[name] = guessed(name, guesses.real(name))
        elif parameter in self.body.pointers:
            self.assigned[name] = self.tensor(name, self.frame)
        elif parameter in sizes.values:
            self.assigned[name] = guessed(name, sizes.values[parameter])
        else:
            of = next(each for each in self.subject.header.parameters if each.name == parameter)
            self.assigned[name] = triton.value_of(of, self.body, sizes).named(name)
        return name

    # -- tensors -----------------------------------------------------------------------------------

    def tensor(self, name: str, frame: ScopeFrame) -> DraftStatement:
        """Return a tensor with as many dimensions as the code around suggests: `M, K = a.shape`, `a.stride(0)`."""
        code = frame.code
        unpacked = re.findall(rf"(?<![\w, ])([\w, ]+) = {name}\.shape$|from_tensor\({name}, (?:block_shape=)?\[([^\]]{{1,400}})\]", code, re.MULTILINE)  # fmt: skip
        asked = [int(at) for at in re.findall(rf"\b{name}\.(?:shape\[|stride\(|size\()(-?\d)", code)]
        # of a single dimension nobody asks for the last
        known = [1, *(at + 1 if at >= 0 else max(-at, 2) for at in asked)]
        known += [(names or block).count(",") + 1 for names, block in unpacked]
        of = f", dtype=torch.{self.element}" if self.element not in ("", "float32") else ""
        return guessed(name, f"torch.randn({_SHAPES[min(max(known), 4) - 1]}{of})")

    def is_tensor(self, name: str, frame: ScopeFrame) -> bool:
        """Say whether a parameter of the surrounding function is used as a tensor."""
        pattern = rf"\b{name}\.|(?:_like|from_tensor)\({name}\b"
        return name in frame.parameters and re.search(pattern, frame.code) is not None

    # -- expressions -------------------------------------------------------------------------------

    def expression(
        self, node: ast.expr | BranchValue, frame: ScopeFrame, line: int, depth: int = 0
    ) -> str | None:
        """Return the same expression without what chooses a device, and assign its names before. Return None if specs
        cannot compute it; then no assignment for it stays.
        """
        before = dict(self.assigned), dict(self.names)
        text = (
            self._choice(node, depth)
            if isinstance(node, BranchValue)
            else self._expression(node, frame, line, depth)
        )
        if text is None:
            self.assigned, self.names = before
        return text

    def _choice(self, choice: BranchValue, depth: int) -> str | None:
        parts = [
            self.expression(branch.node, branch.frame, branch.line, depth + 1)
            for branch in (choice.then, choice.condition, choice.otherwise)
        ]
        if None in parts:
            return None
        return "{} if {} else {}".format(
            *(f"({part})" if part and " if " in part else part for part in parts)
        )

    def _expression(self, node: ast.expr, frame: ScopeFrame, line: int, depth: int) -> str | None:
        text = _DEVICE.sub("", ast.unparse(node))
        tree = PythonParser.parsed(text)
        own = tree.parameter if isinstance(tree, Lambda) else ""
        renamed: dict[str, str] = {}
        for each in walk(tree) if tree else ():
            match each:
                case Name(name=name) if name == own or name in _CONSTANTS:
                    known = True
                case Name(name=name):
                    if resolved := self.resolve(name, frame, line, depth):
                        renamed[name] = resolved
                    known = resolved or named(name, "triton")
                case Call(name=name):
                    known = function(name, "triton")
                case Attribute(name=name):
                    known = name in _ATTRIBUTES
                case _:
                    known = True
            if not known:
                return None
        if any(name != to for name, to in renamed.items()):
            text = ast.unparse(_Renamed(renamed).visit(ast.parse(text, mode="eval")))
        return text if tree else None

    def resolve(self, name: str, frame: ScopeFrame, line: int, depth: int) -> str:
        """Assign a name of the code, after the names in its value. Return the spec's name for it, "" if that is
        impossible.
        """
        value = lookup(name, frame, line)
        if depth > _DEEPEST:
            return ""
        if value is None and frame is self.frame and name in self.assigned:
            return name  # a guess stands for an argument of the launch
        if value is None:
            key = (id(frame), name, 0)
            if key not in self.names and self.is_tensor(name, frame):
                self.names[key] = self.unique(name)
                self.assigned[self.names[key]] = self.tensor(name, frame).named(self.names[key])
            return self.names.get(key, "")
        of = value.node.id if isinstance(value.node, ast.Name) else ""
        if of and (same := self.resolve(of, value.frame, value.line, depth + 1)):  # another name for it
            return same
        key = (id(value.frame), name, value.line)
        if key not in self.names:
            text = self.expression(value.node, value.frame, value.line, depth + 1)
            if text is None:
                return ""
            self.names[key] = self.unique(name)
            self.assigned[self.names[key]] = DraftStatement(f"{self.names[key]} = {text}")
        return self.names[key]

    def unique(self, name: str) -> str:
        while name in self.assigned:
            name += "_"
        return name


def _typing(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the parts of an expression that decide its type: names by their own types, any other part by its value."""
    match node:
        case ast.Name():
            yield node
        case ast.Subscript(value=ast.Attribute(attr="shape"), slice=place) if not isinstance(
            place, ast.Slice
        ):
            pass  # a number, of whatever tensor
        case ast.Attribute(attr="ndim" | "itemsize"):
            pass
        case ast.Call(func=ast.Attribute(attr="size" | "stride"), args=[_]):
            pass
        case ast.Call(func=ast.Attribute(attr="numel" | "nelement" | "element_size")):
            pass
        case ast.Call(
            func=ast.Attribute(value=ast.Name("torch"), attr=name), args=given, keywords=keywords
        ) if name in _MADE:
            filled = given[1:] if name == "full" else []
            for each in (*filled, *(keyword.value for keyword in keywords)):
                yield from _typing(each)
        case ast.IfExp(test=test, body=body, orelse=otherwise):
            yield test
            yield from (*_typing(body), *_typing(otherwise))
        case ast.BoolOp(values=values):
            yield from values
        case ast.Subscript(value=value, slice=place):
            yield place
            yield from _typing(value)
        case _:
            for each in ast.iter_child_nodes(node):
                yield from _typing(each)


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)
