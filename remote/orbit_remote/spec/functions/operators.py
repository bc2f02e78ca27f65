"""Operators with a tensor on at least one side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from orbit_remote.spec import scalars as spec_scalars
from orbit_remote.spec.dtypes import DTYPES, DType
from orbit_remote.spec.syntax_tree import SpecError, SpecSpan
from orbit_remote.spec.values import Scalar, Tensor, Value, World, broadcast, result_type, shown, text_of

BOOL, INT64 = DTYPES["bool"], DTYPES["int64"]

_OPERATORS = {
    "+": "add", "-": "sub", "*": "mul", "/": "true_divide", "//": "floor_divide", "%": "remainder", "**": "pow",
    "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor", "<<": "bitwise_left_shift",
    ">>": "bitwise_right_shift", "==": "eq", "!=": "ne", "<": "lt", ">": "gt", "<=": "le", ">=": "ge",
    "and": "logical_and", "or": "logical_or",
}  # fmt: skip
_BITS = frozenset("&|^") | {"<<", ">>"}


def binary(world: World, span: SpecSpan, name: str, left: Value, right: Value) -> Tensor:
    """Apply an operator with a tensor on at least one side. Raises SpecError for shapes or types that do not fit."""
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
    cpp, function = world.language == "cuda", _OPERATORS[name]
    if name in spec_scalars.COMPARISONS:
        return elementwise(world, span, function, tensors, BOOL)
    if refused := _refusal(name, dtype, right, cpp=cpp):
        raise SpecError(span, refused)
    if name == "/" and dtype.kind != "floating":
        if cpp:
            return elementwise(world, span, "div", tensors, dtype, rounding_mode="trunc")
        dtype = world.floats
        tensors = [world.floating(span, value) if isinstance(value, Tensor) else value for value in tensors]
    return elementwise(world, span, "fmod" if name == "%" and cpp else function, tensors, dtype)


def _refusal(name: str, dtype: DType, right: Value, *, cpp: bool) -> str:
    """Return why an operator does not take tensors of this type, in a sentence. Return "" if it does."""
    kind = dtype.kind
    if name in _BITS and (kind == "floating" or (kind == "bool" and name in ("<<", ">>"))):
        return f"'{name}' takes integers; these are {dtype.name}."
    if name == "%" and cpp and kind == "floating":
        return "'%' takes integers in C++."
    if kind == "bool" and (name in ("-", "//", "%", "**") or (name == "/" and cpp)):
        return f"'{name}' does not take truth values."
    if kind == "integer" and name in ("/", "//", "%") and isinstance(right, Scalar) and right.value == 0:
        return "This divides by zero."
    if name == "**" and kind == "integer" and (not isinstance(right, Scalar) or right.value < 0):
        return "An integer tensor is raised to numbers from 0 on."
    return ""


def elementwise(
    world: World,
    span: SpecSpan,
    name: str,
    values: Sequence[Tensor | Scalar],
    dtype: DType,
    condition: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Apply torch's function of this name to tensors and numbers, brought to one shape and one type. `condition` is
    an operand before them that keeps its type. Raises SpecError for shapes or types that do not fit.
    """
    tensors = [value for value in values if isinstance(value, Tensor)]
    shape = condition.shape if condition else ()
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
        torch, own = world.torch, world.type(meeting)
        data = [
            value.data.to(own)
            if isinstance(value, Tensor)
            else torch.tensor(value.value, dtype=own, device=world.device)
            for value in values
        ]
        function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
        return function(*([condition.data] if condition else []), *data, **options)

    return world.make(span, shape, dtype, run, max((tensor.terms for tensor in tensors), default=1))


def unary(world: World, span: SpecSpan, name: str, x: Tensor) -> Tensor:
    """Apply an operator to a tensor. Raises SpecError for a type that it does not take."""
    x = world.operand(span, x)
    if name == "not":
        raise SpecError(span, "'not' takes single truth values; use '~' between tensors.")
    if name == "~" and x.dtype.kind == "floating":
        raise SpecError(span, "'~' takes integers.")
    if name == "-" and x.dtype.kind == "bool":
        raise SpecError(span, "'-' does not take truth values.")
    return (
        x if name == "+" else elementwise(world, span, {"~": "bitwise_not", "-": "neg"}[name], [x], x.dtype)
    )


def matmul(world: World, span: SpecSpan, left: Tensor, right: Tensor) -> Tensor:
    """Return the matrix product: (..., m, k) @ (..., k, n), batches broadcast. Raises SpecError."""
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
        raise SpecError(span, "A matrix product does not take truth values.")
    batch = broadcast(span, x.shape[:-2], y.shape[:-2])
    shape = (*batch, *x.shape[-2:-1], *(y.shape[-1:] if len(y.shape) > 1 else ()))
    whole = dtype.kind == "integer"

    def run() -> Any:
        # CUDA has no integer matmul in torch; float64 is exact up to 2^53
        own = world.torch.float64 if whole else world.type(dtype)
        product = world.torch.matmul(x.data.to(own), y.data.to(own))
        return product.to(world.torch.int64) if whole else product

    return world.make(span, shape, dtype, run, max(x.terms, y.terms, inner))
