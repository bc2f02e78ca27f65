"""Functions that go element by element, and those of single numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from orbit_remote.spec import scalars as spec_scalars
from orbit_remote.spec.dtypes import DType
from orbit_remote.spec.functions.call import Arguments, Function, Group
from orbit_remote.spec.functions.operators import BOOL, binary, elementwise
from orbit_remote.spec.values import Scalar, Tensor, Value, broadcast, result_type


def _call_scalar(a: Arguments, of: Callable[[float], float], x: Scalar) -> Scalar:
    try:
        value = of(x.value)
    except (ValueError, OverflowError, ZeroDivisionError):
        a.fail("x", f"{a.function.name}({x.value}) has no finite value.")
    if isinstance(value, bool):
        return Scalar(value, "bool")
    if isinstance(value, int) and (a.world.language == "triton" or x.integral):
        return spec_scalars.integer(a.world, a.span, value, x.type if x.integral else "int64")
    return spec_scalars.floating(a.world, float(value), x.type if x.type == "float32" else "float64")


def _maths(name: str, of: Callable[[float], float] | None = None) -> Callable[[Arguments], Value]:
    """A function with floating results; `of` is the one for single numbers."""

    def rule(a: Arguments) -> Value:
        x = a.values.get("x")
        if isinstance(x, Scalar) and of:
            return _call_scalar(a, of, x)
        tensor = a.floating("x")
        return _mapped(a, tensor, tensor.dtype, lambda t: _named(t, name)(tensor.data))

    return rule


def _kept(name: str, of: Callable[[float], float] | None = None) -> Callable[[Arguments], Value]:
    """A function whose results have the argument's type."""

    def rule(a: Arguments) -> Value:
        x = a.values.get("x")
        if isinstance(x, Scalar) and of:
            return _call_scalar(a, of, x)
        tensor = a.operand("x")
        if tensor.dtype.kind == "bool":
            a.fail("x", f"{a.function.name} takes no truth values.")
        if tensor.dtype.kind == "integer" and name in ("floor", "ceil", "round", "trunc"):
            return tensor
        return _mapped(a, tensor, tensor.dtype, lambda t: _named(t, name)(tensor.data))

    return rule


def _named(torch: Any, name: str) -> Any:
    return (
        getattr(torch.nn.functional, name)
        if name in ("gelu", "silu", "softplus", "relu")
        else getattr(torch, name)
    )


def _mapped(a: Arguments, x: Tensor, dtype: DType, run: Callable[[Any], Any]) -> Tensor:
    return a.world.make(a.span, x.shape, dtype, lambda: run(a.world.torch), x.terms)


def _test(name: str, of: Callable[[float], bool]) -> Callable[[Arguments], Value]:
    def rule(a: Arguments) -> Value:
        x = a.values.get("x")
        if isinstance(x, Scalar):
            return Scalar(of(x.value), "bool")
        tensor = a.floating("x")
        return _mapped(a, tensor, BOOL, lambda t: getattr(t, name)(tensor.data))

    return rule


def _gelu(a: Arguments) -> Value:
    x, how = a.floating("x"), a.values.get("approximate", "none")
    if how not in ("none", "tanh"):
        a.fail("approximate", '\'approximate\' of gelu is "none" or "tanh".')
    return _mapped(a, x, x.dtype, lambda t: t.nn.functional.gelu(x.data, approximate=how))


def _either(a: Arguments, *names: str) -> list[Tensor | Scalar]:
    found: list[Tensor | Scalar] = []
    for name in names:
        value = a.values.get(name)
        if isinstance(value, Tensor):
            value = a.world.operand(a.where(name), value)
        if not isinstance(value, Tensor | Scalar):
            a.wrong(name, "a tensor or a number")
        found.append(value)
    return found


def _two(name: str, *, floating: bool = False) -> Callable[[Arguments], Value]:
    def rule(a: Arguments) -> Value:
        values = _either(a, "x", "y")
        if all(isinstance(value, Scalar) for value in values):
            a.fail("x", f"{a.function.name} takes a tensor.")
        if floating:
            values = [a.world.floating(a.span, v) if isinstance(v, Tensor) else v for v in values]
        dtype = result_type(a.world, values)
        if name == "fmod" and dtype.kind == "bool":
            a.fail("x", "fmod takes no truth values.")
        return elementwise(a.world, a.span, name, values, dtype)

    return rule


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
    x, y = _either(a, "x", "y")
    dtype = result_type(a.world, [x, y])
    tensors = [value for value in (x, y) if isinstance(value, Tensor)]
    shape = condition.shape
    for tensor in tensors:
        shape = broadcast(a.span, shape, tensor.shape)
    world = a.world

    def run() -> Any:
        own = world.type(dtype)
        x_data, y_data = (
            v.data.to(own)
            if isinstance(v, Tensor)
            else world.torch.tensor(v.value, dtype=own, device=world.device)
            for v in (x, y)
        )
        return world.torch.where(condition.data, x_data, y_data)

    return world.make(a.span, shape, dtype, run, max((tensor.terms for tensor in tensors), default=1))


