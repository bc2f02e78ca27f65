"""Compares an output with what was expected of it: exactly or within a tolerance, NaN and infinities included."""

from __future__ import annotations

import math
from typing import Any, Final

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.dtypes import Tolerance

_PIECE: Final = 1 << 25
"""Elements that are compared at a time: a quarter of a GiB for each of the few float64 tensors it takes."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison. `index` is that of the first element that differs. `error` is the largest |actual - expected| of
    finite pairs, None if there is none. Numbers are written as Python writes them.
    """

    elements: int
    differing: int
    index: tuple[int, ...] = ()
    actual: str = ""
    expected: str = ""
    error: float | None = None


def compare(torch: Any, actual: Any, expected: Any, tolerance: Tolerance) -> Comparison:
    """Compare an output. `expected` is a tensor that broadcasts to the shape of `actual`, in float64 if either is
    floating.

    NaN equals only NaN, an infinity only itself. Types without arithmetic (fp8, unsigned) are converted.
    """
    count = int(actual.numel())
    if count == 0:
        return Comparison(0, 0)
    exact = not (actual.is_floating_point() or expected.is_floating_point())
    wide = torch.int64 if exact else torch.float64
    left = actual.reshape(-1)
    right = expected.expand(actual.shape).reshape(-1)
    room = 0.0 if exact else tolerance.atol + tolerance.chain * _rms(torch, right)
    differing, first, largest = 0, -1, -1.0
    for start in range(0, count, _PIECE):
        a = _converted(torch, left[start : start + _PIECE], wide)
        e = _converted(torch, right[start : start + _PIECE], wide)
        near = None if exact else largest_within(torch, a, e, room, tolerance.rtol)
        if near is not None:
            largest = max(largest, near)
            continue
        error = (a - e).abs()
        same = a == e
        if exact:
            wrong = ~same
        else:
            same |= a.isnan() & e.isnan()
            # a share of infinity is infinity: all numbers would be within it
            wrong = ~(same | (e.isfinite() & (error <= room + tolerance.rtol * e.abs())))
        # one trip to the GPU for all three answers
        finite = error if exact else torch.where(error.isfinite(), error, -1.0)
        counts = torch.stack((wrong.sum(), wrong.to(torch.uint8).argmax())).tolist()
        largest = max(largest, float(finite.max()))
        if counts[0] and first < 0:
            first = start + int(counts[1])
        differing += int(counts[0])
    where: tuple[int, ...] = ()
    shown = ("", "")
    if first >= 0:
        where = unravelled(first, tuple(actual.shape))
        shown = (written(left[first].item()), written(right[first].item()))
    return Comparison(count, differing, where, *shown, None if largest < 0 else largest)


def largest_within(torch: Any, actual: Any, expected: Any, atol: float, rtol: float) -> float | None:
    """Return the largest difference of two tensors of float64 if all of their numbers are finite and within the tolerance. Return
    None otherwise. It passes over the memory a third as often as what tells where they differ.
    """
    error = (actual - expected).abs_()
    fits = (error <= expected.abs().mul_(rtol).add_(atol)).all()
    largest, fit = torch.stack((error.max(), fits.to(error.dtype))).tolist()
    return largest if fit and math.isfinite(largest) else None


def zeros_pass(torch: Any, name: str, expected: Any, tolerance: Tolerance) -> str:
    """Return a sentence if an output of zeros is within the tolerance of `expected`, which is not zero: then a kernel
    that computes nothing passes too. Otherwise return "".
    """
    if not expected.is_floating_point() or expected.numel() == 0:
        return ""
    wide = expected.float() if expected.itemsize == 1 else expected  # fp8 has no norm of its own
    largest = float(torch.linalg.vector_norm(wide, float("inf")))
    room = tolerance.atol + (tolerance.chain * _rms(torch, expected.reshape(-1)) if tolerance.chain else 0.0)
    if largest == 0 or not (1 - tolerance.rtol) * largest <= room:  # of NaN neither holds
        return ""
    allowed = f"{tolerance.rtol:g} relative, {tolerance.atol:g} absolute"
    return f"zeros would pass for {name}: no expected value is larger than its tolerance ({allowed})"


def _converted(torch: Any, piece: Any, wide: Any) -> Any:
    if piece.dtype == torch.bool:  # a byte that is neither 0 nor 1 is no bool, and is not equal to one
        piece = piece.view(torch.uint8)
    if piece.dtype == torch.uint64 and wide == torch.int64:
        return piece.view(torch.int64)
    return piece.to(wide)


def _rms(torch: Any, values: Any) -> float:
    """Return the root mean square of the finite values."""
    total, count = 0.0, 0
    for start in range(0, int(values.numel()), _PIECE):
        piece = values[start : start + _PIECE].to(torch.float64)
        finite = piece.isfinite()
        total += float(torch.where(finite, piece, 0.0).square().sum())
        count += int(finite.sum())
    return math.sqrt(total / count) if count else 0.0


def unravelled(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of the element that is number `flat` in C order."""
    indices: list[int] = []
    for extent in reversed(shape):
        flat, rest = divmod(flat, extent)
        indices.append(rest)
    return tuple(reversed(indices))


def written(value: object) -> str:
    """Write a number with only as many digits as distinguish it from its neighbours in float32."""
    return f"{value:.9g}" if isinstance(value, float) else str(value)
