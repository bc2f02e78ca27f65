"""The functions that compute: on numbers, element by element on tensors, reductions, linear algebra."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from orbit_remote import spec_scalars
from orbit_remote.spec_call import Arguments, Function, Group
from orbit_remote.spec_dtypes import DTYPES, DType
from orbit_remote.spec_tree import Span, SpecError
from orbit_remote.spec_values import Scalar, Tensor, Value, World, broadcast, result_type, shown, text_of

BOOL, INT64 = DTYPES["bool"], DTYPES["int64"]


# -- operators on tensors -----------------------------------------------------------------------------

_OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "true_divide", "//": "floor_divide", "%": "remainder", "**": "pow",
    "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor", "<<": "bitwise_left_shift",
    ">>": "bitwise_right_shift", "==": "eq", "!=": "ne", "<": "lt", ">": "gt", "<=": "le", ">=": "ge",
    "and": "logical_and", "or": "logical_or",
}  # fmt: skip
_BITS = frozenset("&|^") | {"<<", ">>"}


def binary(world: World, span: Span, name: str, left: Value, right: Value) -> Tensor:
    """An operator of which at least one side is a tensor."""
    for value in (left, right):
        if not isinstance(value, Tensor | Scalar):
            raise SpecError(span, f"'{name}' takes tensors and numbers, not {shown(value)}.")
    values = cast("list[Tensor | Scalar]", [left, right])
    if name == "@":
        if not isinstance(left, Tensor) or not isinstance(right, Tensor):
            raise SpecError(span, "'@' multiplies tensors; use '*' for numbers.")
        return matmul(world, span, left, right)
    if name in ("and", "or"):
        wanted = "'&'" if name == "and" else "'|'"
        raise SpecError(span, f"'{name}' takes single truth values; use {wanted} between tensors.")
    tensors = [world.operand(span, value) if isinstance(value, Tensor) else value for value in values]
    dtype = result_type(world, tensors)
    kind = dtype.kind
    if name in spec_scalars.COMPARISONS:
        return elementwise(world, span, _OPERATORS[name], tensors, BOOL)
    if name in _BITS and (kind == "floating" or (kind == "bool" and name in ("<<", ">>"))):
        raise SpecError(span, f"'{name}' takes integers; these are {dtype.name}.")
    if kind == "bool" and name == "-":
        raise SpecError(span, "'-' takes no truth values.")
    function = _OPERATORS[name]
    options: dict[str, Any] = {}
    if name == "/" and kind != "floating":
        if world.language == "cuda":
            if kind == "bool":
                raise SpecError(span, "'/' takes no truth values.")
            function, options = "div", {"rounding_mode": "trunc"}
        else:
            dtype = world.floats
            tensors = [world.floating(span, one) if isinstance(one, Tensor) else one for one in tensors]
    elif name == "%" and world.language == "cuda":
        if kind == "floating":
            raise SpecError(span, "'%' takes integers in C++; use fmod.")
        if kind == "bool":
            raise SpecError(span, "'%' takes no truth values.")
        function = "fmod"
    elif name in ("//", "%", "**") and kind == "bool":
        raise SpecError(span, f"'{name}' takes no truth values.")
    if kind == "integer" and name in ("/", "//", "%") and isinstance(right, Scalar) and right.value == 0:
        raise SpecError(span, "This divides by zero.")
    if name == "**" and kind == "integer" and (not isinstance(right, Scalar) or right.value < 0):
        raise SpecError(span, "An integer tensor is raised to numbers from 0 on.")
    return elementwise(world, span, function, tensors, dtype, **options)


def elementwise(
    world: World, span: Span, function: str, values: Sequence[Tensor | Scalar], dtype: DType, **options: Any
) -> Tensor:
    """torch's function of this name over tensors and numbers that are brought to one shape and one type."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    shape: tuple[int, ...] = ()
    for tensor in tensors:
        shape = broadcast(span, shape, tensor.shape)
    meeting = result_type(world, values)
    for value in values:
        if (
            isinstance(value, Scalar)
            and meeting.kind == "integer"
            and (why := spec_scalars.misfit(value, meeting))
        ):
            raise SpecError(span, f"{why[0].upper()}{why[1:]}.")

    def run() -> Any:
        own = world.type(meeting)
        data = [
            value.data.to(own)
            if isinstance(value, Tensor)
            else world.torch.tensor(value.value, dtype=own, device=world.device)
            for value in values
        ]
        return getattr(world.torch, function)(*data, **options)

    return world.make(span, shape, dtype, run, max((tensor.terms for tensor in tensors), default=1))


