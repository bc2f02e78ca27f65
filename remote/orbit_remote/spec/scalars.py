"""Arithmetic of single numbers, as in C++ in `.cu` files and as in Python in `.py` files, within bounds."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import Any

from orbit_remote.spec.dtypes import DTYPES, DType
from orbit_remote.spec.syntax_tree import SpecError, SpecSpan
from orbit_remote.spec.values import LARGEST, Scalar, World

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
_FLOATS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": float.__truediv__, "//": float.__floordiv__,
    "%": operator.mod, "**": math.pow,
}  # fmt: skip
_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "+": int.__add__, "-": int.__sub__, "*": int.__mul__, "//": int.__floordiv__, "%": int.__mod__,
    "<<": int.__lshift__, ">>": int.__rshift__, "&": int.__and__, "|": int.__or__, "^": int.__xor__,
}  # fmt: skip
_CPP_NAMES = {"int32": "int", "int64": "long", "uint32": "unsigned", "uint64": "unsigned long"}


def integer(world: World, span: SpecSpan, value: int, dtype: str = "") -> Scalar:
    """Return an integer of this type: unsigned ones wrap, others must fit. `dtype` counts only in C++. Raises
    SpecError for one that does not fit.
    """
    if world.language == "triton" or world.wide:
        if not -LARGEST <= value <= LARGEST:
            raise SpecError(span, "This is beyond 2^63.")
        return Scalar(value, "int" if world.language == "triton" else "int64")
    kind = DTYPES[dtype]
    if not kind.signed:
        return Scalar(value % (kind.highest + 1), dtype)
    if not kind.lowest <= value <= kind.highest:
        remedy = "; make an operand 64 bits wide, as in 1ll" if dtype == "int32" else ""
        raise SpecError(
            span, f"This is {_short(value)}, which overflows {_CPP_NAMES.get(dtype, dtype)}{remedy}."
        )
    return Scalar(value, dtype)


def floating(world: World, value: float, dtype: str = "") -> Scalar:
    """Return a number rounded to `dtype` (float32, float16). Python has no types of floats."""
    if world.language == "triton":
        return Scalar(value, "float")
    return Scalar(_rounded(value, dtype), dtype)


def _rounded(value: float, dtype: str) -> float:
    form = {"float32": "<f", "float16": "<e"}.get(dtype)
    if not form or not math.isfinite(value):
        return value
    try:
        return struct.unpack(form, struct.pack(form, value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _promoted(world: World, value: Scalar) -> str:
    """Return the type after C++'s integral promotion: nothing narrower than int takes part."""
    if value.type == "bool" or (value.integral and DTYPES[value.type].size < 4):
        return "int64" if world.wide else "int32"
    if value.type in ("float16", "bfloat16"):
        return "float32"
    return "int64" if world.wide and value.integral else value.type


def common(world: World, left: Scalar, right: Scalar) -> str:
    """Return the common type of two numbers: by C++'s usual arithmetic conversions, or Python's tower."""
    if world.language == "triton":
        return "float" if "float" in (left.type, right.type) else "int"
    a, b = DTYPES[_promoted(world, left)], DTYPES[_promoted(world, right)]
    if "floating" in (a.kind, b.kind):
        return max((dtype for dtype in (a, b) if dtype.kind == "floating"), key=lambda dtype: dtype.size).name
    if a.size != b.size:
        return max(a, b, key=lambda dtype: dtype.size).name
    return a.name if not a.signed else b.name


def binary(world: World, span: SpecSpan, name: str, left: Scalar, right: Scalar) -> Scalar:
    """Apply an operator to two numbers, by the rules of the language. Raises SpecError, as at an overflow."""
    if name in COMPARISONS:
        return Scalar(_compare(world, name, left, right), "bool")
    if name in ("and", "or"):
        return Scalar(
            bool(left.value or right.value) if name == "or" else bool(left.value and right.value), "bool"
        )
    if name == "@":
        raise SpecError(span, "'@' multiplies tensors; these are numbers.")
    kind = common(world, left, right)
    if name in ("<<", ">>", "&", "|", "^") and not (_whole(left) and _whole(right)):
        raise SpecError(span, f"'{name}' takes integers.")
    if name in ("<<", ">>") and world.language == "cuda":
        kind = _promoted(world, left)
    if kind not in ("float", "float32", "float64"):
        return _integers(world, span, name, int(left.value), int(right.value), kind)
    if world.language == "cuda" and name == "%":
        raise SpecError(span, "'%' takes integers in C++.")
    return floating(world, _float(world, span, name, float(left.value), float(right.value)), kind)


def _whole(value: Scalar) -> bool:
    return value.integral or value.type == "bool"


