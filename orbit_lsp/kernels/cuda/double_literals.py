"""Finds literals that make float arithmetic double: `x * 0.1` with a float x, in functions that do not mention
double.

What nvcc makes of a literal was checked in PTX. `y = x * 2.0` is float arithmetic, because the float product is the
same. It is double if no float has the literal's value, or if the result is used in further arithmetic before it
becomes a float.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Collection, Sequence
from typing import Final

from orbit_lsp.kernels.cuda.functions import CudaFunction, closings, named
from orbit_lsp.kernels.cuda.lexer import IDENTIFIER
from orbit_lsp.kernels.cuda.thread_values import ASSIGNS

_TIMES: Final = frozenset("*/")
_PLUS: Final = frozenset("+-")
_ARITHMETIC: Final = _TIMES | _PLUS
_MEMBERS: Final = frozenset([".", "->", "::"])
_DIGITS: Final = tuple(".0123456789")


def first(function: CudaFunction) -> tuple[int, str] | None:
    """Return where the first such literal is among the words of the body, and the float next to it. Return None if
    there is none.
    """
    if any(word == "double" for word in function.words):
        return None
    if any(token.text == "double" for token in (*function.head, *function.parameters)):
        return None
    if not any(word.startswith(_DIGITS) and _value(word) is not None for word in function.words):
        return None
    return _Arithmetic(function).first()


class _Arithmetic:
    def __init__(self, function: CudaFunction) -> None:
        self._words = function.words
        self._closing = closings(self._words)
        self._opening = {closing: opening for opening, closing in self._closing.items()}
        self._floats, self._arrays = _floats(function)

    def first(self) -> tuple[int, str] | None:
        for at, word in enumerate(self._words):
            value = _value(word) if word.startswith(_DIGITS) else None
            if value is None:
                continue
            for start, operator, end, other in (self._left(at), self._right(at)):
                if other and (_is_inexact(value) or self._goes_on(start, operator, end, at, value)):
                    return at, other
        return None

    def _at(self, at: int) -> str:
        return self._words[at] if 0 <= at < len(self._words) else ""

    def _left(self, at: int) -> tuple[int, str, int, str]:
        """Return the first word of a float before the literal, the operator, the literal, and the float; "" for no
        float.
        """
        operator, operand = self._at(at - 1), self._at(at - 2)
        start = at - 2
        if operator in _ARITHMETIC and operand == "]":
            start = self._opening.get(at - 2, 0) - 1
            operand = f"{self._at(start)}[…]" if self._at(start) in self._arrays else ""
        elif operator not in _ARITHMETIC or operand not in self._floats:
            operand = ""
        return start, operator, at, "" if self._at(start - 1) in {*_MEMBERS, ")"} else operand

    def _right(self, at: int) -> tuple[int, str, int, str]:
        operator, operand = self._at(at + 1), self._at(at + 2)
        end = at + 2
        if operator in _ARITHMETIC and operand in self._arrays and self._at(at + 3) == "[":
            end = self._closing.get(at + 3, at + 3)
            operand = f"{operand}[…]"
        elif operator not in _ARITHMETIC or operand not in self._floats:
            operand = ""
        return at, operator, end, "" if self._at(end + 1) in {*_MEMBERS, "[", "("} else operand

    def _goes_on(self, start: int, operator: str, end: int, literal: int, value: float) -> bool:
        """Return whether the result of [start, end] certainly is an operand itself."""
        if value == 1 and operator in _TIMES:
            return False  # left out by the compiler
        before, after = self._at(start - 1), self._at(end + 1)
        if after in _ARITHMETIC and (literal == end or operator in _TIMES or after in _PLUS):
            return True
        if before in _PLUS and operator in _TIMES:
            return self._is_operand(start - 2)
        if before == "(" and after == ")":
            outside = self._at(start - 2)
            if outside in _ARITHMETIC:
                return self._is_operand(start - 3)
            return outside in {"=", "(", ",", "return"} and self._at(end + 2) in _ARITHMETIC
        return before in {"+=", "-="} and operator in _TIMES and after == ";"

    def _is_operand(self, at: int) -> bool:
        """Say whether an operand ends there: otherwise the sign behind it has one side."""
        word = self._at(at)
        return (
            word in {")", "]"}
            or word.startswith(_DIGITS)
            or (bool(IDENTIFIER.match(word)) and word != "return")
        )


def _value(word: str) -> float | None:
    """Return the value of a floating-point literal without a suffix."""
    if word[-1] in "fFlL" or word[:2].lower() == "0x" or not ("." in word or "e" in word.lower()):
        return None
    try:
        return float(word.replace("'", ""))
    except ValueError:
        return None


def _is_inexact(value: float) -> bool:
    """Say whether no float has this value."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0] != value
    except OverflowError:
        return False


def _floats(function: CudaFunction) -> tuple[Collection[str], Collection[str]]:
    """Return the variables that are a float, and arrays of them. A name that is declared with two types is neither,
    nor is a constant.
    """
    floats: set[str] = set()
    arrays: set[str] = set()
    others = {""}
    for part in function.parameter_list():
        stars = part.count("*") + part.count("[")
        if "float" in part and stars <= 1 and not {"<", "(", "&&"} & {*part}:
            (arrays if stars else floats).add(named(part))
        else:
            others.add(named(part))
    words = function.words
    for type_, name, behind in zip(words, words[1:], words[2:], strict=False):
        if behind in {"=", ";", ",", "[", ":"} and IDENTIFIER.match(type_) and IDENTIFIER.match(name):
            if type_ == "float":
                (arrays if behind == "[" else floats).add(name)
            elif type_ not in {"return", "else", "goto", "case"}:
                others.add(name)
    others |= _constants(words)
    return floats - others, arrays - others


def _constants(words: Sequence[str]) -> set[str]:
    """Return the variables that are only a literal: the compiler computes with these."""
    assigned: dict[str, int] = {}
    for name, sign in itertools.pairwise(words):
        if sign in ASSIGNS:
            assigned[name] = assigned.get(name, 0) + 1
    return {
        name
        for name, sign, value, end in zip(words, words[1:], words[2:], words[3:], strict=False)
        if sign == "=" and value.startswith(_DIGITS) and end in {";", ","} and assigned[name] == 1
    }