def unary(world: World, span: Span, name: str, x: Tensor) -> Tensor:
    x = world.operand(span, x)
    if name == "+":
        return x
    if name in ("not", "~"):
        if name == "not" or x.dtype.kind == "floating":
            wanted = "'~' between" if name == "not" else "integers for"
            raise SpecError(
                span,
                f"'{name}' takes {'single truth values; use ' + wanted + ' tensors' if name == 'not' else 'integers'}.",
            )
        return elementwise(world, span, "bitwise_not", [x], x.dtype)
    if x.dtype.kind == "bool":
        raise SpecError(span, "'-' takes no truth values.")
    return elementwise(world, span, "neg", [x], x.dtype)


# -- element by element -------------------------------------------------------------------------------


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


# -- numbers ------------------------------------------------------------------------------------------


def _chosen(smallest: bool) -> Callable[[Arguments], Value]:
    """min and max: of numbers, or of a tensor as reductions."""

    def rule(a: Arguments) -> Value:
        items = a.values.get("values", ())
        values = cast("tuple[Value, ...]", items)
        if values and isinstance(values[0], Tensor):
            return _extreme(a, values, smallest=smallest)
        if any(isinstance(value, Tensor) for value in values):
            a.fail("values", f"Element by element it is {'minimum' if smallest else 'maximum'}.")
        if not values or not all(isinstance(value, Scalar) for value in values):
            a.fail("values", f"{a.function.name} takes numbers or a tensor.")
        numbers = cast("tuple[Scalar, ...]", values)
        found = numbers[0]
        for number in numbers[1:]:
            less = spec_scalars.binary(a.world, a.span, "<", number, found).value
            kind = found.type if number.type == found.type else spec_scalars.common(a.world, found, number)
            taken = number if bool(less) == smallest and number.value != found.value else found
            value = float(taken.value) if kind.startswith("float") else taken.value
            found = taken if taken.type == kind else Scalar(value, kind)
        return found

    return rule


def _extreme(a: Arguments, values: tuple[Value, ...], *, smallest: bool) -> Value:
    if len(values) > 2:
        a.fail("values", f"{a.function.name} of a tensor takes 'dim'.")
    if len(values) == 2:
        other = "minimum" if smallest else "maximum"
        a.fail(
            "values", f"Write {a.function.name}(x, dim=…) to reduce, {other}(x, y) to go element by element."
        )
    a.values["x"] = next(iter(values))
    return _reduce("amin" if smallest else "amax")(a)


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


# -- reductions ---------------------------------------------------------------------------------------


def _left(shape: tuple[int, ...], dims: tuple[int, ...], *, keep: bool) -> tuple[int, ...]:
    return tuple(1 if at in dims else extent for at, extent in enumerate(shape) if keep or at not in dims)


