"""Python expressions, reduced to the few forms that can make a kernel. Any other form is None."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_DEPTH = 8


class NameExpression(NamedTuple):
    """A dotted name: `a.b.c`."""

    parts: tuple[str, ...]


class CallExpression(NamedTuple):
    function: Expression
    arguments: tuple[Expression, ...]
    device_only: bool
    """`device=True` is among the keywords: numba's word for a helper."""


class Either(NamedTuple):
    """A choice between expressions: `a if c else b`, `a or b`."""

    options: tuple[Expression, ...]


class TextExpression(NamedTuple):
    """A string literal."""

    text: str


class LambdaExpression(NamedTuple):
    parameters: tuple[str, ...]
    body: Expression


class ImportedName(NamedTuple):
    """What an import binds: `triton.language`, `.utils.jit`."""

    path: str


class Local(NamedTuple):
    """A function or class, by its number in the outline."""

    kind: Literal["function", "class"]
    number: int


class Written(NamedTuple):
    """An expression inside a function. It is read only when its text can matter."""

    text: str


Expression = (
    NameExpression
    | CallExpression
    | Either
    | TextExpression
    | LambdaExpression
    | ImportedName
    | Local
    | Written
    | None
)


@cache
def parser() -> Parser:
    """Return a parser. Tree-sitter is loaded for the first Python file, not with the server."""
    import tree_sitter
    import tree_sitter_python

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_python.language()))


@lru_cache(maxsize=4096)
def read(written: str) -> Expression:
    """The expression behind a `Written`."""
    root = parser().parse(written.encode()).root_node
    statements = root.children
    if len(statements) == 1 and statements[0].type == "expression_statement":
        return expression_of(next(iter(statements[0].children), None))
    return None


def parameters_of(signature: Node) -> Iterator[tuple[str, bool]]:
    """Yield (name, whether it may be left out) for each parameter."""
    for node in signature.named_children:
        if node.type == "identifier":
            yield text_of(node), False
        elif node.type in ("default_parameter", "typed_default_parameter"):
            name = node.child_by_field_name("name")
            yield text_of(name), True
        elif node.type == "typed_parameter":
            for inner in node.named_children[:1]:
                splat = inner.type in ("list_splat_pattern", "dictionary_splat_pattern")
                yield text_of(inner).lstrip("* "), splat
        elif node.type in ("list_splat_pattern", "dictionary_splat_pattern"):
            yield text_of(node).lstrip("* "), True


VALUES = frozenset(
    ("call", "attribute", "identifier", "conditional_expression", "boolean_operator", "lambda",
     "parenthesized_expression")
)  # fmt: skip


def expression_of(node: Node | None, depth: int = 0) -> Expression:
    if node is None or depth > _DEPTH:
        return None
    kind = node.type
    if kind == "identifier":
        return NameExpression((text_of(node),))
    if kind == "attribute":
        return _attribute(node)
    if kind == "call":
        return _call(node, depth)
    if kind == "string":
        return TextExpression(text_of(node).strip("rRbBuUfF").strip("\"'"))
    if kind == "parenthesized_expression":
        inner = [child for child in node.named_children if child.type != "comment"]
        return expression_of(inner[0], depth + 1) if len(inner) == 1 else None
    if kind == "conditional_expression":
        parts = [child for child in node.named_children if child.type != "comment"]
        return Either((expression_of(parts[0], depth + 1), expression_of(parts[-1], depth + 1)))
    if kind == "boolean_operator":
        return Either(
            (
                expression_of(node.child_by_field_name("left"), depth + 1),
                expression_of(node.child_by_field_name("right"), depth + 1),
            )
        )
    if kind == "lambda":
        signature = node.child_by_field_name("parameters")
        names = tuple(name for name, _ in parameters_of(signature)) if signature else ()
        return LambdaExpression(names, expression_of(node.child_by_field_name("body"), depth + 1))
    return None


def _attribute(node: Node) -> Expression:
    parts: list[str] = []
    at: Node | None = node
    while at is not None and at.type == "attribute":
        parts.append(text_of(at.child_by_field_name("attribute")))
        at = at.child_by_field_name("object")
    if at is None or at.type != "identifier":
        return None
    parts.append(text_of(at))
    return NameExpression(tuple(reversed(parts)))


def _call(node: Node, depth: int) -> Expression:
    function = expression_of(node.child_by_field_name("function"), depth + 1)
    if function is None:
        return None
    arguments: list[Expression] = []
    device_only = False
    holder = node.child_by_field_name("arguments")
    for child in holder.named_children if holder else ():
        if child.type == "keyword_argument":
            name, value = child.child_by_field_name("name"), child.child_by_field_name("value")
            if text_of(name) == "device" and text_of(value) == "True":
                device_only = True
            elif text_of(name) in ("fn", "func", "function"):
                arguments.append(expression_of(value, depth + 1))
        elif child.type != "comment":
            arguments.append(expression_of(child, depth + 1))
    return CallExpression(function, tuple(arguments), device_only)


def text_of(node: Node | None) -> str:
    return node.text.decode(errors="replace") if node is not None and node.text else ""
