"""One top-level statement of a Python file -> what kernel discovery needs to know of it.

An outline depends on the statement's text alone (positions count from its first character), so it
is kept as long as that text stands in the file. Names are not resolved here: other statements say
what they mean. Expressions are reduced to the few forms that can make a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, NamedTuple

from orbit_lsp.kernels.model import Span
from orbit_lsp.kernels.python_tokens import CUT, pieces

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_DEPTH = 60
"""Statements nested deeper are not looked at; CPython's own limit is 100 levels of indentation."""
_EXPRESSION_DEPTH = 8

# -- expressions: plain tuples of a kind, so that outlines compare and hash ----------------------


class Name(NamedTuple):
    """`a.b.c`"""

    parts: tuple[str, ...]


class Call(NamedTuple):
    function: Expression
    arguments: tuple[Expression, ...]
    device_only: bool
    """`device=True` is among the keywords: numba's word for a helper."""


class Either(NamedTuple):
    """`a if c else b`, `a or b`"""

    options: tuple[Expression, ...]


class Text(NamedTuple):
    """A string literal."""

    text: str


class Lambda(NamedTuple):
    parameters: tuple[str, ...]
    body: Expression


class Imported(NamedTuple):
    """What an import binds: `triton.language`, `.utils.jit`."""

    path: str


class Local(NamedTuple):
    """The function or class of that number in the outline."""

    kind: Literal["function", "class"]
    index: int


class Written(NamedTuple):
    """An expression inside a function, read only when its text can matter."""

    text: str


Expression = Name | Call | Either | Text | Lambda | Imported | Local | Written | None

# -- scopes --------------------------------------------------------------------------------------

Path = tuple[tuple[int, int, bool], ...]
"""The branches around a statement inside its scope: (which statement, which arm, arms exclude each other)."""


class Binding(NamedTuple):
    order: int
    path: Path
    value: Expression


@dataclass(slots=True)
class Scope:
    kind: Literal["module", "function", "class"]
    parent: int
    qualified: str
    parameters: tuple[str, ...] = ()
    bindings: dict[str, list[Binding]] = field(default_factory=dict[str, list[Binding]])
    globals: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class Function:
    """A `def`. `piece` is its number in the outline's pieces."""

    name: str
    scope: int
    body_scope: int
    order: int
    path: Path
    decorators: tuple[Expression, ...]
    name_span: Span
    whole: Span
    piece: int
    comments: tuple[str, ...]
    returns: list[Expression]
    callable_bare: bool
    returns_value: bool = False


@dataclass(slots=True)
class Class:
    scope: int
    body_scope: int
    order: int
    path: Path
    bases: tuple[Expression, ...]


@dataclass(slots=True)
class Assignment:
    """`name = value` where the value is a call: the form in which a kernel can be made."""

    name: str
    value: Expression
    scope: int
    order: int
    path: Path
    name_span: Span
    whole: Span
    piece: int
    comments: tuple[str, ...]


class Piece(NamedTuple):
    """Tokens that stand together: their digest, their words (attributes as `.name`), the piece around."""

    digest: bytes
    words: frozenset[str]
    parent: int


class LaunchSite(NamedTuple):
    name: str
    line: int
    grid: str
    arguments: tuple[str, ...]


@dataclass(slots=True)
class Outline:
    scopes: list[Scope]
    functions: list[Function]
    classes: list[Class]
    assignments: list[Assignment]
    pieces: list[Piece]
    launches: list[LaunchSite]
    exported: frozenset[str]
    """The strings of an `__all__`."""
    imports: tuple[str, ...]
    stars: tuple[str, ...]
    """Modules of `from m import *`."""
    main_guard: bool
    words: frozenset[str]


@cache
def parser() -> Parser:
    """Tree-sitter loads on the first Python file, not with the server."""
    import tree_sitter  # noqa: PLC0415
    import tree_sitter_python  # noqa: PLC0415

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language()))


def outline(statement: Node, data: bytes) -> Outline:
    """`statement` is a child of the root; `data` are the bytes of its file."""
    return _Walk(statement, data).finish()


@lru_cache(maxsize=4096)
def read(written: str) -> Expression:
    """The expression behind a `Written`."""
    root = parser().parse(written.encode()).root_node
    if root.child_count == 1 and (statement := root.child(0)) and statement.type == "expression_statement":
        return _expression(statement.child(0))
    return None