def _reduce(name: str, sums: bool = False) -> Callable[[Arguments], Value]:
    """`sums` says that the error grows with the number of elements."""

    def rule(a: Arguments) -> Value:
        floating = name in ("mean", "std", "var", "logsumexp")
        x = a.floating("x") if floating else a.operand("x")
        dims, keep = a.dims("dim", len(x.shape)), a.flag("keepdim")
        count = math.prod(x.shape[at] for at in dims)
        dtype = x.dtype
        if name in ("sum", "prod") and dtype.kind != "floating":
            dtype = INT64
        elif name in ("all", "any"):
            dtype = BOOL
        if name in ("amax", "amin", "mean", "std", "var") and count == 0:
            a.fail("x", f"{a.function.name} of nothing has no value.")
        shape = _left(x.shape, dims, keep=keep)

        def run() -> Any:
            data = x.data.bool() if dtype is BOOL and name in ("all", "any") else x.data
            if name == "prod":
                for at in sorted(dims, reverse=True):
                    data = data.prod(at, keepdim=True)
                return data.reshape(shape)
            if not dims:
                return data.to(a.world.type(dtype)) if name not in ("std", "var") else data * math.nan
            options = {"correction": int(a.number("correction", 1))} if name in ("std", "var") else {}
            return getattr(data, name)(dims, keepdim=keep, **options)

        return a.world.make(a.span, shape, dtype, run, max(x.terms, count) if sums else x.terms)

    return rule


def _cumulative(name: str) -> Callable[[Arguments], Value]:
    def rule(a: Arguments) -> Value:
        x = a.operand("x")
        dim = a.dim("dim", len(x.shape), -1)
        dtype = x.dtype if x.dtype.kind == "floating" else INT64
        terms = max(x.terms, x.shape[dim] if x.shape else 1)
        return a.world.make(a.span, x.shape, dtype, lambda: getattr(x.data, name)(dim), terms)

    return rule


def _sort(a: Arguments) -> Value:
    x = a.operand("x")
    dim, down = a.dim("dim", len(x.shape), -1), a.flag("descending")
    return a.world.make(a.span, x.shape, x.dtype, lambda: x.data.sort(dim, down).values, x.terms)


def _argsort(a: Arguments) -> Value:
    x = a.operand("x")
    dim, down = a.dim("dim", len(x.shape), -1), a.flag("descending")
    return a.world.make(
        a.span, x.shape, INT64, lambda: x.data.sort(dim=dim, descending=down, stable=True).indices
    )


def _arg(name: str) -> Callable[[Arguments], Value]:
    def rule(a: Arguments) -> Value:
        x = a.operand("x")
        if not x.numel:
            a.fail("x", f"{a.function.name} of nothing has no value.")
        if x.dtype.kind == "bool":
            a.fail("x", f"{a.function.name} takes no truth values.")
        dim = a.dim("dim", len(x.shape)) if a.has("dim") else None
        keep = a.flag("keepdim")
        shape = _left(x.shape, tuple(range(len(x.shape))) if dim is None else (dim,), keep=keep)
        return a.world.make(a.span, shape, INT64, lambda: getattr(x.data, name)(dim, keepdim=keep))

    return rule


def _softmax(name: str) -> Callable[[Arguments], Value]:
    def rule(a: Arguments) -> Value:
        x = a.floating("x")
        dim = a.dim("dim", len(x.shape), -1)
        terms = max(x.terms, x.shape[dim] if x.shape else 1)
        return a.world.make(
            a.span, x.shape, x.dtype, lambda: getattr(a.world.torch, name)(x.data, dim), terms
        )

    return rule


def _histc(a: Arguments) -> Value:
    x, bins, low, high = a.floating("x"), a.integer("bins"), a.scalar("min").value, a.scalar("max").value
    if bins < 1 or not low < high:
        a.fail("bins", "histc counts in at least 1 bin between 'min' and a larger 'max'.")
    return a.world.make(a.span, (bins,), x.dtype, lambda: a.world.torch.histc(x.data, bins, low, high))


def _bincount(a: Arguments) -> Value:
    x, bins = a.operand("x"), a.integer("minlength")
    if x.dtype.kind != "integer":
        a.wrong("x", "a tensor of integers")
    if bins < 1:
        a.fail("minlength", "'minlength' is at least 1.")

    def run() -> Any:
        found = a.world.torch.bincount(x.data.reshape(-1).to(a.world.torch.int64), minlength=bins)
        if len(found) > bins:
            raise ValueError(f"bincount found {len(found) - 1}, and the bins end at {bins - 1}")
        return found

    return a.world.make(a.span, (bins,), INT64, run)


