"""A draft from the `kernel[grid](…)` in a Python file: the calls and assignments around it, as far as specs know them.

Read as a syntax tree; nothing of the file is executed. What a function is given by its callers is made up.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from orbit_lsp.drafts import Subject, triton
from orbit_remote.spec.functions.call import IGNORED
from orbit_remote.spec.functions.function_table import function
from orbit_remote.spec.rules import OPTIONS

_SHAPES = {1: "1 << 20", 2: "1024, 1024", 3: "8, 512, 64", 4: "2, 8, 512, 64"}
_PREFIXES = frozenset(("torch", "triton", "tl", "math"))
_ATTRIBUTES = frozenset(("shape", "dtype", "T", "mT", "ndim", "itemsize"))
_PLACES = frozenset(("cuda", "cpu"))
_DEEPEST = 12


def draft(subject: Subject, text: str) -> list[str] | None:
    """None where the file launches the kernel nowhere, or in no way that a spec can say."""
    if f"{subject.name}[" not in text or any(one.refused for one in subject.header.parameters):
        return None
    try:
        for call, scopes in _launches(ast.parse(text), subject.name):
            if statements := _Host(subject, scopes, call.lineno).statements(call):
                return statements
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # no Python, or nested beyond reading
        return None
    return None


def _launches(tree: ast.Module, name: str) -> Iterator[tuple[ast.Call, list[ast.AST]]]:
    """Every launch of the kernel with what encloses it: the module, and functions to the innermost."""

    def within(node: ast.AST, scopes: list[ast.AST]) -> Iterator[tuple[ast.Call, list[ast.AST]]]:
        for child in ast.iter_child_nodes(node):
            inner = [*scopes, child] if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else scopes
            if isinstance(child, ast.Call) and isinstance(child.func, ast.Subscript):
                of = child.func.value
                if isinstance(of, ast.Name) and of.id == name:
                    yield child, scopes
            yield from within(child, inner)

    yield from within(tree, [tree])


class _Unknown(Exception):  # noqa: N818
    """An expression that specs cannot compute."""


@dataclass
class _Host:
    """`scopes` is where names are looked up, from the innermost outwards, above `line`."""

    subject: Subject
    scopes: list[ast.AST]
    line: int
    assigned: dict[str, str] = field(default_factory=dict[str, str])
    pointers: set[str] = field(default_factory=set[str])

    def statements(self, call: ast.Call) -> list[str] | None:
        if any(isinstance(one, ast.Starred) for one in call.args) or any(
            one.arg is None for one in call.keywords
        ):
            return None
        header = self.subject.header
        self.pointers = triton.addresses(self.subject)
        parts: list[str] = []
        try:
            for at, node in enumerate(call.args):
                name = header.parameters[at].name if at < len(header.parameters) else ""
                parts.append(self.argument(node, name))
            known = {one.name for one in header.parameters}
            for keyword in call.keywords:
                name = keyword.arg or ""
                if name in known:
                    parts.append(f"{name}={self.argument(keyword.value, name)}")
                elif name in OPTIONS:
                    value = self.either(keyword.value)
                    parts += [f"{name}={value}"] if value else []
            grid = self.grid(call.func.slice) if isinstance(call.func, ast.Subscript) else ""
        except _Unknown:
            return None
        launch = f"launch {self.subject.name}[{grid}]({', '.join(parts)})"
        return [*(f"{name} = {value}" for name, value in self.assigned.items()), launch]

    # -- arguments ---------------------------------------------------------------------------------

    def argument(self, node: ast.expr, parameter: str) -> str:
        """Its expression, or its name with something made up under it."""
        if found := self.either(node):
            return found
        name = node.id if isinstance(node, ast.Name) else parameter
        if parameter in triton.descriptors(self.subject):
            self.assigned.setdefault(
                name, triton.descriptor(parameter, self.subject, triton.sizes_of(self.subject))
            )
        elif parameter in self.pointers:
            self.assigned.setdefault(name, self.made_up(name))
        elif (value := self.constant(parameter)) is not None:
            self.assigned.setdefault(name, value)
        else:
            raise _Unknown
        return name

    def constant(self, parameter: str) -> str | None:
        """A number for a parameter that the text does not say."""
        one = next((each for each in self.subject.header.parameters if each.name == parameter), None)
        if one is None:
            return None
        sizes = triton.sizes_of(self.subject)
        if one.name in sizes.named:
            return sizes.named[one.name]
        return triton.constant(one.name, self.subject, sizes) if one.kind == "constexpr" else triton.number(one.name, sizes)  # fmt: skip

    def made_up(self, name: str) -> str:
        """A tensor of as many dimensions as the code around asks of it."""
        return f"torch.randn({_SHAPES[min(max(1, self.rank(name)), 4)]})"

    def rank(self, name: str) -> int:
        """From `M, K = a.shape`, `a.shape[1]`, `a.stride(0)`; 0 where nothing says."""
        most = 0
        for node in ast.walk(self.scopes[-1]):
            match node:
                case ast.Assign(targets=[ast.Tuple(elts=elements)], value=ast.Attribute(value=ast.Name(id=of), attr="shape")):  # fmt: skip
                    most = max(most, len(elements)) if of == name else most
                case (
                    ast.Subscript(
                        value=ast.Attribute(value=ast.Name(id=of), attr="shape"),
                        slice=ast.Constant(value=int(at)),
                    )
                    | ast.Call(
                        func=ast.Attribute(value=ast.Name(id=of), attr="stride" | "size"),
                        args=[ast.Constant(value=int(at))],
                    )
                ):
                    most = max(most, at + 1) if of == name else most
                case ast.Subscript(
                    value=ast.Attribute(value=ast.Name(id=of), attr="shape"),
                    slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(at))),
                ):  # of a single dimension nobody asks for the last
                    most = max(most, at, 2) if of == name else most
                case ast.Call(func=ast.Attribute(attr="from_tensor"), args=[ast.Name(id=of), *rest]):
                    blocks = [*rest, *(one.value for one in node.keywords)]
                    ranks = [len(one.elts) for one in blocks if isinstance(one, ast.List | ast.Tuple)]
                    most = max(most, *ranks, 0) if of == name else most
                case _:
                    pass
        return most

    # -- the grid ----------------------------------------------------------------------------------

    def grid(self, node: ast.expr) -> str:
        """As it is written, a name replaced by the function it stands for: a lambda stands in launches only."""
        if isinstance(node, ast.Name) and isinstance(value := self.defined(node.id), ast.Lambda):
            node = value
        if isinstance(node, ast.Lambda):
            if len(node.args.args) != 1:
                raise _Unknown
            meta = node.args.args[0].arg
            return f"lambda {meta}: {self.expression(node.body, 0, meta)}"
        return self.expression(node, 0)

    # -- expressions -------------------------------------------------------------------------------

    def either(self, node: ast.expr) -> str:
        """Empty where specs cannot compute it; then nothing stays assigned for its sake."""
        before = dict(self.assigned)
        try:
            return self.expression(node, 0)
        except _Unknown:
            self.assigned = before
            return ""

    def expression(self, node: ast.expr, depth: int, meta: str = "") -> str:
        """The same expression without what chooses a device, its names assigned before. Raises _Unknown."""
        return ast.unparse(self.cleaned(node, depth, meta))

    def cleaned(self, node: ast.expr, depth: int, meta: str) -> ast.expr:
        def inner(one: ast.expr) -> ast.expr:
            return self.cleaned(one, depth, meta)

        match node:
            case ast.Constant(value=int() | float() | bool() | str() | None):
                return node
            case ast.Name(id=name):
                if name != meta:
                    self.resolve(name, depth)
                return node
            case ast.UnaryOp():
                return ast.UnaryOp(node.op, inner(node.operand))
            case ast.BinOp():
                return ast.BinOp(inner(node.left), node.op, inner(node.right))
            case ast.Compare(ops=[operator], comparators=[right]):
                return ast.Compare(inner(node.left), [operator], [inner(right)])
            case ast.IfExp():
                return ast.IfExp(inner(node.test), inner(node.body), inner(node.orelse))
            case ast.Tuple() | ast.List():
                return ast.Tuple([inner(one) for one in node.elts], ast.Load())
            case ast.Subscript(slice=ast.Slice()):
                raise _Unknown
            case ast.Subscript():
                return ast.Subscript(inner(node.value), inner(node.slice), ast.Load())
            case ast.Attribute(value=ast.Name(id=prefix)) if prefix in _PREFIXES:
                return node
            case ast.Attribute() if node.attr in _ATTRIBUTES:
                return ast.Attribute(inner(node.value), node.attr, ast.Load())
            case ast.Call(func=ast.Name(id="TensorDescriptor"), args=[of, _, _, block], keywords=[]):
                made = ast.Attribute(ast.Name("TensorDescriptor", ast.Load()), "from_tensor", ast.Load())
                return ast.Call(made, [inner(of), inner(block)], [])
            case ast.Call():
                return self.call(node, depth, meta)
            case _:
                raise _Unknown

    def call(self, node: ast.Call, depth: int, meta: str) -> ast.expr:
        match node.func:
            case ast.Name(id=name):
                of: ast.expr = node.func
            case ast.Attribute(value=ast.Name(id="TensorDescriptor"), attr="from_tensor" as name):
                of = node.func
            case ast.Attribute(value=ast.Name(id=prefix), attr=name) if prefix in _PREFIXES:
                of = node.func
            case ast.Attribute(value=value, attr=name):
                receiver = self.cleaned(value, depth, meta)
                if name in ("cuda", "cpu", "detach") or (name == "to" and _is_device(node)):
                    return receiver
                of = ast.Attribute(receiver, name, ast.Load())
            case _:
                raise _Unknown
        if function(name, "triton") is None:
            raise _Unknown
        keywords = [
            ast.keyword(one.arg, self.cleaned(one.value, depth, meta))
            for one in node.keywords
            if one.arg and one.arg not in IGNORED
        ]
        if any(one.arg is None for one in node.keywords) or any(
            isinstance(one, ast.Starred) for one in node.args
        ):
            raise _Unknown
        return ast.Call(of, [self.cleaned(one, depth, meta) for one in node.args], keywords)

    def resolve(self, name: str, depth: int) -> None:
        """Assigns a name, after those it is made of. Raises _Unknown."""
        if name in self.assigned:
            return
        if depth > _DEEPEST:
            raise _Unknown
        value = self.defined(name)
        if value is not None:
            self.assigned[name] = self.expression(value, depth + 1)
        elif self.is_tensor(name):
            self.assigned[name] = self.made_up(name)
        else:
            raise _Unknown

    def is_tensor(self, name: str) -> bool:
        """Whether a parameter of the function around is used as a tensor."""
        scope = self.scopes[-1]
        if not isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        if name not in {
            one.arg for one in (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs)
        }:
            return False
        for node in ast.walk(scope):
            match node:
                case ast.Attribute(value=ast.Name(id=of)) if of == name:
                    return True
                case ast.Call(func=called, args=[ast.Name(id=of), *_]) if of == name:
                    if ast.unparse(called).endswith(("_like", ".from_tensor")):
                        return True
                case _:
                    pass
        return False

    def defined(self, name: str) -> ast.expr | None:
        """What a name was last given above the launch; its part where several were given at once."""
        for scope in reversed(self.scopes):
            found: ast.expr | None = None
            for node in _statements(scope):
                if node.lineno >= self.line and scope is not self.scopes[0]:
                    continue
                found = _given(node, name) or found
            if found is not None:
                return found
            if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef) and name in (
                own := _defaults(scope)
            ):
                return own[name]
        return None


def _defaults(scope: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr | None]:
    """A function's parameters, each with its default where it has one."""
    by_place = [*scope.args.posonlyargs, *scope.args.args]
    lacking: list[ast.expr | None] = [None] * (len(by_place) - len(scope.args.defaults))
    found = dict(zip((one.arg for one in by_place), [*lacking, *scope.args.defaults], strict=True))
    return found | dict(zip((one.arg for one in scope.args.kwonlyargs), scope.args.kw_defaults, strict=True))


def _is_device(node: ast.Call) -> bool:
    """`x.to("cuda")`, `x.to(device)`, `x.to(device=…)`."""
    first = node.args[0] if node.args else None
    if isinstance(first, ast.Constant):
        return isinstance(first.value, str)
    named = isinstance(first, ast.Name) and "dev" in first.id.lower()
    return named or (first is None and all(one.arg == "device" for one in node.keywords))


def _statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """In order, those of its blocks too, but not of functions and classes in it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from _statements(child)


def _given(node: ast.stmt, name: str) -> ast.expr | None:
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                match target:
                    case ast.Name(id=of) if of == name:
                        return value
                    case ast.Tuple(elts=elements):
                        for at, one in enumerate(elements):
                            if isinstance(one, ast.Name) and one.id == name:
                                if isinstance(value, ast.Tuple) and len(value.elts) == len(elements):
                                    return value.elts[at]
                                return ast.Subscript(value, ast.Constant(at), ast.Load())
                    case _:
                        pass
        case ast.AnnAssign(target=ast.Name(id=of), value=value) if of == name:
            return value
        case _:
            pass
    return None