def _compare(world: World, name: str, left: Scalar, right: Scalar) -> bool:
    a, b = left.value, right.value
    if world.language == "cuda" and _whole(left) and _whole(right):
        kind = DTYPES[common(world, left, right)]
        if not kind.signed:  # -1 < 1u is false in C++
            a, b = int(a) % (kind.highest + 1), int(b) % (kind.highest + 1)
    return COMPARISONS[name](a, b)


def _float(world: World, span: SpecSpan, name: str, a: float, b: float) -> float:
    try:
        return _FLOATS[name](a, b)
    except ZeroDivisionError:
        if world.language == "cuda" and name == "/":
            return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)
        raise SpecError(span, "This divides by zero.") from None
    except (OverflowError, ValueError):
        raise SpecError(span, f"'{name}' has no finite result here.") from None


def _integers(world: World, span: SpecSpan, name: str, a: int, b: int, kind: str) -> Scalar:
    if world.language == "cuda" and not world.wide and not DTYPES[kind].signed:
        a, b = a % (DTYPES[kind].highest + 1), b if name in ("<<", ">>") else b % (DTYPES[kind].highest + 1)
    if name in ("/", "//", "%") and b == 0:
        raise SpecError(span, "This divides by zero.")
    if name in ("<<", ">>"):
        width = 64 if world.language == "triton" or world.wide else 8 * DTYPES[kind].size
        if not 0 <= b < width:
            raise SpecError(span, f"A shift by {_short(b)} is not between 0 and {width - 1}.")
    if name == "**":
        return _power(world, span, a, b)
    if name == "/" and world.language == "triton":
        return Scalar(a / b, "float")
    if name in ("/", "%") and world.language == "cuda":  # C++ rounds to 0
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return integer(world, span, quotient if name == "/" else a - quotient * b, kind)
    return integer(world, span, _INTEGERS[name](a, b), kind)


def _power(world: World, span: SpecSpan, a: int, b: int) -> Scalar:
    if b < 0:
        if a == 0:
            raise SpecError(span, "This divides by zero.")
        return Scalar(float(a) ** b if b > -1100 else 0.0, "float")
    if abs(a) > 1 and b > 64:
        raise SpecError(span, "This is beyond 2^63.")
    return integer(world, span, a**b if abs(a) > 1 else (1 if b == 0 else a if b % 2 else a * a))


def unary(world: World, span: SpecSpan, name: str, value: Scalar) -> Scalar:
    """Apply an operator to one number. Raises SpecError."""
    if name == "not":
        return Scalar(not value.value, "bool")
    if name == "~" and not _whole(value):
        raise SpecError(span, "'~' takes an integer.")
    if not _whole(value):
        return Scalar(-value.value if name == "-" else value.value, value.type)
    kind = "int" if world.language == "triton" else _promoted(world, value)
    whole = int(value.value)
    result = -whole if name == "-" else ~whole if name == "~" else whole
    return integer(world, span, result, kind)


def converted(world: World, span: SpecSpan, value: Scalar, dtype: DType) -> Scalar:
    """Convert explicitly as C++ does: integers are cut to their bits, floating values lose their fraction. Raises
    SpecError.
    """
    if dtype.kind == "bool":
        return Scalar(bool(value.value), "bool")
    if dtype.kind == "floating":
        kind = "float" if world.language == "triton" else dtype.name
        return Scalar(_rounded(float(value.value), dtype.name), kind)
    if isinstance(value.value, float) and not math.isfinite(value.value):
        raise SpecError(span, f"{value.value} is not an integer.")
    whole = math.trunc(value.value)
    if world.language == "triton":
        return integer(world, span, whole)
    if not -(1 << 64) < whole < 1 << 64:
        raise SpecError(span, f"{_short(whole)} does not fit in {dtype.name}.")
    cut = whole & ((1 << 8 * dtype.size) - 1)
    return Scalar(cut - (1 << 8 * dtype.size) if dtype.signed and cut > dtype.highest else cut, dtype.name)


def misfit(value: Scalar, dtype: DType) -> str:
    """Return why a number cannot be passed as this type without a change of its value. Return "" if it can."""
    if dtype.kind == "integer":
        if value.type != "bool" and not value.integral:
            whole = isinstance(value.value, float) and value.value.is_integer()
            if not whole:
                return f"{value.value} is not an integer"
        if not dtype.lowest <= value.value <= dtype.highest:
            return f"{_short(int(value.value))} does not fit in {dtype.name}"
    if dtype.kind == "floating" and abs(value.value) > dtype.largest and abs(value.value) != math.inf:
        shown = _short(value.value) if isinstance(value.value, int) else value.value
        return f"{shown} is beyond the largest {dtype.name}"
    return ""


def _short(value: int) -> str:
    return str(value) if abs(value) < 1 << 128 else "more than 2^128"