# -- linear algebra and layers --------------------------------------------------------------------------


def matmul(world: World, span: Span, left: Tensor, right: Tensor) -> Tensor:
    x, y = world.operand(span, left), world.operand(span, right)
    if not x.shape or not y.shape:
        raise SpecError(span, "A matrix product takes tensors with dimensions.")
    inner, other = x.shape[-1], y.shape[-2:][0]
    if inner != other:
        raise SpecError(
            span,
            f"The shapes {text_of(x.shape)} and {text_of(y.shape)} do not multiply: {inner} and {other} differ.",
        )
    dtype = result_type(world, [x, y])
    if dtype.kind == "bool":
        raise SpecError(span, "A matrix product takes no truth values.")
    batch = broadcast(span, x.shape[:-2], y.shape[:-2])
    shape = (*batch, *x.shape[-2:-1], *(y.shape[-1:] if len(y.shape) > 1 else ()))
    whole = dtype.kind == "integer"

    def run() -> Any:
        # CUDA has no integer matmul in torch; float64 is exact up to 2^53
        own = world.torch.float64 if whole else world.type(dtype)
        product = world.torch.matmul(x.data.to(own), y.data.to(own))
        return product.to(world.torch.int64) if whole else product

    return world.make(span, shape, dtype, run, max(x.terms, y.terms, inner))


def _matmul(a: Arguments) -> Value:
    return matmul(a.world, a.span, a.tensor("x"), a.tensor("y"))


def _norm(a: Arguments, *, centred: bool) -> Value:
    x, shape = a.floating("x"), a.integers("normalized_shape")
    if not shape or x.shape[-len(shape) :] != shape:
        a.fail("normalized_shape", f"{text_of(shape)} is not how the shape {text_of(x.shape)} ends.")
    weight = a.optional_tensor("weight")
    bias = a.optional_tensor("bias") if centred else None
    for name, one in (("weight", weight), ("bias", bias)):
        if one and one.shape != shape:
            a.fail(name, f"'{name}' has the shape {text_of(one.shape)}, not {text_of(shape)}.")
    eps = a.number("eps", 1e-5)
    dims = tuple(range(-len(shape), 0))

    def run() -> Any:
        data = x.data - x.data.mean(dims, keepdim=True) if centred else x.data
        data = data * a.world.torch.rsqrt((data * data).mean(dims, keepdim=True) + eps)
        data = data * weight.data.to(data.dtype) if weight else data
        return data + bias.data.to(data.dtype) if bias else data

    return a.world.make(a.span, x.shape, x.dtype, run, max(x.terms, math.prod(shape)))


def _attention(a: Arguments) -> Value:
    world = a.world
    query, key, value = a.floating("query"), a.floating("key"), a.floating("value")
    if not len(query.shape) == len(key.shape) == len(value.shape) >= 2:
        a.fail("query", "query, key and value have the same number of dimensions, at least 2.")
    length, width = key.shape[-2:]
    if query.shape[-1] != width:
        a.fail("key", f"query and key differ in their last extent: {query.shape[-1]} and {width}.")
    if value.shape[-2] != length:
        a.fail("value", f"key and value differ in their length: {length} and {value.shape[-2]}.")
    causal = a.flag("is_causal")
    scale = a.number("scale", 1 / math.sqrt(max(1, width)))
    scores = matmul(world, a.span, query, _transposed(world, a.span, key))
    weights = elementwise(world, a.span, "mul", [scores, Scalar(scale, "float")], scores.dtype)

    def softmax() -> Any:
        data = weights.data
        if causal:
            allowed = world.torch.ones(data.shape[-2:], dtype=world.torch.bool, device=world.device).tril()
            data = data.masked_fill(~allowed, -math.inf)
        return data.softmax(-1)

    shares = world.make(a.span, weights.shape, weights.dtype, softmax, max(weights.terms, length))
    return matmul(world, a.span, shares, value)