def _clamp(a: Arguments) -> Value:
    x = a.operand("x")
    if not (a.has("min") or a.has("max")):
        a.fail("x", "clamp takes 'min', 'max' or both.")
    if x.dtype.kind == "bool":
        a.fail("x", "clamp takes no truth values.")
    low = a.scalar("min") if a.has("min") else None
    high = a.scalar("max") if a.has("max") else None
    bounds = [bound for bound in (low, high) if bound]
    dtype = result_type(a.world, [x, *bounds])
    own = (low.value if low else None, high.value if high else None)
    return _mapped(a, x, dtype, lambda t: t.clamp(x.data.to(a.world.type(dtype)), *own))


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
    Function("cdiv", "x, y", _N, "x / y rounded up", _cdiv),
    Function("next_power_of_2", "n", _N, "the smallest power of 2 that is at least n", _next_power),
    Function("exp", "x", _E, "e to the x", _maths("exp", math.exp), method=True),
    Function("exp2", "x", _E, "2 to the x", _maths("exp2", lambda x: math.pow(2.0, x)), method=True),
    Function("expm1", "x", _E, "exp(x) - 1", _maths("expm1", math.expm1), method=True),
    Function("log", "x", _E, "the natural logarithm", _maths("log", math.log), method=True),
    Function("log2", "x", _E, "the logarithm to base 2", _maths("log2", math.log2), method=True),
    Function("log10", "x", _E, "the logarithm to base 10", _maths("log10", math.log10), method=True),
    Function("log1p", "x", _E, "log(1 + x)", _maths("log1p", math.log1p), method=True),
    Function("sqrt", "x", _E, "the square root", _maths("sqrt", math.sqrt), method=True),
    Function("rsqrt", "x", _E, "1 / sqrt(x)", _maths("rsqrt", lambda x: 1 / math.sqrt(x)), method=True),
    Function("sin", "x", _E, "the sine", _maths("sin", math.sin), method=True),
    Function("cos", "x", _E, "the cosine", _maths("cos", math.cos), method=True),
    Function("tanh", "x", _E, "the hyperbolic tangent", _maths("tanh", math.tanh), method=True),
    Function("erf", "x", _E, "the error function", _maths("erf", math.erf), method=True),
    Function("sigmoid", "x", _E, "1 / (1 + exp(-x))", _maths("sigmoid"), method=True),
    Function("silu", "x", _E, "x * sigmoid(x)", _maths("silu"), method=True),
    Function("gelu", 'x, approximate="none"', _E, "the Gaussian error linear unit", _gelu),
    Function("softplus", "x", _E, "log(1 + exp(x))", _maths("softplus")),
    Function("relu", "x", _E, "max(x, 0)", _kept("relu"), method=True),
    Function("abs", "x", _E, "the absolute value", _kept("abs", abs), method=True),
    Function("sign", "x", _E, "-1, 0 or 1", _kept("sign"), method=True),
    Function("square", "x", _E, "x * x", _kept("square"), method=True),
    Function("floor", "x", _E, "the next integer below", _kept("floor", math.floor), method=True),
    Function("ceil", "x", _E, "the next integer above", _kept("ceil", math.ceil), method=True),
    Function("round", "x", _E, "the nearest integer, ties to even", _kept("round", round), method=True),
    Function("trunc", "x", _E, "the fraction cut off", _kept("trunc", math.trunc), method=True),
    Function("reciprocal", "x", _E, "1 / x", _maths("reciprocal"), method=True),
    Function("isnan", "x", _E, "whether it is not a number", _test("isnan", math.isnan), method=True),
    Function("isinf", "x", _E, "whether it is infinite", _test("isinf", math.isinf), method=True),
    Function("isfinite", "x", _E, "whether it is neither", _test("isfinite", math.isfinite), method=True),
    Function("maximum", "x, y", _E, "the larger of two, element by element", _two("maximum"), method=True),
    Function("minimum", "x, y", _E, "the smaller of two, element by element", _two("minimum"), method=True),
    Function("fmod", "x, y", _E, "the remainder with x's sign", _two("fmod"), method=True),
    Function("atan2", "x, y", _E, "the angle of the point (y, x)", _two("atan2", floating=True), method=True),
    Function("pow", "x, y", _E, "x to the y", _pow, method=True),
    Function("where", "condition, x, y", _E, "x where the condition holds, else y", _where),
    Function("clamp", "x, min=None, max=None", _E, "x kept between min and max", _clamp, method=True),
)  # fmt: skip
