"""Parses expressions of `.py` files: Python's operators and literals, and launches with `kernel[grid](…)`."""

from __future__ import annotations

from typing import ClassVar

from orbit_remote.spec.lexer import SpecToken
from orbit_remote.spec.parser import SpecParser
from orbit_remote.spec.syntax_tree import (
    Binary,
    Conditional,
    Expression,
    Lambda,
    Number,
    Sequence,
    SpecError,
    SpecLaunch,
    Unary,
    walk,
)

_LEVELS = (
    ("or",), ("and",), ("not",), ("==", "!=", "<", ">", "<=", ">=", "in", "is"), ("|",), ("^",), ("&",), ("<<", ">>"),
    ("+", "-"), ("*", "/", "//", "%", "@"),
)  # fmt: skip
_LARGEST = 1 << 63


class PythonParser(SpecParser):
    language = "triton"
    levels: ClassVar[dict[str, int]] = {
        operator: level + 1 for level, operators in enumerate(_LEVELS) for operator in operators
    }
    comparison_levels = (4,)
    qualifier = "."
    prefixes = frozenset(
        (
            "torch", "triton", "tl", "language", "math", "nn", "functional", "F", "TensorDescriptor", "tools",
            "tensor_descriptor",
        )
    )  # fmt: skip

    def loosest(self) -> Expression:
        if self.sees("lambda"):
            return self.function()
        then = self.binary(1)
        if not self.accept("if"):
            return then
        condition = self.binary(1)
        self.expect("else")
        otherwise = self.expression()
        return Conditional(then.span.to(otherwise.span), condition, then, otherwise)

    def operator(self) -> str:
        """Return the next operator, or "" for none. Raises SpecError for `in`, `is` and `not`."""
        token = self.next
        if token.kind == "operator" or token.text in ("and", "or"):
            return token.text
        if token.text in ("in", "is", "not"):
            raise SpecError(token.span, f"'{token.text}' is not part of launch specs; compare with '=='.")
        return ""

    def chained(self, left: Expression, last: Binary) -> Expression:
        """Return `a < b and b < c`, which has b twice. Chains in chains would double at every level, so they raise
        SpecError.
        """
        if any(isinstance(node, Binary) and node.operator == "and" for node in walk(last.left)):
            raise SpecError(
                last.operator_span, "Chains of comparisons do not nest; give the inner one a name."
            )
        return Binary(self.to_here(left.span), "and", left, last, last.operator_span)

    def unary(self) -> Expression:
        return self.nested(self._unary)

    def _unary(self) -> Expression:
        token = self.next
        if self.accept("not"):
            operand = self.binary(4)
            return Unary(token.span.to(operand.span), "not", operand)
        if self.sees("-", "+", "~"):
            self.take()
            operand = self.unary()
            return Unary(token.span.to(operand.span), token.text, operand)
        base = self.postfix(self.primary())
        if star := self.accept("**"):
            exponent = self.unary()
            return Binary(base.span.to(exponent.span), "**", base, exponent, star.span)
        return base

    def primary(self) -> Expression:
        """Parse an expression without operators. Raises SpecError."""
        token = self.next
        if token.kind == "number":
            return number(self.take())
        if token.kind == "string":
            return self.text()
        if self.sees("(", "["):
            return self.sequence()
        if self.sees("lambda"):
            raise SpecError(token.span, "A lambda is allowed only as a grid.")
        if token.kind != "name":
            self.unexpected("a value")
        if self.ahead().kind == "string" and len(token.text) <= 2:
            raise SpecError(token.span, "Strings have no prefix in launch specs.")
        return self.qualified()

    def function(self) -> Expression:
        start = self.take()
        parameter = self.name("the parameter's name")
        self.expect(":")
        body = self.expression()
        return Lambda(start.span.to(body.span), parameter.name, body)

    # -- launches ----------------------------------------------------------------------------------

    def launch(self) -> SpecLaunch:
        """Parse `kernel[grid](arguments, NAME=value, num_warps=4)`."""
        kernel = self.kernel_name()
        opening = self.expect("[")
        items = self.separated("]", self.expression)
        if not items:
            self.unexpected("a value")
        comma = self.last.text == "," or len(items) > 1
        self.expect("]", opening)
        grid = Sequence(items[0].span.to(items[-1].span), tuple(items)) if comma else items[0]
        arguments, keywords = self.arguments()
        return SpecLaunch(self.to_here(kernel.span), kernel, grid, arguments=arguments, keywords=keywords)


def number(token: SpecToken) -> Number:
    """Return an int or a float, as Python reads it. Raises SpecError beyond 2^63."""
    text = token.text.replace("_", "")
    try:
        return _number(token, text)
    except (ValueError, OverflowError):
        raise SpecError(token.span, f"'{token.text[:40]}' is not a valid Python number.") from None


def _number(token: SpecToken, text: str) -> Number:
    if text[:2].lower() in ("0x", "0b", "0o") or text.isdigit():
        value = int(text, 0 if not text.isdigit() else 10)
        if value > _LARGEST:
            raise SpecError(token.span, "This number is beyond 2^63.")
        return Number(token.span, value, "int")
    return Number(token.span, float(text), "float")