_FUNCTIONS = frozenset(("function_definition", "class_definition", "decorated_definition"))
_COMPOUND = {  # the statements that hold statements -> (their arms are conditional, exclude each other)
    "if_statement": (True, True),
    "match_statement": (True, True),
    "try_statement": (True, False),
    "for_statement": (True, False),
    "while_statement": (True, False),
    "with_statement": (False, False),
    "ERROR": (False, False),
}
_MAIN = re.compile(rb"""__name__\s*==\s*["']__main__["']|["']__main__["']\s*==\s*__name__""")
_LAUNCH = re.compile(rb"\]\s*\(")
_ORBIT = re.compile(rb"#+\s*orbit:")
_STRING = re.compile(r"""["']([^"'\\\n]*)["']""")


class _Walk:
    def __init__(self, statement: Node, data: bytes) -> None:
        self.data = data
        self.start = statement.start_byte
        self.end = statement.end_byte
        self.row = statement.start_point[0]
        self.scopes = [Scope("module", -1, "")]
        self.functions: list[Function] = []
        self.classes: list[Class] = []
        self.assignments: list[Assignment] = []
        self.cuts: list[tuple[int, int]] = []  # bytes of each piece but the first, in order
        self.parents: list[int] = [-1]
        self.launches: list[LaunchSite] = []
        self.imports: list[str] = []
        self.stars: list[str] = []
        self.exported: set[str] = set()
        self.main_guard = False
        self.order = 0
        self.statement = statement

    def finish(self) -> Outline:
        node = self.statement
        self.visit(node, 0, (), 0, (), None, 0)
        source = self.data[self.start : self.end]
        if _LAUNCH.search(source):
            self.launches.extend(self.find_launches(node))
        text = self.cut(source)
        found = pieces(text, [begins for _, begins in self.marks()])
        made = [
            Piece(blake2b("\0".join(tokens).encode(), digest_size=16).digest(), frozenset(tokens), parent)
            for tokens, parent in zip(found, self.parents, strict=True)
        ]
        return Outline(
            self.scopes, self.functions, self.classes, self.assignments, made, self.launches,
            frozenset(self.exported), tuple(self.imports), tuple(self.stars), self.main_guard,
            frozenset().union(*(piece.words for piece in made)),
        )  # fmt: skip

    # -- pieces --------------------------------------------------------------------------------

    def marks(self) -> list[tuple[int, bool]]:
        """(byte, a piece begins there), in the order of the text; ends before beginnings."""
        marks = [(start, True) for start, _ in self.cuts] + [(end, False) for _, end in self.cuts]
        return sorted(marks)

    def cut(self, source: bytes) -> str:
        if not self.cuts:
            return source.decode()
        parts: list[bytes] = []
        at = 0
        for byte, _ in self.marks():
            parts += (source[at : byte - self.start], CUT.encode())
            at = byte - self.start
        parts.append(source[at:])
        return b"".join(parts).decode()

    # -- positions -----------------------------------------------------------------------------

    def position(self, point: tuple[int, int], byte: int) -> tuple[int, int]:
        """(line, column) from the statement's first character, in code points."""
        row = point[0] - self.row
        line_start = max(byte - point[1], self.start)
        prefix = self.data[line_start:byte]
        return row, len(prefix) if prefix.isascii() else len(prefix.decode(errors="replace"))

    def span(self, first: Node, last: Node) -> Span:
        start = self.position(first.start_point, first.start_byte)
        return Span(*start, *self.position(last.end_point, last.end_byte))

    def text(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode(errors="replace")

    # -- statements ----------------------------------------------------------------------------

    def visit_all(
        self, nodes: Sequence[Node], scope: int, path: Path, piece: int, owner: Function | None, depth: int,
        comments: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """`comments` are the `# orbit:` lines that stand directly above the first of `nodes`."""
        for node in nodes:
            if node.type == "comment":
                if line := orbit_comment(self.data, node):
                    comments = (*comments, line)
            elif node.is_named:
                self.visit(node, scope, path, piece, comments, owner, depth)
                comments = ()

    def visit(
        self, node: Node, scope: int, path: Path, piece: int, comments: tuple[str, ...],
        owner: Function | None, depth: int,
    ) -> None:  # fmt: skip
        kind = node.type
        if kind == "expression_statement":
            if (inner := node.child(0)) is not None and inner.type == "assignment":
                self.assign(node, inner, scope, path, piece, comments)
            elif scope == 0 and inner is not None and inner.type in ("augmented_assignment", "call"):
                self.export(self.text(inner))
        elif kind in _FUNCTIONS:
            self.define(node, scope, path, piece, comments, owner, depth)
        elif kind in _COMPOUND:
            if depth < _DEPTH:
                self.compound(node, scope, path, piece, owner, depth)
        elif kind == "return_statement":
            self.leave(node, owner)
        elif kind in ("import_statement", "import_from_statement"):
            self.bring(node, scope, path)
        elif kind == "global_statement":
            for child in node.named_children:
                self.scopes[scope].globals.add(self.text(child))

    def compound(
        self, node: Node, scope: int, path: Path, piece: int, owner: Function | None, depth: int
    ) -> None:
        kind = node.type
        conditional, exclusive = _COMPOUND.get(kind, (False, False))
        if kind == "if_statement" and scope == 0 and depth == 0:
            condition = node.child_by_field_name("condition")
            if condition and _MAIN.search(self.data, condition.start_byte, condition.end_byte):
                self.main_guard = True
        if kind == "ERROR":  # its children are whatever could be made out
            self.visit_all(node.children, scope, path, piece, owner, depth + 1)
            return
        self.order += 1
        statement = self.order
        for arm, (block, above) in enumerate(self.blocks(node)):
            inside = (*path, (statement, arm, exclusive)) if conditional else path
            self.visit_all(block.children, scope, inside, piece, owner, depth + 1, above)

    def blocks(self, node: Node) -> Iterator[tuple[Node, tuple[str, ...]]]:
        """(block, orbit comments before its first statement) of each arm."""
        above: tuple[str, ...] = ()
        for child in node.children:
            kind = child.type
            if kind == "comment" and (line := orbit_comment(self.data, child)):
                above = (*above, line)
            elif kind == "block":
                if node.type == "match_statement":
                    yield from self.blocks(child)
                else:
                    yield child, above
            elif kind.endswith("_clause") or kind == "ERROR":
                yield from self.blocks(child)

    def leave(self, node: Node, owner: Function | None) -> None:
        if owner is None:
            return
        value = next((child for child in node.named_children if child.type != "comment"), None)
        if value is not None:
            owner.returns_value = True
            if value.type in _VALUES:
                owner.returns.append(Written(self.text(value)))

    def bind(self, name: str, scope: int, path: Path, value: Expression) -> None:
        if name in self.scopes[scope].globals:  # may run at any time, or never
            scope, path = 0, ((self.order, 0, False),)
        self.scopes[scope].bindings.setdefault(name, []).append(Binding(self.order, path, value))

    def bring(self, node: Node, scope: int, path: Path) -> None:
        self.order += 1
        names = node.children_by_field_name("name")
        if node.type == "import_statement":
            for name in names:
                module, alias = self.imported(name)
                if scope == 0:
                    self.imports.append(module)
                if alias:
                    self.bind(alias, scope, path, Imported(module))
                else:
                    first = module.partition(".")[0]
                    self.bind(first, scope, path, Imported(first))
            return
        source = node.child_by_field_name("module_name")
        module = "".join(self.text(source).split()) if source else ""
        dots_only = not module.strip(".")
        if scope == 0 and not dots_only:
            self.imports.append(module)
        for name in names:
            what, alias = self.imported(name)
            if scope == 0 and dots_only:
                self.imports.append(module + what)
            self.bind(alias or what, scope, path, Imported(f"{module}{'' if dots_only else '.'}{what}"))
        if any(child.type == "wildcard_import" for child in node.children):
            self.stars.append(module)
            if scope == 0 and dots_only:
                self.imports.append(module)

    def imported(self, node: Node) -> tuple[str, str]:
        if node.type != "aliased_import":
            return "".join(self.text(node).split()), ""
        name, alias = node.child_by_field_name("name"), node.child_by_field_name("alias")
        return "".join(self.text(name).split()) if name else "", self.text(alias) if alias else ""

    def assign(
        self, statement: Node, node: Node, scope: int, path: Path, piece: int, comments: tuple[str, ...]
    ) -> None:
        self.order += 1
        targets: list[Node] = []
        value: Node | None = node
        while value is not None and value.type == "assignment":
            if left := value.child_by_field_name("left"):
                targets.append(left)
            value = value.child_by_field_name("right")
        if value is None:
            return
        for target in targets:
            if target.type == "identifier":
                self.assign_one(statement, target, value, scope, path, piece, comments)
            elif target.type in ("pattern_list", "tuple_pattern"):
                names = target.named_children
                values = value.named_children if value.type in ("expression_list", "tuple") else []
                for i, name in enumerate(names):
                    if name.type == "identifier":
                        one = values[i] if len(values) == len(names) else None
                        self.assign_one(statement, name, one, scope, path, piece, comments)

    def assign_one(
        self, statement: Node, target: Node, value: Node | None, scope: int, path: Path, piece: int,
        comments: tuple[str, ...],
    ) -> None:  # fmt: skip
        name = self.text(target)
        if value is None or value.type not in _VALUES:
            if scope == 0 and name == "__all__" and value is not None:
                self.export("__all__" + self.text(value))
            self.bind(name, scope, path, None)
            return
        in_function = self.scopes[scope].kind == "function"
        expression = Written(self.text(value)) if in_function else _expression(value)
        self.bind(name, scope, path, expression)
        if value.type == "call":
            span = self.span(target, target)
            whole = self.span(statement, statement)
            self.assignments.append(
                Assignment(name, expression, scope, self.order, path, span, whole, piece, comments)
            )

    def export(self, text: str) -> None:
        if text.startswith("__all__"):
            self.exported.update(_STRING.findall(text))

    def define(
        self, node: Node, scope: int, path: Path, piece: int, comments: tuple[str, ...],
        owner: Function | None, depth: int,
    ) -> None:  # fmt: skip
        definition, decorators, between = node, [], ()
        if node.type == "decorated_definition":
            for child in node.children:
                if child.type == "decorator":
                    decorators.append(next(iter(child.named_children), None))
                elif child.type == "comment" and (line := orbit_comment(self.data, child)):
                    between = (*between, line)
            found = node.child_by_field_name("definition")
            if found is None:
                return
            definition = found
        label = definition.child_by_field_name("name")
        body = definition.child_by_field_name("body")
        if label is None:
            return
        self.order += 1
        order = self.order
        name = self.text(label)
        around = self.scopes[scope]
        qualified = f"{around.qualified}.{name}" if around.qualified else name
        inner = len(self.scopes)
        above = tuple(
            line
            for child in definition.children
            if child.type == "comment" and (line := orbit_comment(self.data, child))
        )
        if definition.type == "class_definition":
            self.scopes.append(Scope("class", scope, qualified))
            bases = definition.child_by_field_name("superclasses")
            self.classes.append(
                Class(
                    scope, inner, order, path, tuple(map(_expression, bases.named_children)) if bases else ()
                )
            )
            self.bind(name, scope, path, Local("class", len(self.classes) - 1))
            if body and depth < _DEPTH:
                self.visit_all(body.children, inner, (), piece, None, depth + 1, above)
            return
        signature = definition.child_by_field_name("parameters")
        parameters = tuple(_parameters(signature)) if signature else ()
        self.scopes.append(Scope("function", scope, qualified, tuple(name for name, _ in parameters)))
        self.cuts.append((node.start_byte, node.end_byte))
        self.parents.append(piece)
        piece = len(self.cuts)
        is_async = any(child.type == "async" for child in definition.children[:1])
        function = Function(
            name, scope, inner, order, path,
            tuple(_expression(decorator) if decorator else None for decorator in decorators),
            self.span(label, label), self.span(node, node), piece, (*comments, *between), [],
            all(optional for _, optional in parameters) and not is_async,
        )  # fmt: skip
        self.functions.append(function)
        self.bind(name, scope, path, Local("function", len(self.functions) - 1))
        if body and depth < _DEPTH:
            self.visit_all(body.children, inner, (), piece, function, depth + 1, above)
        if owner is not None:
            owner.returns.extend(function.returns)

    # -- launches ------------------------------------------------------------------------------

    def find_launches(self, node: Node) -> Iterator[LaunchSite]:
        for match in _LAUNCH.finditer(self.data, self.start, self.end):
            call = node.descendant_for_byte_range(match.end() - 1, match.end())
            call = call.parent.parent if call and call.type == "(" and call.parent else None
            if call is None or call.type != "call":
                continue
            callee = call.child_by_field_name("function")
            arguments = call.child_by_field_name("arguments")
            if callee is None or callee.type != "subscript" or arguments is None:
                continue
            base = callee.child_by_field_name("value")
            if base is None or base.type not in ("identifier", "attribute"):
                continue
            name = base if base.type == "identifier" else base.child_by_field_name("attribute")
            grid = ", ".join(map(self.text, callee.children_by_field_name("subscript")))
            yield LaunchSite(
                self.text(name) if name else "",
                call.start_point[0] - self.row,
                grid,
                tuple(self.text(one) for one in arguments.named_children if one.type != "comment"),
            )


def orbit_comment(data: bytes, node: Node) -> str:
    """The text of an `# orbit:` comment that has its line to itself; empty for any other."""
    if not _ORBIT.match(data, node.start_byte, node.end_byte):
        return ""
    line_start = data.rfind(b"\n", 0, node.start_byte) + 1
    if data[line_start : node.start_byte].strip():
        return ""
    return data[node.start_byte : node.end_byte].decode(errors="replace").lstrip("#").strip()


def _parameters(signature: Node) -> Iterator[tuple[str, bool]]:
    """(name, may be left out) of each parameter."""
    for node in signature.named_children:
        if node.type == "identifier":
            yield _text(node), False
        elif node.type in ("default_parameter", "typed_default_parameter"):
            name = node.child_by_field_name("name")
            yield _text(name), True
        elif node.type == "typed_parameter":
            inner = node.named_child(0)
            if inner is not None:
                splat = inner.type in ("list_splat_pattern", "dictionary_splat_pattern")
                yield _text(inner).lstrip("* "), splat
        elif node.type in ("list_splat_pattern", "dictionary_splat_pattern"):
            yield _text(node).lstrip("* "), True


_VALUES = frozenset(
    ("call", "attribute", "identifier", "conditional_expression", "boolean_operator", "lambda",
     "parenthesized_expression")
)  # fmt: skip


def _expression(node: Node | None, depth: int = 0) -> Expression:
    if node is None or depth > _EXPRESSION_DEPTH:
        return None
    kind = node.type
    if kind == "identifier":
        return Name((_text(node),))
    if kind == "attribute":
        return _attribute(node)
    if kind == "call":
        return _call(node, depth)
    if kind == "string":
        return Text(_text(node).strip("rRbBuUfF").strip("\"'"))
    if kind == "parenthesized_expression":
        inner = [child for child in node.named_children if child.type != "comment"]
        return _expression(inner[0], depth + 1) if len(inner) == 1 else None
    if kind == "conditional_expression":
        parts = [child for child in node.named_children if child.type != "comment"]
        return Either((_expression(parts[0], depth + 1), _expression(parts[-1], depth + 1)))
    if kind == "boolean_operator":
        return Either(
            (
                _expression(node.child_by_field_name("left"), depth + 1),
                _expression(node.child_by_field_name("right"), depth + 1),
            )
        )
    if kind == "lambda":
        signature = node.child_by_field_name("parameters")
        names = tuple(name for name, _ in _parameters(signature)) if signature else ()
        return Lambda(names, _expression(node.child_by_field_name("body"), depth + 1))
    return None


def _attribute(node: Node) -> Expression:
    parts: list[str] = []
    at: Node | None = node
    while at is not None and at.type == "attribute":
        parts.append(_text(at.child_by_field_name("attribute")))
        at = at.child_by_field_name("object")
    if at is None or at.type != "identifier":
        return None
    parts.append(_text(at))
    return Name(tuple(reversed(parts)))


def _call(node: Node, depth: int) -> Expression:
    function = _expression(node.child_by_field_name("function"), depth + 1)
    if function is None:
        return None
    arguments: list[Expression] = []
    device_only = False
    holder = node.child_by_field_name("arguments")
    for child in holder.named_children if holder else ():
        if child.type == "keyword_argument":
            name, value = child.child_by_field_name("name"), child.child_by_field_name("value")
            if _text(name) == "device" and _text(value) == "True":
                device_only = True
            elif _text(name) in ("fn", "func", "function"):
                arguments.append(_expression(value, depth + 1))
        elif child.type != "comment":
            arguments.append(_expression(child, depth + 1))
    return Call(function, tuple(arguments), device_only)


def _text(node: Node | None) -> str:
    return node.text.decode(errors="replace") if node is not None and node.text else ""
