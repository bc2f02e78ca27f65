"""Finds `kernel<<<grid, block>>>` in host code, and the constants that say how large a block is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_FURTHEST_BACK: Final = 2_000
_FURTHEST_AHEAD: Final = 4_000
_MOST_TOKENS = 64
_MOST_NESTING = 16
_LARGEST = 1 << 31

_LONGEST_NAME = 256
_OPENS: Final = {")": "(", "]": "[", "}": "{", ">": "<"}

_NAME_BEFORE = re.compile(r"(?:[^\W\d]\w*)\Z")
_BRACKET = re.compile(r"[()\[\]{}<>,;]")
_CONSTANT = re.compile(r"\b(?:constexpr|const)\b")
_DECLARED = re.compile(r"[^;=(){}<>,]*+")
_VALUE = re.compile(r"(?:=\s*([^;{}]{1,200})|\{([^;{}]{1,200})\}|\(([^;{}]{1,200})\))\s*;")
_DIM3 = re.compile(r"\bdim3\s")
_LONGEST_DIM3 = 400
_DIM3_PART = re.compile(
    r"([^\W\d]\w*)\s*(?:=\s*(?:dim3\s*)?[({]?([^;(){}]*(?:\([^(){}]*\)[^;(){}]*)*)[)}]?|[({]([^(){}]*(?:\([^(){}]*\)[^(){}]*)*)[)}])"
)
_EXPRESSION_TOKEN = re.compile(r"\s*(0[xX][\da-fA-F']+|\d[\d']*|[^\W\d]\w*|<<|>>|[-+*/%()])([uUlLzZ]*)")

_SIZE_OF = re.compile(r"\bsizeof\s*\(\s*([\w ]{1,40}?)\s*\)")
_SIZES: Final = {
    "char": 1, "bool": 1, "int8_t": 1, "uint8_t": 1, "short": 2, "half": 2, "__half": 2, "__nv_bfloat16": 2, "int": 4, "unsigned": 4,
    "unsigned int": 4, "float": 4, "int32_t": 4, "uint32_t": 4, "half2": 4, "double": 8, "long long": 8, "int64_t": 8, "uint64_t": 8,
    "size_t": 8, "float2": 8, "float4": 16, "double2": 16, "int4": 16,
}  # fmt: skip
"""Bytes of types, as CUDA has them on 64-bit systems."""

Block = tuple[int, int, int]


class FoundLaunch(NamedTuple):
    """One launch. `at` is the place of its kernel's name."""

    kernel: str
    at: int
    arguments: tuple[str, ...]


def find(code: str, brackets: int) -> FoundLaunch | None:
    """Return the launch whose `<<<` stands at `brackets` in `code`, which has no comments."""
    name, at = _kernel_before(code, brackets)
    if not name:
        return None
    arguments = _arguments_after(code, brackets + 3)
    return FoundLaunch(name, at, arguments) if arguments is not None else None


def _kernel_before(code: str, end: int) -> tuple[str, int]:
    """Return the last part of the name before `end`, without its template arguments."""
    start = max(0, end - _FURTHEST_BACK)
    before = code[start:end].rstrip()
    if before.endswith((">", ")")):
        opening = _opening(before)
        if opening < 0:
            return "", 0
        outside = before[:opening].rstrip()
        if before[-1] == ")" and not _NAME_BEFORE.search(outside, max(0, len(outside) - _LONGEST_NAME)):
            inside = before[opening + 1 : -1]  # (k<int>)<<<…>>>
            name, at = _kernel_before(inside, len(inside)) if not inside.rstrip().endswith(")") else ("", 0)
            return name, start + opening + 1 + at
        before = outside
    match = _NAME_BEFORE.search(before, max(0, len(before) - _LONGEST_NAME))
    return (match[0], start + match.start()) if match else ("", 0)


def _opening(text: str) -> int:
    """Return where the bracket opens that closes at the end of `text`, or -1 if nowhere."""
    closing: list[str] = []
    for match in reversed(list(_BRACKET.finditer(text))):
        bracket = match[0]
        if bracket == ">" and closing and closing[-1] != ">":
            continue  # a comparison in parentheses
        if bracket in _OPENS:
            closing.append(bracket)
        elif bracket == ";":
            return -1
        elif closing and bracket == _OPENS[closing[-1]]:
            closing.pop()
            if not closing:
                return match.start()
    return -1


def _arguments_after(code: str, start: int) -> tuple[str, ...] | None:
    depth = 0
    done = start
    arguments: list[str] = []
    for match in _BRACKET.finditer(code, start, start + _FURTHEST_AHEAD):
        at = match.start()
        bracket = match[0]
        if bracket in {"(", "[", "{"}:
            depth += 1
        elif bracket in {")", "]", "}"}:
            depth -= 1
            if depth < 0:
                return None
        elif bracket == "<" and code.startswith("<<<", at):
            return None
        elif depth == 0:
            if bracket == "," or code.startswith(">>>", at):
                arguments.append(" ".join(code[done:at].split()))
                done = at + 1
                if bracket == ">":
                    return tuple(arguments)
            elif bracket == ";":
                return None
    return None


