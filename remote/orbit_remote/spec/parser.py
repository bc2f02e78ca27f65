"""The common part of the two expression languages: precedence climbing over a table, calls, indices, lists.

Nothing here evaluates. Depth is bounded, and with it the recursion of every reader of the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, NoReturn

from orbit_remote.spec.comment_scanner import CommentPiece, SpecStatement
from orbit_remote.spec.lexer import SpecToken, tokens
from orbit_remote.spec.syntax_tree import (
    Attribute,
    Binary,
    Call,
    Expression,
    Index,
    Keyword,
    Language,
    Name,
    Sequence,
    Slice,
    SpecError,
    SpecSpan,
    Text,
    children,
)

NESTING: Final = 60
"""How deeply brackets and prefix operators nest; a bracket counts twice."""
DEEPEST: Final = 80
"""How deep a tree is, chains of operators included: what reads it recurses as deep."""

_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_FOREIGN: Final = {
    "for": "Comprehensions are not part of launch specs.",
    ":=": "':=' is not part of launch specs; assign in a statement of its own.",
    "await": "'await' is not part of launch specs.",
    "yield": "'yield' is not part of launch specs.",
    "new": "'new' is not part of launch specs.",
}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"', "'": "'"}


class SpecParser:
    """Parses one statement. Every malformed one is a SpecError at its place."""

    language: Language
    levels: ClassVar[dict[str, int]]
    """Operator -> how tightly it binds; those of one level associate to the left."""
    comparison_levels: tuple[int, ...]
    words: ClassVar[dict[str, str]] = {}
    """Operators that the tree spells otherwise."""
    qualifier: str
    prefixes: frozenset[str]
    """Names that qualify a function and are left out: `torch`, `std`."""

    def __init__(self, read: list[SpecToken]) -> None:
        """Make a parser. `read` ends with a token of the kind `end`."""
        self.tokens = read
        self.at = 0
        self._depth = 0

    @classmethod
    def parsed(cls, text: str) -> Expression | None:
        """Parse an expression of the file's own code. Return None if launch specs do not know it."""
        text = " ".join(text.split()) if cls.language == "cuda" else text
        try:
            parser = cls(tokens(SpecStatement((CommentPiece(0, 0, text),)), cls.language))
            node = parser.whole()
            parser.finish()
        except SpecError:
            return None
        return node

    # -- tokens ------------------------------------------------------------------------------------

    @property
    def next(self) -> SpecToken:
        return self.tokens[self.at]

    @property
    def last(self) -> SpecToken:
        return self.tokens[max(0, self.at - 1)]

    def ahead(self, count: int = 1) -> SpecToken:
        return self.tokens[min(self.at + count, len(self.tokens) - 1)]

    def take(self) -> SpecToken:
        token = self.next
        if token.kind != "end":
            self.at += 1
        return token

    def sees(self, *texts: str) -> bool:
        return self.next.text in texts and self.next.kind in ("operator", "name")

    def accept(self, text: str) -> SpecToken | None:
        return self.take() if self.sees(text) else None

    def expect(self, text: str, opening: SpecToken | None = None) -> SpecToken:
        """Raises SpecError at another token, or at `opening` if the text ends."""
        if not self.sees(text):
            if self.next.kind == "end" and opening:
                raise SpecError(opening.span, f"'{opening.text}' is never closed.")
            self.unexpected(f"'{text}'")
        return self.take()

    def name(self, what: str) -> Name:
        if self.next.kind != "name":
            self.unexpected(what)
        token = self.take()
        return Name(token.span, token.text)

    def unexpected(self, wanted: str = "") -> NoReturn:
        """Raise SpecError at the next token. `wanted` is what would be right there."""
        token = self.next
        if token.text in _FOREIGN:
            raise SpecError(token.span, _FOREIGN[token.text])
        after = f"; {wanted} is expected" if wanted else ""
        if token.kind == "end":
            raise SpecError(token.span, f"The statement ends too early{after}.")
        raise SpecError(token.span, f"'{_short(token.text)}' is not expected here{after}.")

    def finish(self) -> None:
        if self.next.kind != "end":
            self.unexpected()

    def to_here(self, start: SpecSpan) -> SpecSpan:
        return start.to(self.last.span)

    # -- expressions -------------------------------------------------------------------------------

    def whole(self, level: int = 0) -> Expression:
        """Parse an expression from `level` on, not deeper than any reader's recursion allows."""
        node = self.expression(level)
        check_depth(node)
        return node

    def expression(self, level: int = 0) -> Expression:
        return self.nested(self.loosest if level == 0 else lambda: self.binary(level))

    def nested(self, read: Callable[[], Expression]) -> Expression:
        """Return what `read` parses, one level further down. Raises SpecError beyond the deepest level."""
        self._depth += 1
        if self._depth > NESTING:
            raise SpecError(self.next.span, "This is nested too deeply; give its parts names.")
        node = read()
        self._depth -= 1
        return node

    def loosest(self) -> Expression:
        """Parse what binds less than any binary operator."""
        raise NotImplementedError

    def unary(self) -> Expression:
        raise NotImplementedError

    def primary(self) -> Expression:
        raise NotImplementedError

    def operator(self) -> str:
        """Return the next binary operator in the tree's spelling, or ""."""
        return self.next.text if self.next.kind == "operator" else ""

    def binary(self, level: int) -> Expression:
        left = self.unary()
        last, middle = -1, left  # the level and the right operand of the operator that was just read
        while (operator := self.operator()) and (own := self.levels.get(operator, -1)) >= level:
            token = self.take()
            right = self.expression(own + 1)
            if own == last and own in self.comparison_levels:
                comparison = Binary(self.to_here(middle.span), operator, middle, right, token.span)
                left = self.chained(left, comparison)
            else:
                name = self.words.get(operator, operator)
                left = Binary(self.to_here(left.span), name, left, right, token.span)
            last, middle = own, right
        return left

    def chained(self, left: Expression, last: Binary) -> Expression:
        """Parse `a < b < c`. `left` is `a < b` and `last` is `b < c`."""
        raise NotImplementedError

    def postfix(self, node: Expression) -> Expression:
        """Return `node` with the calls, indices and attributes that follow it. Raises SpecError."""
        steps = 0
        while True:
            steps += 1
            if steps > NESTING:
                raise SpecError(self.next.span, "This is nested too deeply; give its parts names.")
            if self.sees("("):
                node = self.call(node)
            elif self.sees("["):
                node = self.index(node)
            elif self.sees("."):
                self.take()
                member = self.name("a name")
                node = Attribute(node.span.to(member.span), node, member.name, member.span)
            else:
                return node

    def call(self, function: Expression) -> Expression:
        """Parse a call of `function`, from its `(` on. Raises SpecError."""
        match function:
            case Name():
                name, where, receiver = function.name, function.span, None
            case Attribute():
                name, where, receiver = function.name, function.name_span, function.value
            case _:
                raise SpecError(self.next.span, "Only functions of the list can be called.")
        arguments, keywords = self.arguments()
        return Call(self.to_here(function.span), name, where, arguments, keywords, receiver)

    def separated(self, closing: str, read: Callable[[], Expression]) -> list[Expression]:
        """Return what `read` parses, between commas, up to `closing`, which is not consumed."""
        items: list[Expression] = []
        while not self.sees(closing):
            items.append(read())
            if not self.accept(","):
                break
        return items

    def arguments(self) -> tuple[tuple[Expression, ...], tuple[Keyword, ...]]:
        """Return the arguments between `(` and `)`, with named ones apart. Raises SpecError."""
        opening = self.expect("(")
        arguments: list[Expression] = []
        keywords: list[Keyword] = []
        while not self.sees(")"):
            if self.next.kind == "name" and self.ahead().text == "=":
                name = self.name("a name")
                self.take()
                value = self.expression()
                if any(keyword.name == name.name for keyword in keywords):
                    raise SpecError(name.span, f"'{name.name}' is given twice.")
                keywords.append(Keyword(name.span.to(value.span), name.name, value))
            elif keywords:
                self.unexpected("another 'name = value'")
            else:
                arguments.append(self.expression())
            if not self.accept(","):
                break
        self.expect(")", opening)
        return tuple(arguments), tuple(keywords)

    def index(self, value: Expression) -> Expression:
        """Return `value` with the index between `[` and `]`. Raises SpecError."""
        opening = self.expect("[")
        items = self.separated("]", self.index_item)
        self.expect("]", opening)
        if not items:
            raise SpecError(opening.span, "Write an index between '[' and ']'.")
        return Index(self.to_here(value.span), value, tuple(items))

    def index_item(self) -> Expression:
        """Parse a number or a slice of an index. Raises SpecError."""
        start = self.next.span
        parts: list[Expression | None] = [None]
        while not self.sees("]", ","):
            if self.accept(":"):
                parts.append(None)
                if len(parts) > 3:
                    raise SpecError(self.last.span, "A slice is start:stop:step.")
            elif parts[-1] is None:
                parts[-1] = self.expression()
            else:
                self.unexpected("']'")
        if len(parts) == 1:
            if parts[0] is None:
                self.unexpected("an index")
            return parts[0]
        first, second, third = (*parts, None)[:3] if len(parts) == 2 else parts
        return Slice(self.to_here(start), first, second, third)

    def sequence(self) -> Expression:
        """Parse `(a)`, which is `a`, or several expressions between brackets."""
        opening = self.take()
        closing = _CLOSING[opening.text]
        items = self.separated(closing, self.expression)
        comma = self.last.text == ","
        self.expect(closing, opening)
        if len(items) == 1 and opening.text == "(" and not comma:
            return items[0]
        return Sequence(self.to_here(opening.span), tuple(items))

    def qualified(self) -> Name:
        """Parse a name. Its qualification is not in `name`, but in the span."""
        start = self.take()
        last = start
        while last.text in self.prefixes and self.sees(self.qualifier) and self.ahead().kind == "name":
            self.take()
            last = self.take()
        return Name(start.span.to(last.span), last.text)

    def kernel_name(self) -> Name:
        """Return the last part of a kernel's name, with the span of all parts."""
        name = self.name("the kernel's name")
        while self.accept(self.qualifier):
            last = self.name("the kernel's name")
            name = Name(name.span.to(last.span), last.name)
        return name

    def text(self) -> Text:
        token = self.take()
        return Text(token.span, unquoted(token))


def unquoted(token: SpecToken) -> str:
    """Return a string's value. Raises SpecError at an escape other than the plain ones."""
    inner, value, at = token.text[1:-1], "", 0
    while at < len(inner):
        if inner[at] == "\\":
            if inner[at + 1] not in _ESCAPES:
                raise SpecError(
                    token.span, f"'\\{inner[at + 1]}' is not an escape that launch specs support."
                )
            value += _ESCAPES[inner[at + 1]]
            at += 2
        else:
            value += inner[at]
            at += 1
    return value


def check_depth(node: Expression) -> None:
    """Raises SpecError where chains of operators make the tree deeper than its readers may recurse."""
    level: list[Expression] = [node]
    for _ in range(DEEPEST):
        level = [child for expression in level for child in children(expression)]
        if not level:
            return
    raise SpecError(node.span, "This has too many operators in a row; give its parts names.")


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "…"
