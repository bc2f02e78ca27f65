"""Parses expressions of `.cu` files: C++'s operators, literals, casts, and launches with `<<<…>>>`."""

from __future__ import annotations

import re
from typing import ClassVar

from orbit_remote.spec import dtypes
from orbit_remote.spec.lexer import SpecToken
from orbit_remote.spec.parser import SpecParser
from orbit_remote.spec.syntax_tree import (
    Binary,
    Call,
    Cast,
    Conditional,
    Expression,
    Name,
    Number,
    SpecError,
    SpecLaunch,
    SpecSpan,
    TemplateArgument,
    Unary,
)

_LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%", "@"),
)  # fmt: skip
_NUMBER = re.compile(r"(0[xX][\da-fA-F']+|0[bB][01']+|[\d'.]+(?:[eE][+-]?\d+)?)(\w*)")
_SUFFIXES = {"u", "l", "ul", "lu", "ll", "ull", "llu", "z", "uz", "zu"}
_TYPE_WORDS = frozenset(("unsigned", "signed", "long", "short", "int", "char", "float", "double", "bool"))
_CASTS = frozenset(("static_cast", "reinterpret_cast", "const_cast"))


class CppParser(SpecParser):
    language = "cuda"
    levels: ClassVar[dict[str, int]] = {
        operator: level + 1 for level, operators in enumerate(_LEVELS) for operator in operators
    }
    comparison_levels = (6, 7)
    words: ClassVar[dict[str, str]] = {"||": "or", "&&": "and"}
    qualifier = "::"
    prefixes = frozenset(("std", "torch", "at", "c10", "cuda", "cutlass", "cute"))

    def loosest(self) -> Expression:
        condition = self.binary(1)
        if not self.accept("?"):
            return condition
        then = self.expression()
        self.expect(":")
        otherwise = self.expression()
        return Conditional(condition.span.to(otherwise.span), condition, then, otherwise)

    def chained(self, left: Expression, last: Binary) -> Expression:
        """Refuse `a < b < c`, which means something else in C++. Always raises SpecError."""
        first, second = left.operator if isinstance(left, Binary) else "", last.operator
        raise SpecError(
            last.operator_span,
            f"C++ compares the result of '{first}' with what follows; write 'a {first} b && b {second} c'.",
        )

    def unary(self) -> Expression:
        token = self.next
        if self.sees("-", "+", "~", "!"):
            self.take()
            operand = self.nested(self.unary)
            return Unary(token.span.to(operand.span), "not" if token.text == "!" else token.text, operand)
        if self.sees("("):
            start = self.at
            self.take()
            type_name = self.type_name()
            if type_name and self.accept(")") and self._operand_follows():
                operand = self.nested(self.unary)
                return Cast(token.span.to(operand.span), type_name, operand)
            self.at = start
        return self.postfix(self.primary())

    def _operand_follows(self) -> bool:
        """Say whether an operand follows `(float)`: then it is a cast. Before an operator or an end it is a name in
        parentheses.
        """
        token = self.next
        if token.kind == "operator":
            return token.text in ("(", "-", "+", "~", "!")
        return token.kind in ("name", "number") and token.text != "within"

    def type_name(self) -> Name | None:
        """Return a type of several words, or one in the table. Without a type nothing is consumed."""
        start = self.at
        while self.sees("const", "struct"):
            self.take()
        words: list[SpecToken] = []
        while self.next.kind == "name" and self.next.text in _TYPE_WORDS:
            words.append(self.take())
        if not words and self.next.kind == "name":
            name = self.qualified()
            if name.name in dtypes.CPP or name.name in dtypes.VECTORS:
                return name
        elif words and (text := canonical([word.text for word in words])):
            return Name(words[0].span.to(words[-1].span), text)
        self.at = start
        return None

    def primary(self) -> Expression:
        """Parse an expression without operators. Raises SpecError."""
        token = self.next
        if token.kind == "number":
            return number(self.take())
        if token.kind == "string":
            return self.text()
        if self.sees("(", "{"):
            return self.sequence()
        if token.kind != "name":
            self.unexpected("a value")
        if token.text == "sizeof":
            return self.sizeof()
        if token.text in _CASTS:
            return self.named_cast()
        if token.text in _TYPE_WORDS and (name := self.type_name()):
            return name
        name = self.qualified()
        if self.sees("::"):
            raise SpecError(name.span, f"'{name.name}::' is not known to launch specs.")
        if self.sees("{"):
            return self.braced(name)
        return name

    def braced(self, name: Name) -> Expression:
        """Parse `dim3{a, b}`, which is `dim3(a, b)`."""
        opening = self.take()
        arguments = self.separated("}", self.expression)
        self.expect("}", opening)
        return Call(self.to_here(name.span), name.name, name.span, tuple(arguments))

    def sizeof(self) -> Expression:
        start = self.take()
        opening = self.expect("(")
        inner = self.type_name() or self.expression()
        self.expect(")", opening)
        return Call(self.to_here(start.span), "sizeof", start.span, (inner,))

    def named_cast(self) -> Expression:
        start = self.take()
        opening = self.expect("<")
        type_name = self.type_name()
        if not type_name:
            self.unexpected("a type that launch specs know")
        self.expect(">", opening)
        opening = self.expect("(")
        operand = self.expression()
        self.expect(")", opening)
        return Cast(self.to_here(start.span), type_name, operand)

    # -- launches ----------------------------------------------------------------------------------

    def launch(self) -> SpecLaunch:
        """Parse `kernel<templates><<<grid, block, shared>>>(arguments) cooperative cluster(x, y, z)`. Raises
        SpecError.
        """
        kernel = self.kernel_name()
        templates = self.templates() if self.sees("<") else ()
        opening = self.expect("<<<")
        configuration = [self.expression()]
        while self.accept(","):
            configuration.append(self.expression())
        self.expect(">>>", opening)
        if not 2 <= len(configuration) <= 4:
            raise SpecError(
                opening.span, "Write a grid, a block, and the dynamic shared memory between '<<<' and '>>>'."
            )
        if len(configuration) == 4 and not _is_null(configuration[3]):
            raise SpecError(configuration[3].span, "The stream is chosen by the run; leave it out.")
        arguments, keywords = self.arguments()
        if keywords:
            raise SpecError(keywords[0].span, "C++ passes arguments by their place; leave the name out.")
        cooperative, cluster = False, None
        while self.next.kind == "name" and self.next.text in ("cooperative", "cluster"):
            if self.take().text == "cooperative":
                cooperative = True
            else:
                start = self.last.span
                items, _ = self.arguments()
                cluster = Call(self.to_here(start), "dim3", start, items)
        return SpecLaunch(
            self.to_here(kernel.span), kernel, configuration[0], configuration[1],
            configuration[2] if len(configuration) > 2 else None, templates, arguments, (), cooperative, cluster,
        )  # fmt: skip

    def templates(self) -> tuple[TemplateArgument, ...]:
        """Return the arguments between `<` and `>`. Raises SpecError."""
        opening = self.expect("<")
        template_arguments: list[TemplateArgument] = []
        part: list[SpecToken] = []
        depth = 0
        while True:
            token = self.take()
            if token.kind == "end":
                raise SpecError(opening.span, "'<' is never closed.")
            ends = depth == 0 and token.text in (">", ",")
            if ends:
                if part or token.text == ",":
                    template_arguments.append(self._template_argument(part, token))
                part = []
                if token.text == ">":
                    return tuple(template_arguments)
                continue
            depth += (token.text in ("(", "{", "[", "<")) - (token.text in (")", "}", "]", ">"))
            if token.text in ("<<<", ">>>"):
                raise SpecError(opening.span, "'<' is never closed.")
            part.append(token)

    def _template_argument(self, part: list[SpecToken], after: SpecToken) -> TemplateArgument:
        if not part:
            raise SpecError(after.span, "A template argument is missing here.")
        span = part[0].span.to(part[-1].span)
        end = SpecSpan(span.end_line, span.end_column, span.end_line, span.end_column)
        inner = CppParser([*part, SpecToken("end", "", end)])
        value: Expression | None = None
        try:
            value = inner.whole()
            inner.finish()
        except SpecError:
            value = None
        return TemplateArgument(span, _joined(part), value)


