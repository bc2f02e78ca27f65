"""Finds from what the text of a launch spec makes the values of a captured tensor: a pattern, random numbers of the
same scale, or stored values.
"""

from __future__ import annotations

import math
from typing import Any, Final, Literal, cast

from orbit_remote.child.capture import written_outputs
from orbit_remote.child.capture.layouts import Layout, Said
from orbit_remote.common.lazy_dataclass import dataclass

_INLINE: Final = 16
"""Integers that stand in the spec itself."""
_INLINE_REALS: Final = 4
_PIECE: Final = 1 << 25

How = Literal["empty", "pattern", "random", "inline", "kept"]


@dataclass(frozen=True, slots=True)
class TensorRecipe:
    """How a spec makes a tensor. `function` makes it dense: `{size}` stands for its extents, `{shape}` for a tuple of
    them, and `{}` for its extents and its type.
    """

    how: How
    function: str
    dtype: str
    layout: Layout

    def text(self, said: Said) -> str:
        extents = [said(extent) for extent in self.layout.extents]
        size = ", ".join(extents)
        typed = "" if self.dtype == "float32" else f", dtype={self.dtype}"
        value = self.function.replace("{shape}", f"({size}{',' * (len(extents) == 1)})")
        value = value.replace("{size}", size or "()").replace("{}", (size or "()") + typed)
        if not self.layout.is_dense and (_is_sum(value) or not value.endswith(")")):
            value = f"({value})"
        return self.layout.text(value, said)


def _is_sum(value: str) -> bool:
    """Say whether a text has more than one call. Then a view behind it would only apply to its last part."""
    return " * " in value or " + " in value


def empty(dtype: str, layout: Layout) -> TensorRecipe:
    return TensorRecipe("empty", "empty({})", dtype, layout)


def zeros(dtype: str, layout: Layout) -> TensorRecipe:
    return TensorRecipe("pattern", "zeros({})", dtype, layout)


def kept(file: str, key: str, dtype: str, layout: Layout) -> TensorRecipe:
    return TensorRecipe("kept", f'load("{file}", "{key}", {{}})', dtype, layout)


def pattern(torch: Any, tensor: Any, dtype: str, layout: Layout) -> TensorRecipe | None:
    """Return the values as one function, or as a short list. Return None if they are neither."""
    flat = tensor.reshape(-1)
    count = int(flat.numel())
    if count == 0:
        return zeros(dtype, layout)
    comparable = flat.view(torch.uint8) if dtype.startswith("float8") else flat
    if dtype.startswith("uint"):  # torch computes with few of them
        comparable = written_outputs.bits(torch, flat)
    first: float = flat[0].item()
    if bool((comparable == comparable[0]).all()) and not (
        isinstance(first, float) and not math.isfinite(first)
    ):
        if dtype.startswith("float8") and first:
            return None
        name = {0.0: "zeros({})", 1.0: "ones({})"}.get(first)
        typed = "" if dtype == "float32" else f", dtype={dtype}"
        return TensorRecipe(
            "pattern", name or f"full({{shape}}, {_number(first, dtype)}{typed})", dtype, layout
        )
    whole = not tensor.is_floating_point() and dtype != "bool"
    if whole and len(layout.shape) == 1 and layout.is_dense and count > 2:
        step = int(flat[1]) - int(flat[0])
        even = torch.arange(count, device=flat.device, dtype=torch.int64) * step + int(flat[0])
        if step > 0 and bool((flat.to(torch.int64) == even).all()):
            typed = "" if dtype == "int64" else f", dtype={dtype}"
            if (first, step) == (0, 1):
                return TensorRecipe("pattern", f"arange({{size}}{typed})", dtype, layout)
            return TensorRecipe(
                "pattern", f"arange({first}, {first + count * step}, {step}{typed})", dtype, layout
            )
    if layout.is_dense and (whole or dtype == "bool") and count <= _INLINE:
        typed = "" if dtype in ("int64", "bool") else f", dtype={dtype}"
        return TensorRecipe("inline", f"tensor({_listed(tensor.tolist(), dtype)}{typed})", dtype, layout)
    finite = tensor.is_floating_point() and bool(torch.isfinite(flat.float()).all())
    if layout.is_dense and finite and count <= _INLINE_REALS and not dtype.startswith("float8"):
        return TensorRecipe(
            "inline", f"tensor({_listed(tensor.double().tolist(), dtype)}, dtype={dtype})", dtype, layout
        )
    return None


def random(torch: Any, tensor: Any, dtype: str, layout: Layout) -> TensorRecipe:
    """Return random numbers of about the same scale and sign. They need not be more alike: the kernel is launched on
    them before they are used.
    """
    values = tensor.reshape(-1)
    pieces = [piece.to(torch.float64) for piece in values.split(_PIECE)]
    finite = [piece[piece.isfinite()] for piece in pieces]
    count = sum(int(piece.numel()) for piece in finite)
    if not count:
        return TensorRecipe("random", _narrowed("randn({})", dtype), dtype, layout)
    mean = sum(float(piece.sum()) for piece in finite) / count
    spread = math.sqrt(max(0.0, sum(float((piece - mean).square().sum()) for piece in finite) / count))
    low = min(float(piece.min()) for piece in finite if piece.numel())
    high = max(float(piece.max()) for piece in finite if piece.numel())
    if low >= 0 and count > 1:
        if low < 0.1 and 0.75 < high <= 1:
            return TensorRecipe("random", _narrowed("rand({})", dtype), dtype, layout)
        width, least = _short(high - low), _short(low)
        text = f"{width} * rand({{}})" + (f" + {least}" if least else "")
        return TensorRecipe("random", _narrowed(text, dtype), dtype, layout)
    text = "randn({})" if 0.5 <= spread <= 2 or not spread else f"{_short(spread)} * randn({{}})"
    if abs(mean) > spread:
        text += f" + {_short(mean)}" if mean > 0 else f" - {_short(-mean)}"
    return TensorRecipe("random", _narrowed(text, dtype), dtype, layout)


def _narrowed(text: str, dtype: str) -> str:
    """Convert a text for fp8, which has no arithmetic, if it has more than one function."""
    if not dtype.startswith("float8") or not _is_sum(text):
        return text
    return f"({text.replace('{}', '{size}')}).to({dtype})"


def _short(number: float) -> float | int:
    """Return a number of two digits."""
    short = float(f"{number:.2g}")
    return int(short) if short.is_integer() and abs(short) < 1e6 else short


def _number(value: object, dtype: str) -> str:
    """Write a number with enough digits to distinguish it from its neighbours in float32, or in float64."""
    return f"{value:.9g}" if isinstance(value, float) and dtype != "float64" else str(value)


def _listed(values: Any, dtype: str) -> str:
    if isinstance(values, list):
        return f"[{', '.join(_listed(each, dtype) for each in cast('list[Any]', values))}]"
    return _number(values, dtype)
