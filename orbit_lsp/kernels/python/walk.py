"""Makes the outline of one parsed region of a Python file, statement by statement, scope by scope.

A region with a syntax error is walked too: whatever the parser recognised in a faulty part counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from orbit_lsp.kernels import piecewise
from orbit_lsp.kernels.model import Span
from orbit_lsp.kernels.python import slow_lines
from orbit_lsp.kernels.python.dsls import MAKER_WORD
from orbit_lsp.kernels.python.expressions import (
    VALUES,
    Expression,
    ImportedName,
    Local,
    Written,
    expression_of,
    parameters_of,
)
from orbit_lsp.kernels.python.outline import (
    Binding,
    CallAssignment,
    Class,
    LaunchSite,
    Outline,
    OutlinePiece,
    Path,
    PythonFunction,
    PythonScope,
)
from orbit_lsp.kernels.python.tokens import CUT, pieces
from orbit_remote.common import limits

if TYPE_CHECKING:
    from tree_sitter import Node

_NOTHING = frozenset[str]()
_DEPTH = 60
"""Statements nested deeper are not looked at; CPython's own limit is 100 levels of indentation."""
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
_GLOBAL = b"__global__"
_LONGEST_WORD = 64
_QUOTES = re.compile(r"\A\w*(?:\"\"\"|'''|[\"'])|(?:\"\"\"|'''|[\"'])\Z")
_MAIN = re.compile(rb"""__name__\s*==\s*["']__main__["']|["']__main__["']\s*==\s*__name__""")
_LAUNCH = re.compile(rb"\]\s*\(")
_WORD = re.compile(r"\.?[^\W\d]").match
_CALLEE = re.compile(r"(?<![\w.])([^\W\d]\w*)\s*\(")
_STRING = re.compile(r"""["']([^"'\\\n]*)["']""")


def outline(text: str) -> Outline:
    return _SyntaxWalk(text).finish() if len(text) <= limits.STATEMENT.most else unread(text)


def unread(text: str) -> Outline:
    """Return the outline of a region behind a limit: it is only known when it changes."""
    piece = OutlinePiece(_digest([text]), _NOTHING, -1)
    return Outline(
        (PythonScope("module", -1, ""),), (), (), (), (piece,), (), _NOTHING, (), (), False, False, (), _NOTHING, False, (), False,
        text, text.count("\n"), 0, left_out=_says_maker(text.encode()),
    )  # fmt: skip


def _says_maker(data: bytes) -> bool:
    return piecewise.search(MAKER_WORD, data, 0, len(data), _LONGEST_WORD) is not None


class _At(NamedTuple):
    """Where a statement stands."""

    scope: int
    path: Path
    piece: int
    owner: PythonFunction | None
    """The function whose `return` it may be."""
    depth: int