def number(token: SpecToken) -> Number:
    """Return a number. An integer has the first type that holds it, as in C++: int, long, and unsigned if the suffix
    or base says so. Raises SpecError.
    """
    match = _NUMBER.fullmatch(token.text)
    digits, suffix = (match[1].replace("'", ""), match[2].lower()) if match else ("", "?")
    hexadecimal = digits[:2] in ("0x", "0X")
    if not hexadecimal and digits[:2] not in ("0b", "0B") and any(mark in digits for mark in ".eE"):
        if suffix not in ("", "f", "l") or digits.count(".") > 1:
            raise SpecError(token.span, f"'{token.text[:40]}' is not a valid C++ number.")
        return Number(token.span, float(digits), "float32" if suffix == "f" else "float64")
    if suffix not in _SUFFIXES and suffix:
        raise SpecError(token.span, f"'{token.text[:40]}' is not a valid C++ number.")
    octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
    try:
        value = int(digits, 8 if octal else 0)
    except ValueError:
        raise SpecError(token.span, f"'{token.text[:40]}' is not a valid C++ number.") from None
    unsigned = "u" in suffix
    wide = "l" in suffix or "z" in suffix
    candidates = [
        name for name in ("int32", "uint32", "int64", "uint64") if not (wide and name.endswith("32"))
    ]
    for name in candidates:
        if name.startswith("u") != unsigned and (unsigned or (digits.isdigit() and not octal)):
            continue  # decimal literals without a suffix never become unsigned
        if value <= dtypes.DTYPES[name].highest:
            return Number(token.span, value, name)
    raise SpecError(token.span, "This number does not fit in 64 bits.")


def canonical(words: list[str]) -> str:
    """Return the usual name of a type: `unsigned long` for `long unsigned int`. Return "" if the words are no type."""
    if len(words) == 1 and words[0] in dtypes.CPP:
        return words[0]
    base = [word for word in words if word not in ("int", "signed", "unsigned")]
    sign = "unsigned " if "unsigned" in words else "signed " if "signed" in words and "char" in words else ""
    text = (sign + (" ".join(base) or "int")).strip()
    return text if text in dtypes.CPP else ""


def _is_null(node: Expression) -> bool:
    return (isinstance(node, Number) and node.value == 0) or (
        isinstance(node, Name) and node.name in ("nullptr", "NULL")
    )


def _joined(part: list[SpecToken]) -> str:
    text = ""
    for token in part:
        glue = " " if text and token.kind != "operator" and (text[-1].isalnum() or text[-1] == "_") else ""
        text += glue + token.text
    return text
