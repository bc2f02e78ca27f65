"""Functions that reduce many elements to fewer, or whose elements depend on a whole dimension."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from orbit_remote.spec import scalars as spec_scalars
from orbit_remote.spec.functions.call import Arguments, Group, SpecFunction
from orbit_remote.spec.functions.operators import INT64
from orbit_remote.spec.values import Scalar, Tensor, Value


def _left(shape: tuple[int, ...], dims: tuple[int, ...], *, keep: bool) -> tuple[int, ...]:
    return tuple(1 if at in dims else extent for at, extent in enumerate(shape) if keep or at not in dims)


def _reduce(name: str) -> Callable[[Arguments], Value]:
    def rule(a: Arguments) -> Value:
        spread = name in ("var", "std")
        x = a.floating("x") if spread or name == "mean" else a.operand("x")
        dims, keep = a.dims("dim", len(x.shape)), a.flag("keepdim")
        count = math.prod(x.shape[at] for at in dims)
        if count == 0 and name != "sum":
            a.fail("x", f"{a.function.name} of nothing has no value.")
        dtype = INT64 if name == "sum" and x.dtype.kind != "floating" else x.dtype
        options = {"correction": a.integer("correction", 1)} if spread else {}
        # the error of a sum grows with the number of elements
        terms = x.terms if name in ("amax", "amin") else max(x.terms, count)
        return a.world.make(
            a.span,
            _left(x.shape, dims, keep=keep),
            dtype,
            lambda: getattr(x.data, name)(dims, keepdim=keep, **options),
            terms,
        )

    return rule


def _along(a: Arguments) -> Value:
    """Compute cumsum or softmax."""
    x = a.floating("x") if a.function.name == "softmax" else a.operand("x")
    dim = a.dim("dim", len(x.shape), -1)
    dtype = x.dtype if x.dtype.kind == "floating" else INT64
    terms = max(x.terms, x.shape[dim] if x.shape else 1)
    return a.world.make(a.span, x.shape, dtype, lambda: getattr(x.data, a.function.name)(dim), terms)


def _sort(a: Arguments) -> Value:
    x = a.operand("x")
    dim, down = a.dim("dim", len(x.shape), -1), a.flag("descending")
    return a.world.make(a.span, x.shape, x.dtype, lambda: x.data.sort(dim, down).values, x.terms)


def _arg(a: Arguments) -> Value:
    """Compute argmax or argmin."""
    x, name = a.operand("x"), a.function.name
    if not x.numel:
        a.fail("x", f"{name} of nothing has no value.")
    if x.dtype.kind == "bool":
        a.fail("x", f"{name} does not take truth values.")
    dim = a.dim("dim", len(x.shape)) if a.has("dim") else None
    keep = a.flag("keepdim")
    shape = _left(x.shape, tuple(range(len(x.shape))) if dim is None else (dim,), keep=keep)
    return a.world.make(a.span, shape, INT64, lambda: getattr(x.data, name)(dim, keepdim=keep))


def _bincount(a: Arguments) -> Value:
    x, bins = a.operand("x"), a.integer("minlength")
    if x.dtype.kind != "integer":
        a.wrong("x", "a tensor of integers")
    if bins < 1:
        a.fail("minlength", "'minlength' is at least 1.")

    def run() -> Any:
        counts = a.world.torch.bincount(x.data.reshape(-1).to(a.world.torch.int64), minlength=bins)
        if len(counts) > bins:
            raise ValueError(f"bincount found {len(counts) - 1}, and the bins end at {bins - 1}")
        return counts

    return a.world.make(a.span, (bins,), INT64, run)


# -- the smallest and the largest ---------------------------------------------------------------------


def _extreme(a: Arguments) -> Value:
    """Compute min or max: of numbers, or of a tensor as reductions."""
    values = cast("tuple[Value, ...]", a.values.get("values", ()))
    name, smallest = a.function.name, a.function.name == "min"
    pairwise = "minimum" if smallest else "maximum"
    if isinstance(next(iter(values), None), Tensor):
        if len(values) > 1:
            a.fail("values", f"Write {name}(x, dim=…) to reduce, {pairwise}(x, y) to go element by element.")
        a.values["x"] = next(iter(values))
        return _reduce("amin" if smallest else "amax")(a)
    if any(isinstance(value, Tensor) for value in values):
        a.fail("values", f"Element by element it is {pairwise}.")
    if not values or not all(isinstance(value, Scalar) for value in values):
        a.fail("values", f"{name} takes numbers or a tensor.")
    numbers = cast("tuple[Scalar, ...]", values)
    best = numbers[0]
    for number in numbers[1:]:
        less = spec_scalars.binary(a.world, a.span, "<", number, best).value
        kind = best.type if number.type == best.type else spec_scalars.common(a.world, best, number)
        taken = number if bool(less) == smallest and number.value != best.value else best
        value = float(taken.value) if kind.startswith("float") else taken.value
        best = taken if taken.type == kind else Scalar(value, kind)
    return best


_R: Group = "Reductions"
_N: Group = "Numbers"
REDUCTIONS = (
    SpecFunction("min", "*values, dim=None, keepdim=False", _N, "the smallest of some numbers; of a tensor, its smallest element", _extreme, method=True),
    SpecFunction("max", "*values, dim=None, keepdim=False", _N, "the largest of some numbers; of a tensor, its largest element", _extreme, method=True),
    SpecFunction("sum", "x, dim=None, keepdim=False", _R, "the sum, over all elements or some dimensions", _reduce("sum"), method=True),
    SpecFunction("mean", "x, dim=None, keepdim=False", _R, "the mean", _reduce("mean"), method=True),
    SpecFunction("amax", "x, dim=None, keepdim=False", _R, "the largest element", _reduce("amax"), method=True),
    SpecFunction("amin", "x, dim=None, keepdim=False", _R, "the smallest element", _reduce("amin"), method=True),
    SpecFunction("var", "x, dim=None, keepdim=False, correction=1", _R, "the variance", _reduce("var"), method=True),
    SpecFunction("std", "x, dim=None, keepdim=False, correction=1", _R, "the standard deviation", _reduce("std"), method=True),
    SpecFunction("argmax", "x, dim=None, keepdim=False", _R, "where the largest element is", _arg, method=True),
    SpecFunction("argmin", "x, dim=None, keepdim=False", _R, "where the smallest element is", _arg, method=True),
    SpecFunction("cumsum", "x, dim=-1", _R, "running sums, the element itself included", _along, method=True),
    SpecFunction("sort", "x, dim=-1, descending=False", _R, "the values in order", _sort, method=True),
    SpecFunction("softmax", "x, dim=-1", _R, "exp(x) / sum(exp(x))", _along, method=True),
    SpecFunction("bincount", "x, minlength", _R, "how often each integer below minlength occurs", _bincount),
)  # fmt: skip