def constants(code: str) -> dict[str, str]:
    """Return names of constants, and of `dim3` variables, with what initialises them; "" if two disagree."""
    values: dict[str, str] = {}
    if "const" in code:
        done = 0  # what has been read is not read again for the next `const` in it
        for word in _CONSTANT.finditer(code):
            if word.start() >= done and (declared := _DECLARED.match(code, word.end())):
                done = declared.end()
                name = _NAME_BEFORE.search(declared[0][-_LONGEST_NAME:].rstrip())
                if name and (value := _VALUE.match(code, done)):
                    add_constant(values, name[0], value[1] or value[2] or value[3])
    if "dim3" in code:
        for word in _DIM3.finditer(code):
            end = code.find(";", word.end(), word.end() + _LONGEST_DIM3)
            for match in _DIM3_PART.finditer(code[word.end() : max(end, word.end())]):
                add_constant(values, match[1], f"dim3({match[2] or match[3] or ''})")
    return values


def add_constant(values: dict[str, str], name: str, value: str) -> None:
    value = " ".join(value.split())
    values[name] = value if values.get(name, value) == value else ""


def block_size(expression: str, names: Mapping[str, str]) -> Block | None:
    """Return the size of a block, if `expression` is constant."""
    expression = expression.strip()
    for _ in range(_MOST_NESTING):
        following = names.get(expression)
        if following is None:
            break
        expression = following.strip()
    match = re.fullmatch(r"dim3\s*[({](.*)[)}]", expression, re.DOTALL)
    parts = top_level(match[1]) if match else [expression]
    if not 1 <= len(parts) <= 3:
        return None
    sizes = [_evaluate(part, names) for part in parts]
    if any(size is None or not 0 < size < _LARGEST for size in sizes):
        return None
    x, y, z = [size or 1 for size in sizes] + [1] * (3 - len(sizes))
    return x, y, z


def shared_size(arguments: Sequence[str], names: Mapping[str, str]) -> int | None:
    """Return the bytes of dynamic shared memory that a launch asks for, or None if they are not constant."""
    if len(arguments) < 3:
        return 0
    expression = _SIZE_OF.sub(lambda match: str(_SIZES.get(match[1], match[0])), arguments[2])
    size = _evaluate(expression, names)
    return size if size is not None and 0 <= size < _LARGEST else None


def top_level(text: str) -> list[str]:
    parts: list[str] = []
    depth = done = 0
    for match in _BRACKET.finditer(text):
        if match[0] in "([{":
            depth += 1
        elif match[0] in ")]}":
            depth -= 1
        elif match[0] == "," and depth == 0:
            parts.append(text[done : match.start()])
            done = match.end()
    return [*parts, text[done:]]


def _evaluate(expression: str, names: Mapping[str, str]) -> int | None:
    try:
        return _Evaluator(names).value(expression)
    except (ValueError, ZeroDivisionError, IndexError):
        return None


class _Evaluator:
    """Evaluates integer arithmetic as C++ does. Every failure is a ValueError."""

    _LEVELS: Final = (("<<", ">>"), ("+", "-"), ("*", "/", "%"))

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._left = 4 * _MOST_TOKENS

    def value(self, expression: str, nesting: int = 0) -> int:
        tokens: list[str] = []
        position = 0
        expression = expression.rstrip()
        while position < len(expression):
            match = _EXPRESSION_TOKEN.match(expression, position)
            self._left -= 1
            if not match or self._left < 0 or nesting > _MOST_NESTING:
                raise ValueError(expression)
            tokens.append(match[1])
            position = match.end()
        value = self._binary(tokens, 0, nesting)
        if tokens:
            raise ValueError(expression)
        return value

    def _binary(self, tokens: list[str], level: int, nesting: int) -> int:
        """Evaluate the operators of `level` and tighter at the front of `tokens`, and remove them."""
        if level == len(self._LEVELS):
            return self._unary(tokens, nesting)
        left = self._binary(tokens, level + 1, nesting)
        while tokens and tokens[0] in self._LEVELS[level]:
            operator = tokens.pop(0)
            right = self._binary(tokens, level + 1, nesting)
            left = _combine(left, operator, right)
        return left

    def _unary(self, tokens: list[str], nesting: int) -> int:
        if not tokens or nesting > _MOST_NESTING:
            raise ValueError
        first = tokens.pop(0)
        if first == "(":
            value = self._binary(tokens, 0, nesting + 1)
            if tokens.pop(0) != ")":
                raise ValueError
            return value
        if first in {"-", "+"}:
            value = self._unary(tokens, nesting + 1)
            return -value if first == "-" else value
        if first[0].isdigit():
            digits = first.replace("'", "")
            octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
            return int(digits, 8 if octal else 0)
        return self.value(self._names[first], nesting + 1) if first in self._names else int(first)


def _combine(left: int, operator: str, right: int) -> int:
    if operator in {"<<", ">>"} and not 0 <= right < 64:
        raise ValueError(operator)
    match operator:
        case "<<":
            value = left << right
        case ">>":
            value = left >> right
        case "+":
            value = left + right
        case "-":
            value = left - right
        case "*":
            value = left * right
        case _:
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            value = quotient if operator == "/" else left - quotient * right
    if abs(value) > 1 << 63:
        raise ValueError(operator)
    return value
