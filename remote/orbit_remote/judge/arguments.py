"""Arguments and results of a call as data: tensors by where they lie, everything else by its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.judge.memory import ALIGNED


class UnfitValueError(ValueError):
    """A value cannot be passed to another process, or a description of one is not believed."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor whose elements fill `size` bytes without gaps, in the order of its strides."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    size: int

    @property
    def room(self) -> int:
        return max(ALIGNED, -(-self.size // ALIGNED) * ALIGNED)


def leaf_of(tensor: Any) -> Leaf:
    """Return the shape and the strides (in elements) of a tensor, and its size in bytes."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Leaf(dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.numel() * tensor.element_size())


def dense(torch: Any, tensor: Any) -> Any:
    """Return the tensor itself if its bytes have no gaps and no order of their own, else a copy. Raises
    UnfitValueError.
    """
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise UnfitValueError(f"a {type(tensor).__name__} is no plain torch.Tensor")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise UnfitValueError("a tensor that is sparse or quantized")
    tensor = tensor.detach()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor if tensor.numel() and extent == tensor.numel() else tensor.contiguous()


def pack(torch: Any, value: Any, take: Callable[[Any], int]) -> Any:
    """Return JSON for a value. `take` keeps a tensor and returns its number. Raises UnfitValueError."""
    if isinstance(value, torch.Tensor):
        return {"tensor": take(value)}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [pack(torch, each, take) for each in cast("Sequence[Any]", value)]}
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value).items()
        return {"dict": [[str(key), pack(torch, each, take)] for key, each in pairs]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": repr(value) if isinstance(value, float) and not math.isfinite(value) else value}
    raise UnfitValueError(f"a {type(value).__name__} is passed to no other process")


def unpack(torch: Any, packed: Any, tensors: Sequence[Any]) -> Any:
    """Raises UnfitValueError for what `pack` did not write."""
    content: dict[str, Any] = cast("dict[str, Any]", packed) if isinstance(packed, dict) else {}
    for kind, value in content.items():
        match kind, value:
            case "tensor", int(at) if 0 <= at < len(tensors):
                return tensors[at]
            case "list" | "tuple", list():
                items = [unpack(torch, each, tensors) for each in cast("list[Any]", value)]
                return items if kind == "list" else tuple(items)
            case "dict", list():
                return {str(key): unpack(torch, each, tensors) for key, each in cast("list[Any]", value)}
            case "dtype", str(name):
                return getattr(torch, name)
            case "value", "nan" | "inf" | "-inf":
                return float(value)
            case "value", _:
                return value
            case _:
                break
    raise UnfitValueError("arguments that are not understood")


def claimed(leaf: Any) -> Leaf:
    """Return what a side says of a tensor, after checking that its sizes agree with each other. Raises
    UnfitValueError.
    """
    try:
        read = Leaf(str(leaf["dtype"]), tuple(leaf["shape"]), tuple(leaf["strides"]), leaf["size"])
        sizes = all(type(n) is int and 0 <= n < 1 << 40 for n in (*read.shape, *read.strides, read.size))
        if (
            not sizes
            or len(read.shape) != len(read.strides)
            or len(read.shape) > 16
            or not read.dtype.isidentifier()
        ):
            raise UnfitValueError("a tensor that is not understood")
    except (KeyError, TypeError) as error:
        raise UnfitValueError("a tensor that is not understood") from error
    return read


def tensor_in(torch: Any, leaf: Leaf, data: Any) -> Any:
    """Return a tensor over the bytes of `data`, from their beginning. Raises UnfitValueError."""
    dtype: Any = getattr(torch, leaf.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise UnfitValueError(f"{leaf.dtype} is no type of torch")
    elements = math.prod(leaf.shape)
    extent = (
        1 + sum((size - 1) * stride for size, stride in zip(leaf.shape, leaf.strides, strict=True))
        if elements
        else 0
    )
    if elements * dtype.itemsize != leaf.size or extent != elements or data.numel() < leaf.size:
        raise UnfitValueError("a tensor whose sizes do not agree")
    if not elements:
        return torch.empty(leaf.shape, dtype=dtype, device=data.device)
    return torch.as_strided(data[: leaf.size].view(dtype), leaf.shape, leaf.strides)


def written(leaves: Sequence[Leaf]) -> list[dict[str, Any]]:
    """Return JSON for tensors, as `claimed` reads it. This is in every call, and `asdict` takes long."""
    return [
        {"dtype": leaf.dtype, "shape": leaf.shape, "strides": leaf.strides, "size": leaf.size}
        for leaf in leaves
    ]


def starts(start: int, leaves: Sequence[Leaf]) -> list[int]:
    """Return where each tensor begins, in bytes, the first at `start`."""
    places: list[int] = []
    for leaf in leaves:
        places.append(start)
        start += leaf.room
    return places


def distance(tensor: Any, exact: Any) -> float:
    """Return the root mean square of the difference, relative to the exact values'."""
    wide = exact.double()
    scale = float(wide.square().mean().sqrt())
    return float((tensor.double() - wide).square().mean().sqrt()) / scale if scale else 0.0
