"""Functions that take many elements to fewer, or whose elements depend on a whole dimension."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from orbit_remote.spec import scalars as spec_scalars
from orbit_remote.spec.functions.call import Arguments, Function, Group
from orbit_remote.spec.functions.operators import BOOL, INT64
from orbit_remote.spec.values import Scalar, Tensor, Value


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


# -- the smallest and the largest ---------------------------------------------------------------------


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


_R: Group = "Reductions"
_N: Group = "Numbers"
REDUCTIONS = (
    Function("min", "*values, dim=None, keepdim=False", _N, "the smallest of some numbers; of a tensor, its smallest element", _chosen(smallest=True), method=True),
    Function("max", "*values, dim=None, keepdim=False", _N, "the largest of some numbers; of a tensor, its largest element", _chosen(smallest=False), method=True),
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
)  # fmt: skip