class _SyntaxWalk:
    def __init__(self, text: str) -> None:
        self.source = text
        self.data = text.encode()
        self.readable, self.stands_for = slow_lines.blanked(text)
        self.scopes = [PythonScope("module", -1, "")]
        self.functions: list[PythonFunction] = []
        self.classes: list[Class] = []
        self.assignments: list[CallAssignment] = []
        self.cuts: list[tuple[int, int]] = []  # bytes of each piece but the first, in order
        self.parents: list[int] = [-1]
        self.imports: list[str] = []
        self.stars: list[str] = []
        self.exported: set[str] = set()
        self.main_guard = False
        self.calls = False
        self.order = 0

    def finish(self) -> Outline:
        root = slow_lines.parsed(self.readable)
        trailing = self.visit_all(root.children, _At(0, (), 0, None, 0))
        launches = tuple(self.find_launches(root)) if _LAUNCH.search(self.data) else ()
        embedded = tuple(self.find_embedded(root)) if _GLOBAL in self.data else ()
        parts = pieces(self.cut(), [begins for _, begins in self.marks()])
        made = [
            OutlinePiece(_digest(tokens), frozenset(filter(_WORD, set(tokens))), parent)
            for tokens, parent in zip(parts, self.parents, strict=True)
        ]
        for function in self.functions:
            words = frozenset[str]().union(*(made[i].words for i in function.pieces))
            function.words = words.difference(_own_names(self.scopes[function.body_scope]))
        return Outline(
            tuple(self.scopes), tuple(self.functions), tuple(self.classes), tuple(self.assignments), tuple(made), launches,
            frozenset(self.exported) if self.exported else _NOTHING, tuple(self.imports), tuple(self.stars),
            self.main_guard, self.calls, embedded,
            made[0].words.union(*(piece.words for piece in made[1:])) if len(made) > 1 else made[0].words,
            MAKER_WORD.search(self.data) is not None, trailing, root.has_error,
            self.source, self.source.count("\n"), max(self.order, 1),
        )  # fmt: skip

    # -- pieces --------------------------------------------------------------------------------

    def marks(self) -> list[tuple[int, bool]]:
        """Return (byte, whether a piece begins there) in the order of the text, with ends before beginnings."""
        marks = [(start, True) for start, _ in self.cuts] + [(end, False) for _, end in self.cuts]
        return sorted(marks)

    def cut(self) -> str:
        """The text with a `CUT` at each mark."""
        if not self.cuts:
            return self.source
        parts: list[bytes] = []
        at = 0
        for byte, _ in self.marks():
            parts += (self.data[at:byte], CUT.encode())
            at = byte
        parts.append(self.data[at:])
        return b"".join(parts).decode()

    # -- positions -----------------------------------------------------------------------------

    def position(self, point: tuple[int, int], byte: int) -> tuple[int, int]:
        """Return (line, column) in code points."""
        row, column = point
        prefix = self.data[byte - column : byte]
        return row, column if prefix.isascii() else len(prefix.decode(errors="replace"))

    def span(self, first: Node, last: Node) -> Span:
        start = self.position(first.start_point, first.start_byte)
        return Span(*start, *self.position(last.end_point, last.end_byte))

    def text(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode(errors="replace")

    # -- statements ----------------------------------------------------------------------------

    def visit_all(self, nodes: Sequence[Node], at: _At, comments: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Visit nodes. `comments` are the `# orbit:` lines directly above the first node. Return the `# orbit:` lines that
        stand after the last node.
        """
        for node in nodes:
            if node.type == "comment":
                comments = (*comments, *self.orbit_comment(node))
            elif node.is_named:
                self.visit(node, at, comments)
                comments = ()
        return comments

    def orbit_comment(self, node: Node) -> tuple[str, ...]:
        """Return the text of an `# orbit:` comment that has its line to itself, and of the lines that it stands for.
        Return none for any other.
        """
        written = self.text(node)
        if not slow_lines.ORBIT.match(written):
            return ()
        line_start = self.data.rfind(b"\n", 0, node.start_byte) + 1
        if self.data[line_start : node.start_byte].strip():
            return ()
        comments = written, *self.stands_for.get(node.start_byte, ())
        return tuple(comment.lstrip("#").strip() for comment in comments)

    def visit(self, node: Node, at: _At, comments: tuple[str, ...]) -> None:
        kind = node.type
        if kind == "expression_statement":
            inner = node.children[0]
            if inner.type == "assignment":
                self.assign(inner, at, comments)
            elif at.scope == 0 and inner.type in ("augmented_assignment", "call"):
                self.calls |= inner.type == "call"
                self.export(self.text(inner))
        elif kind in _FUNCTIONS:
            self.define(node, at, comments)
        elif kind in _COMPOUND:
            if at.depth < _DEPTH:
                self.compound(node, at)
        elif kind == "return_statement":
            self.leave(node, at.owner)
        elif kind in ("import_statement", "import_from_statement"):
            self.bring(node, at)
        elif kind == "global_statement":
            for child in node.named_children:
                self.scopes[at.scope].globals |= {self.text(child)}

    def compound(self, node: Node, at: _At) -> None:
        conditional, exclusive = _COMPOUND[node.type]
        inner = at._replace(depth=at.depth + 1)
        if node.type == "ERROR":  # its children are whatever could be made out
            self.visit_all(node.children, inner)
            return
        if node.type == "if_statement" and at.scope == 0 and not at.path:
            condition = node.child_by_field_name("condition")
            if condition and _MAIN.search(self.data, condition.start_byte, condition.end_byte):
                self.main_guard = True
        self.order += 1
        statement = self.order
        for arm, (block, above) in enumerate(self.blocks(node)):
            path = (*at.path, (statement, arm, exclusive)) if conditional else at.path
            self.visit_all(block.children, inner._replace(path=path), above)

    def blocks(self, node: Node) -> Iterator[tuple[Node, tuple[str, ...]]]:
        """Yield (block, orbit comments before its first statement) for each arm."""
        above: tuple[str, ...] = ()
        for child in node.children:
            kind = child.type
            if kind == "comment":
                above = (*above, *self.orbit_comment(child))
            elif kind == "block":
                if node.type == "match_statement":
                    yield from self.blocks(child)
                else:
                    yield child, above
            elif kind.endswith("_clause") or kind == "ERROR":
                yield from self.blocks(child)

    def leave(self, node: Node, owner: PythonFunction | None) -> None:
        if owner is None:
            return
        value = next((child for child in node.named_children if child.type != "comment"), None)
        if value is not None:
            owner.returns_value = True
            if value.type in VALUES:
                owner.returns.append(Written(self.text(value)))

    def bind(self, name: str, at: _At, value: Expression) -> None:
        scope, path = at.scope, at.path
        if name in self.scopes[scope].globals:  # may run at any time, or never
            scope, path = 0, ((self.order, 0, False),)
        self.scopes[scope].bindings.setdefault(name, []).append(Binding(self.order, path, value))

    def bring(self, node: Node, at: _At) -> None:
        self.order += 1
        names = node.children_by_field_name("name")
        if node.type == "import_statement":
            for name in names:
                module, alias = self.imported(name)
                if at.scope == 0:
                    self.imports.append(module)
                if alias:
                    self.bind(alias, at, ImportedName(module))
                else:
                    first = module.partition(".")[0]
                    self.bind(first, at, ImportedName(first))
            return
        source = node.child_by_field_name("module_name")
        module = "".join(self.text(source).split()) if source else ""
        dots_only = not module.strip(".")
        if at.scope == 0 and not dots_only:
            self.imports.append(module)
        for name in names:
            what, alias = self.imported(name)
            if at.scope == 0 and dots_only:
                self.imports.append(module + what)
            self.bind(alias or what, at, ImportedName(f"{module}{'' if dots_only else '.'}{what}"))
        if any(child.type == "wildcard_import" for child in node.children):
            self.stars.append(module)
            if at.scope == 0 and dots_only:
                self.imports.append(module)

    def imported(self, node: Node) -> tuple[str, str]:
        if node.type != "aliased_import":
            return "".join(self.text(node).split()), ""
        name, alias = node.child_by_field_name("name"), node.child_by_field_name("alias")
        return "".join(self.text(name).split()) if name else "", self.text(alias) if alias else ""

    def assign(self, node: Node, at: _At, comments: tuple[str, ...]) -> None:
        """Note `a = b, c = value`, each target by itself."""
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
                self.assign_one(node, target, value, at, comments)
            elif target.type in ("pattern_list", "tuple_pattern"):
                names = target.named_children
                values = value.named_children if value.type in ("expression_list", "tuple") else []
                for i, name in enumerate(names):
                    if name.type == "identifier":
                        element = values[i] if len(values) == len(names) else None
                        self.assign_one(node, name, element, at, comments)

    def assign_one(
        self, whole: Node, target: Node, value: Node | None, at: _At, comments: tuple[str, ...]
    ) -> None:
        name = self.text(target)
        if value is None or value.type not in VALUES:
            if at.scope == 0 and name == "__all__" and value is not None:
                self.export("__all__" + self.text(value))
            self.bind(name, at, None)
            return
        in_function = self.scopes[at.scope].kind == "function"
        expression = Written(self.text(value)) if in_function else expression_of(value)
        self.bind(name, at, expression)
        if value.type != "call":
            return
        says_maker = bool(MAKER_WORD.search(self.data, value.start_byte, value.end_byte))
        callees = frozenset(_CALLEE.findall(self.text(value)))
        if says_maker or callees:
            assignment = CallAssignment(
                name, expression, at.scope, self.order, at.path, self.span(target, target),
                self.span(whole, whole), comments, says_maker, callees,
            )  # fmt: skip
            self.assignments.append(assignment)

    def export(self, text: str) -> None:
        if text.startswith("__all__"):
            self.exported.update(_STRING.findall(text))

    def define(self, node: Node, at: _At, comments: tuple[str, ...]) -> None:
        definition: Node | None = node
        decorators: list[Node | None] = []
        if node.type == "decorated_definition":
            for child in node.children:
                if child.type == "decorator":
                    decorators.append(next(iter(child.named_children), None))
                elif child.type == "comment":
                    comments = (*comments, *self.orbit_comment(child))
            definition = node.child_by_field_name("definition")
        label = definition.child_by_field_name("name") if definition else None
        if definition is None or label is None:
            return
        self.order += 1
        name = self.text(label)
        around = self.scopes[at.scope].qualified
        qualified = f"{around}.{name}" if around else name
        inside = _At(len(self.scopes), (), at.piece, None, at.depth + 1)
        if definition.type == "class_definition":
            self.scopes.append(PythonScope("class", at.scope, qualified))
            bases = definition.child_by_field_name("superclasses")
            self.classes.append(
                Class(
                    at.scope, inside.scope, self.order, at.path,
                    tuple(expression_of(base) for base in bases.named_children) if bases else (),
                )
            )  # fmt: skip
            self.bind(name, at, Local("class", len(self.classes) - 1))
            self.visit_body(definition, inside)
            return
        signature = definition.child_by_field_name("parameters")
        parameters = tuple(parameters_of(signature)) if signature else ()
        self.scopes.append(
            PythonScope("function", at.scope, qualified, tuple(name for name, _ in parameters))
        )
        self.cuts.append((node.start_byte, node.end_byte))
        self.parents.append(at.piece)
        is_async = any(child.type == "async" for child in definition.children[:1])
        function = PythonFunction(
            name, at.scope, inside.scope, self.order, at.path, tuple(map(expression_of, decorators)),
            self.span(label, label), self.span(node, node), range(0), comments, [],
            all(optional for _, optional in parameters) and not is_async,
        )  # fmt: skip
        self.functions.append(function)
        self.bind(name, at, Local("function", len(self.functions) - 1))
        piece = len(self.cuts)
        self.visit_body(definition, inside._replace(piece=piece, owner=function))
        function.pieces = range(piece, len(self.cuts) + 1)
        if at.owner is not None:
            at.owner.returns.extend(function.returns)

    def visit_body(self, definition: Node, at: _At) -> None:
        if at.depth < _DEPTH:
            for block, above in self.blocks(definition):
                self.visit_all(block.children, at, above)

    # -- launches ------------------------------------------------------------------------------

    def find_launches(self, node: Node) -> Iterator[LaunchSite]:
        for match in _LAUNCH.finditer(self.data):
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
                call.start_point[0],
                grid,
                tuple(
                    self.text(named_child)
                    for named_child in arguments.named_children
                    if named_child.type != "comment"
                ),
            )

    # -- CUDA C++ in strings -------------------------------------------------------------------

    def find_embedded(self, root: Node) -> Iterator[CallAssignment]:
        """Yield the kernels in string literals, each as if it were assigned to its name. Docstrings are left out."""
        from orbit_lsp.kernels.cuda import cuda_kernels

        at = 0
        while (at := self.data.find(_GLOBAL, at)) >= 0:
            literal = root.descendant_for_byte_range(at, at + len(_GLOBAL))
            at += len(_GLOBAL)
            while literal is not None and literal.type != "string":
                literal = literal.parent
            if literal is None:
                continue
            at = max(at, literal.end_byte)
            if literal.parent is not None and literal.parent.type == "expression_statement":
                continue
            row, column = self.position(literal.start_point, literal.start_byte)
            # blanks for the quotes: columns stay what they are
            content = _QUOTES.sub(lambda quotes: " " * len(quotes[0]), self.text(literal))
            for kernel in cuda_kernels.scan(content).kernels:
                self.order += 1
                yield CallAssignment(
                    kernel.name, None, 0, self.order, (), _moved(kernel.name_span, row, column),
                    _moved(kernel.whole, row, column), (), says_maker=False, callees=_NOTHING,
                )  # fmt: skip


def _moved(span: Span, row: int, column: int) -> Span:
    """Convert string positions to region positions. The string's first line begins at `column`."""
    return Span(
        span.line + row,
        span.column + (0 if span.line else column),
        span.end_line + row,
        span.end_column + (0 if span.end_line else column),
    )


def _digest(tokens: list[str]) -> bytes:
    """Return the digest of tokens, or nothing for no tokens: the surroundings of a kernel have the same digest
    without it.
    """
    return blake2b("\0".join(tokens).encode(), digest_size=16).digest() if tokens else b""


def _own_names(body: PythonScope) -> set[str]:
    """Return parameters and variables: they mean no function of the module. But `total = total(x)` calls one."""
    called = {
        name
        for name, bindings in body.bindings.items()
        if any(f"{name}(" in binding.value.text for binding in bindings if isinstance(binding.value, Written))
    }
    return {*body.parameters, *body.bindings} - body.globals - called