def _transposed(world: World, span: Span, x: Tensor) -> Tensor:
    order = (*x.shape[:-2], x.shape[-1], x.shape[-2])
    strides = (*x.strides[:-2], x.strides[-1], x.strides[-2])
    return world.view(span, x, order, strides, lambda: x.data.transpose(-1, -2))


_E: Group = "Element by element"
_R: Group = "Reductions"
_L: Group = "Linear algebra"
_N: Group = "Numbers"
MATHS = (
    Function("min", "*values, dim=None, keepdim=False", _N, "the smallest of some numbers; of a tensor, its smallest element", _chosen(smallest=True), method=True),
    Function("max", "*values, dim=None, keepdim=False", _N, "the largest of some numbers; of a tensor, its largest element", _chosen(smallest=False), method=True),
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
    Function("sum", "x, dim=None, keepdim=False", _R, "the sum, over all elements or some dimensions", _reduce("sum", sums=True), method=True),
    Function("mean", "x, dim=None, keepdim=False", _R, "the mean", _reduce("mean", sums=True), method=True),
    Function("prod", "x, dim=None, keepdim=False", _R, "the product", _reduce("prod", sums=True), method=True),
    Function("amax", "x, dim=None, keepdim=False", _R, "the largest element", _reduce("amax"), method=True),
    Function("amin", "x, dim=None, keepdim=False", _R, "the smallest element", _reduce("amin"), method=True),
    Function("var", "x, dim=None, keepdim=False, correction=1", _R, "the variance", _reduce("var", sums=True), method=True),
    Function("std", "x, dim=None, keepdim=False, correction=1", _R, "the standard deviation", _reduce("std", sums=True), method=True),
    Function("logsumexp", "x, dim=None, keepdim=False", _R, "log(sum(exp(x)))", _reduce("logsumexp", sums=True), method=True),
    Function("all", "x, dim=None, keepdim=False", _R, "whether it holds everywhere", _reduce("all"), method=True),
    Function("any", "x, dim=None, keepdim=False", _R, "whether it holds somewhere", _reduce("any"), method=True),
    Function("argmax", "x, dim=None, keepdim=False", _R, "where the largest element is", _arg("argmax"), method=True),
    Function("argmin", "x, dim=None, keepdim=False", _R, "where the smallest element is", _arg("argmin"), method=True),
    Function("cumsum", "x, dim=-1", _R, "running sums, the element itself included", _cumulative("cumsum"), method=True),
    Function("cumprod", "x, dim=-1", _R, "running products", _cumulative("cumprod"), method=True),
    Function("sort", "x, dim=-1, descending=False", _R, "the values in order", _sort, method=True),
    Function("argsort", "x, dim=-1, descending=False", _R, "the indices that sort x; equal values keep their order", _argsort, method=True),
    Function("softmax", "x, dim=-1", _R, "exp(x) / sum(exp(x))", _softmax("softmax"), method=True),
    Function("log_softmax", "x, dim=-1", _R, "log(softmax(x))", _softmax("log_softmax"), method=True),
    Function("histc", "x, bins, min, max", _R, "how many elements fall into each of equal bins", _histc),
    Function("bincount", "x, minlength", _R, "how often each integer below minlength occurs", _bincount),
    Function("matmul", "x, y", _L, "the matrix product, also x @ y", _matmul, method=True),
    Function("layer_norm", "x, normalized_shape, weight=None, bias=None, eps=1e-5", _L, "x with mean 0 and variance 1 over its last dimensions", lambda a: _norm(a, centred=True)),
    Function("rms_norm", "x, normalized_shape, weight=None, eps=1e-5", _L, "x over its root mean square", lambda a: _norm(a, centred=False)),
    Function("scaled_dot_product_attention", "query, key, value, is_causal=False, scale=None", _L, "softmax(query @ key.T * scale) @ value", _attention),
)  # fmt: skip
