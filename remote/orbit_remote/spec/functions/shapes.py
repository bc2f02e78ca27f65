"""Functions of shapes and types: views of the same memory, joined tensors, conversions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, Final, cast

from orbit_remote.spec.dtypes import DTYPES
from orbit_remote.spec.functions.call import Arguments, Group, SpecFunction
from orbit_remote.spec.scalars import converted
from orbit_remote.spec.syntax_tree import SpecError, SpecSpan
from orbit_remote.spec.values import Scalar, Tensor, Value, World, broadcast, contiguous, result_type, text_of


def _transpose(a: Arguments) -> Value:
    x = a.tensor("x")
    first, second = a.dim("dim0", len(x.shape)), a.dim("dim1", len(x.shape))
    order = list(range(len(x.shape)))
    order[first], order[second] = order[second], order[first]
    return permuted(a.world, a.span, x, order)


def permuted(world: World, span: SpecSpan, x: Tensor, order: list[int]) -> Tensor:
    shape = [x.shape[at] for at in order]
    return world.view(span, x, shape, [x.strides[at] for at in order], lambda: x.data.permute(order))


def _permute(a: Arguments) -> Value:
    x = a.tensor("x")
    if len(a.integers("dims")) != len(x.shape):
        a.fail("dims", f"permute names each of the {len(x.shape)} dimensions once.")
    return permuted(a.world, a.span, x, list(a.dims("dims", len(x.shape))))


def _reshape(a: Arguments) -> Value:
    x, wanted = a.tensor("x"), a.integers("size")
    known = math.prod(extent for extent in wanted if extent != -1)
    if wanted.count(-1) > 1 or any(extent < -1 for extent in wanted):
        a.fail("size", "One extent may be -1, which is then computed.")
    if -1 in wanted and known and x.numel % known == 0:
        wanted = tuple(x.numel // known if extent == -1 else extent for extent in wanted)
    if -1 in wanted or math.prod(wanted) != x.numel:
        a.fail("size", f"{x.numel} elements do not have the shape {text_of(wanted)}.")
    return _dense(a, x, wanted)


def _dense(a: Arguments, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    if x.strides == contiguous(x.shape):
        return a.world.view(a.span, x, shape, contiguous(shape), lambda: x.data.reshape(shape))
    return a.world.make(a.span, shape, x.dtype, lambda: x.data.reshape(shape), x.terms, unset=x.unset)


def _flatten(a: Arguments) -> Value:
    x = a.tensor("x")
    rank = len(x.shape)
    first, last = a.dim("start_dim", rank, 0), a.dim("end_dim", rank, -1)
    if first > last:
        a.fail("end_dim", "flatten goes from a dimension to a later one.")
    shape = (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :])
    return _dense(a, x, shape)


def _unsqueeze(a: Arguments) -> Value:
    x = a.tensor("x")
    dim = a.dim("dim", len(x.shape) + 1)
    step = x.shape[dim] * x.strides[dim] if dim < len(x.shape) else 1
    shape = (*x.shape[:dim], 1, *x.shape[dim:])
    return a.world.view(
        a.span, x, shape, (*x.strides[:dim], step, *x.strides[dim:]), lambda: x.data.unsqueeze(dim)
    )


def _squeeze(a: Arguments) -> Value:
    x = a.tensor("x")
    dims = (a.dim("dim", len(x.shape)),) if a.has("dim") else tuple(range(len(x.shape)))
    kept = [at for at, extent in enumerate(x.shape) if extent != 1 or at not in dims]
    shape = [x.shape[at] for at in kept]
    return a.world.view(a.span, x, shape, [x.strides[at] for at in kept], lambda: x.data.reshape(shape))


def _expand(a: Arguments) -> Value:
    x, size = a.tensor("x"), a.integers("size")
    if len(size) < len(x.shape):
        a.fail("size", f"expand names at least the {len(x.shape)} dimensions that there are.")
    old = (1,) * (len(size) - len(x.shape)) + x.shape
    steps = (0,) * (len(size) - len(x.shape)) + x.strides
    shape = tuple(have if want == -1 else want for have, want in zip(old, size, strict=True))
    if any(have not in {want, 1} for have, want in zip(old, shape, strict=True)):
        a.fail("size", f"The shape {text_of(x.shape)} does not expand to {text_of(size)}.")
    strides = [
        0 if have == 1 and want != 1 else step for have, want, step in zip(old, shape, steps, strict=True)
    ]
    return a.world.view(a.span, x, shape, strides, lambda: x.data.expand(shape))


def _joined(a: Arguments) -> Value:
    """Compute cat, or stack, which is cat in a new dimension."""
    value = a.values.get("tensors")
    if not isinstance(value, tuple) or not value or not all(isinstance(item, Tensor) for item in value):
        a.wrong("tensors", "a list of tensors")
    tensors = [a.world.operand(a.where("tensors"), item) for item in cast("tuple[Tensor, ...]", value)]
    shape = tensors[0].shape
    stacked = a.function.name == "stack"
    if not shape and not stacked:
        a.fail("tensors", "cat takes tensors with dimensions.")
    dim = a.dim("dim", len(shape) + stacked, 0)
    for tensor in tensors:
        pairs = itertools.zip_longest(tensor.shape, shape)
        if any(
            have != want
            for at, (have, want) in enumerate(pairs)
            if stacked or at != dim or None in (have, want)
        ):
            a.fail(
                "tensors",
                f"The shapes {text_of(shape)} and {text_of(tensor.shape)} do not join in dimension {dim}.",
            )
    extent = len(tensors) if stacked else sum(tensor.shape[dim] for tensor in tensors)
    world, dtype = a.world, result_type(a.world, tensors)

    def run() -> Any:
        data = [tensor.data.to(world.type(dtype)) for tensor in tensors]
        return getattr(world.torch, a.function.name)(data, dim)

    whole = (*shape[:dim], extent, *shape[dim + (not stacked) :])
    return world.make(a.span, whole, dtype, run, max(tensor.terms for tensor in tensors))


def _roll(a: Arguments) -> Value:
    x, shift = a.tensor("x"), a.integer("shifts")
    dim = a.dim("dim", len(x.shape), 0)
    return a.world.make(a.span, x.shape, x.dtype, lambda: x.data.roll(shift, dim), x.terms)


def _copy(a: Arguments) -> Value:
    x = a.tensor("x")

    def run() -> Any:
        return x.data.clone(memory_format=a.world.torch.contiguous_format)

    return a.world.make(a.span, x.shape, x.dtype, run, x.terms, unset=x.unset)


def _to(a: Arguments) -> Value:
    dtype = a.dtype()
    return a.world.cast(a.span, a.tensor("x"), dtype) if dtype else a.tensor("x")


def cast_to(name: str) -> Callable[[Arguments], Value]:
    def rule(a: Arguments) -> Value:
        x = a.values.get("x")
        if isinstance(x, Scalar):
            return converted(a.world, a.span, x, DTYPES[name])
        return a.world.cast(a.span, a.tensor("x"), DTYPES[name])

    return rule


def _size(a: Arguments) -> Value:
    """Return size or stride."""
    x = a.tensor("x")
    numbers = x.strides if a.function.name == "stride" else x.shape
    if not a.has("dim"):
        return tuple(_count(a.world, number) for number in numbers)
    return _count(a.world, numbers[a.dim("dim", len(x.shape))])


def _count(world: World, value: int) -> Scalar:
    return Scalar(value, "int" if world.language == "triton" else "int64")


ATTRIBUTES: Final = {
    "shape": "the extents",
    "dtype": "the element type",
    "ndim": "how many dimensions there are",
    "itemsize": "bytes of an element",
    "T": "the transpose of a matrix",
    "mT": "the last two dimensions exchanged",
}


def attribute(world: World, span: SpecSpan, x: Tensor, name: str) -> Value:
    """Return `.shape`, `.dtype`, `.T`, `.mT`, `.ndim` or `.itemsize`. Raises SpecError for any other attribute."""
    match name:
        case "shape":
            return tuple(_count(world, extent) for extent in x.shape)
        case "dtype":
            return x.dtype
        case "ndim":
            return _count(world, len(x.shape))
        case "itemsize":
            return _count(world, x.dtype.size)
        case "T" if len(x.shape) == 2:
            return permuted(world, span, x, [1, 0])
        case "mT" if len(x.shape) >= 2:
            rank = len(x.shape)
            return permuted(world, span, x, [*range(rank - 2), rank - 1, rank - 2])
        case "T" | "mT":
            raise SpecError(span, f"'.{name}' takes {'2' if name == 'T' else 'at least 2'} dimensions.")
        case _:
            raise SpecError(span, f"A tensor has no '.{name[:40]}' in launch specs.")


def indexed(world: World, span: SpecSpan, x: Tensor, items: list[Any]) -> Tensor:
    """Index a tensor. `items` are integers, `slice`s of integers or None, None for a new dimension, or one integer
    tensor. Raises SpecError.
    """
    if len([item for item in items if item is not None]) > len(x.shape):
        raise SpecError(span, f"A tensor of the shape {text_of(x.shape)} does not take {len(items)} indices.")
    if len(items) == 1 and isinstance(items[0], Tensor):
        index = world.operand(span, items[0])
        if index.dtype.kind != "integer":
            raise SpecError(span, "A tensor is indexed with integers.")
        shape = (*index.shape, *x.shape[1:])
        return world.make(span, shape, x.dtype, lambda: x.data[index.data.long()], x.terms)
    extents: list[int] = []
    strides: list[int] = []
    at = 0
    for item in items:
        if item is None:
            extents.append(1)
            strides.append(x.shape[at] * x.strides[at] if at < len(x.shape) else 1)
            continue
        extent, step = x.shape[at], x.strides[at]
        at += 1
        if isinstance(item, slice):
            start, stop, stride = item.indices(extent)
            if stride < 1:
                raise SpecError(span, "A slice goes forward, in steps from 1 on.")
            extents.append(max(0, -(-(stop - start) // stride)))
            strides.append(step * stride)
        elif isinstance(item, int) and -extent <= item < extent:
            continue
        else:
            raise SpecError(span, f"The index {item} is outside of a dimension of {extent}.")
    extents += x.shape[at:]
    strides += x.strides[at:]
    return world.view(span, x, extents, strides, lambda: x.data[tuple(items)])


def expected_shape(span: SpecSpan, actual: Tensor, expected: Tensor) -> None:
    """Check that shapes are equal, or that one number is expected for all elements. Anything else is probably a
    mistake. Raises SpecError.
    """
    if expected.shape and expected.shape != actual.shape:
        broadcast(span, actual.shape, expected.shape)
        raise SpecError(
            span,
            f"The output has the shape {text_of(actual.shape)}, what is expected {text_of(expected.shape)}; reshape one.",
        )


_S: Group = "Shapes"
_T: Group = "Types"
_CASTS = {
    "float": "float32", "half": "float16", "bfloat16": "bfloat16", "double": "float64", "int": "int32", "long": "int64",
    "bool": "bool",
}  # fmt: skip
SHAPES = (
    SpecFunction("transpose", "x, dim0, dim1", _S, "two dimensions exchanged", _transpose, method=True),
    SpecFunction("permute", "x, *dims", _S, "the dimensions in another order", _permute, method=True),
    SpecFunction("reshape", "x, *size", _S, "the same elements in another shape; one extent may be -1", _reshape, method=True),
    SpecFunction("view", "x, *size", _S, "reshape", _reshape, method=True),
    SpecFunction("flatten", "x, start_dim=0, end_dim=-1", _S, "dimensions joined into one", _flatten, method=True),
    SpecFunction("unsqueeze", "x, dim", _S, "a new dimension of 1", _unsqueeze, method=True),
    SpecFunction("squeeze", "x, dim=None", _S, "dimensions of 1 removed", _squeeze, method=True),
    SpecFunction("expand", "x, *size", _S, "dimensions of 1 repeated, without a copy", _expand, method=True),
    SpecFunction("cat", "tensors, dim=0", _S, "tensors one after another", _joined),
    SpecFunction("stack", "tensors, dim=0", _S, "tensors side by side in a new dimension", _joined),
    SpecFunction("roll", "x, shifts, dim=0", _S, "elements shifted, coming back in at the other end", _roll, method=True),
    SpecFunction("contiguous", "x", _S, "a copy that is dense, in row-major order", _copy, method=True),
    SpecFunction("clone", "x", _S, "a copy", _copy, method=True),
    SpecFunction("size", "x, dim=None", _S, "the shape, or one extent of it", _size, method=True),
    SpecFunction("stride", "x, dim=None", _S, "the strides in elements, or one of them", _size, method=True),
    SpecFunction("numel", "x", _S, "how many elements there are", lambda a: _count(a.world, a.tensor("x").numel), method=True),
    SpecFunction("element_size", "x", _T, "bytes of an element", lambda a: _count(a.world, a.tensor("x").dtype.size), method=True),
    SpecFunction("to", "x, dtype", _T, "converted to a type", _to, method=True),
    *(SpecFunction(name, "x", _T, f"converted to {dtype}", cast_to(dtype), method=True) for name, dtype in _CASTS.items()),
)  # fmt: skip
