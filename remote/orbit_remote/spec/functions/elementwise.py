"""Functions that work element by element, and functions of single numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

from orbit_remote.spec import scalars as spec_scalars
from orbit_remote.spec.functions.call import Arguments, Group, SpecFunction
from orbit_remote.spec.functions.operators import binary, elementwise
from orbit_remote.spec.values import Scalar, Tensor, Value, result_type


def _call_scalar(a: Arguments, of: Callable[[float], float], x: Scalar) -> Scalar:
    try:
        value = of(x.value)
    except (ValueError, OverflowError, ZeroDivisionError):
        a.fail("x", f"{a.function.name}({x.value}) has no finite value.")
    if isinstance(value, int) and (a.world.language == "triton" or x.integral):
        return spec_scalars.integer(a.world, a.span, value, x.type if x.integral else "int64")
    return spec_scalars.floating(a.world, float(value), x.type if x.type == "float32" else "float64")


def _each(of: Callable[[float], float] | None = None, *, kept: bool = False) -> Callable[[Arguments], Value]:
    """Return the rule of torch's function of that name. Its results are floating, or of the argument's type if it is
    `kept`. `of` is the function for single numbers.
    """

    def rule(a: Arguments) -> Value:
        name, x = a.function.name, a.values.get("x")
        if isinstance(x, Scalar) and of:
            return _call_scalar(a, of, x)
        tensor = a.operand("x") if kept else a.floating("x")
        if tensor.dtype.kind == "bool":
            a.fail("x", f"{name} does not take truth values.")
        if tensor.dtype.kind == "integer" and name in ("floor", "ceil", "round"):
            return tensor
        return elementwise(a.world, a.span, name, [tensor], tensor.dtype)

    return rule


def _gelu(a: Arguments) -> Value:
    x, approximate = a.floating("x"), a.values.get("approximate", "none")
    if approximate not in ("none", "tanh"):
        a.fail("approximate", '\'approximate\' of gelu is "none" or "tanh".')
    return elementwise(a.world, a.span, "gelu", [x], x.dtype, approximate=approximate)


def _either(a: Arguments, *names: str) -> list[Tensor | Scalar]:
    operands: list[Tensor | Scalar] = []
    for name in names:
        value = a.values.get(name)
        if isinstance(value, Tensor):
            value = a.world.operand(a.where(name), value)
        if not isinstance(value, Tensor | Scalar):
            a.wrong(name, "a tensor or a number")
        operands.append(value)
    return operands


def _two(a: Arguments) -> Value:
    values = _either(a, "x", "y")
    if all(isinstance(value, Scalar) for value in values):
        a.fail("x", f"{a.function.name} takes a tensor.")
    return elementwise(a.world, a.span, a.function.name, values, result_type(a.world, values))


def _pow(a: Arguments) -> Value:
    x, y = _either(a, "x", "y")
    if isinstance(x, Tensor) or isinstance(y, Tensor):
        return binary(a.world, a.span, "**", x, y)
    if a.world.language == "triton":
        return spec_scalars.binary(a.world, a.span, "**", x, y)
    return _call_scalar(a, lambda value: math.pow(value, y.value), Scalar(float(x.value), "float64"))


def _where(a: Arguments) -> Value:
    condition = a.tensor("condition")
    if condition.dtype.kind != "bool":
        a.wrong("condition", "a tensor of truth values")
    values = _either(a, "x", "y")
    return elementwise(a.world, a.span, "where", values, result_type(a.world, values), condition=condition)


def _clamp(a: Arguments) -> Value:
    value = a.operand("x")
    if not (a.has("min") or a.has("max")):
        a.fail("x", "clamp takes 'min', 'max' or both.")
    if value.dtype.kind == "bool":
        a.fail("x", "clamp does not take truth values.")
    for name, function in (("min", "maximum"), ("max", "minimum")):
        if a.has(name):
            both = [value, a.scalar(name)]
            value = elementwise(a.world, a.span, function, both, result_type(a.world, both))
    return value


def _cdiv(a: Arguments) -> Value:
    x, y = a.scalar("x"), a.scalar("y")
    if not (x.integral and y.integral):
        a.fail("x", "cdiv takes integers.")
    if y.value == 0:
        a.fail("y", "This divides by zero.")
    kind = "int" if a.world.language == "triton" else spec_scalars.common(a.world, x, y)
    return spec_scalars.integer(a.world, a.span, -(-int(x.value) // int(y.value)), kind)


def _next_power(a: Arguments) -> Value:
    n = a.integer("n")
    if n < 1:
        a.fail("n", "next_power_of_2 takes numbers from 1 on.")
    return spec_scalars.integer(a.world, a.span, 1 << (n - 1).bit_length(), a.scalar("n").type)


_E: Group = "Element by element"
_N: Group = "Numbers"
ELEMENTWISE = (
    SpecFunction("cdiv", "x, y", _N, "x / y rounded up", _cdiv),
    SpecFunction("next_power_of_2", "n", _N, "the smallest power of 2 that is at least n", _next_power),
    SpecFunction("exp", "x", _E, "e to the x", _each(math.exp), method=True),
    SpecFunction("log", "x", _E, "the natural logarithm", _each(math.log), method=True),
    SpecFunction("log2", "x", _E, "the logarithm to base 2", _each(math.log2), method=True),
    SpecFunction("sqrt", "x", _E, "the square root", _each(math.sqrt), method=True),
    SpecFunction("rsqrt", "x", _E, "1 / sqrt(x)", _each(lambda x: 1 / math.sqrt(x)), method=True),
    SpecFunction("sin", "x", _E, "the sine", _each(math.sin), method=True),
    SpecFunction("cos", "x", _E, "the cosine", _each(math.cos), method=True),
    SpecFunction("tanh", "x", _E, "the hyperbolic tangent", _each(math.tanh), method=True),
    SpecFunction("sigmoid", "x", _E, "1 / (1 + exp(-x))", _each(), method=True),
    SpecFunction("silu", "x", _E, "x * sigmoid(x)", _each(), method=True),
    SpecFunction("gelu", 'x, approximate="none"', _E, "the Gaussian error linear unit", _gelu),
    SpecFunction("relu", "x", _E, "max(x, 0)", _each(kept=True), method=True),
    SpecFunction("abs", "x", _E, "the absolute value", _each(abs, kept=True), method=True),
    SpecFunction("floor", "x", _E, "the largest integer that is not above x", _each(math.floor, kept=True), method=True),
    SpecFunction("ceil", "x", _E, "the smallest integer that is not below x", _each(math.ceil, kept=True), method=True),
    SpecFunction("round", "x", _E, "the nearest integer, ties to even", _each(round, kept=True), method=True),
    SpecFunction("maximum", "x, y", _E, "the larger of two, element by element", _two, method=True),
    SpecFunction("minimum", "x, y", _E, "the smaller of two, element by element", _two, method=True),
    SpecFunction("pow", "x, y", _E, "x to the y", _pow, method=True),
    SpecFunction("where", "condition, x, y", _E, "x where the condition holds, else y", _where),
    SpecFunction("clamp", "x, min=None, max=None", _E, "x kept between min and max", _clamp, method=True),
)  # fmt: skip
