"""The inputs and outputs of a contract: tensors, anywhere in lists, tuples and dictionaries.

Objects of other kinds are passed on unchanged, with the tensors inside them, as in popcorn's own evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast


def leaves(torch: Any, data: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the tensors with their names: `output`, `output[1]`, `data['x']`."""
    if isinstance(data, torch.Tensor):
        yield name, data
    elif isinstance(data, dict):
        for key, value in cast("dict[Any, Any]", data).items():
            yield from leaves(torch, value, f"{name}[{key!r}]")
    elif isinstance(data, list | tuple):
        for at, value in enumerate(cast("list[Any]", data)):
            yield from leaves(torch, value, f"{name}[{at}]")


def cloned(torch: Any, data: Any) -> Any:
    """Copy every tensor into memory of its own. A tensor that occurs twice is one tensor again."""
    made: dict[int, Any] = {}

    def clone(tensor: Any) -> Any:
        if id(tensor) not in made:
            made[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return made[id(tensor)]

    return mapped(torch, data, clone)


def moved(torch: Any, data: Any, device: str) -> Any:
    """Return the same lists, tuples and dictionaries, with their tensors on `device`."""
    return mapped(torch, data, lambda tensor: tensor.to(device))


def mapped(torch: Any, data: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(data, torch.Tensor):
        return function(data)
    if isinstance(data, dict):
        return {key: mapped(torch, value, function) for key, value in cast("dict[Any, Any]", data).items()}
    if not isinstance(data, list | tuple):
        return data
    kind = cast("Any", data.__class__)
    values = [mapped(torch, value, function) for value in cast("list[Any]", data)]
    if isinstance(data, list):
        return values
    return kind(*values) if hasattr(kind, "_fields") else tuple(values)


def refill(torch: Any, into: Any, source: Any) -> bool:
    """Copy the content of the tensors of `source` into those of `into`, in place. Return False if they do not pair
    up.
    """
    if not fits(torch, into, source):
        return False
    pairs = zip(leaves(torch, into, ""), leaves(torch, source, ""), strict=True)
    with torch.no_grad():
        for (_, mine), (_, theirs) in pairs:
            mine.copy_(theirs)
    return True


def fits(torch: Any, tensor: Any, other: Any) -> bool:
    """Say whether two sets of inputs have the same tensors by name, shape, type and device, and are alike otherwise."""
    first, second = _described(torch, tensor), _described(torch, other)
    return first == second


def _described(torch: Any, data: Any) -> object:
    if isinstance(data, torch.Tensor):
        return ("tensor", tuple(data.shape), data.dtype, data.device)
    if isinstance(data, dict):
        return {key: _described(torch, value) for key, value in cast("dict[Any, Any]", data).items()}
    if isinstance(data, list | tuple):
        return [_described(torch, value) for value in cast("list[Any]", data)]
    return data if isinstance(data, int | float | str | None) else data.__class__


def changed(torch: Any, before: Any, after: Any, name: str) -> list[str]:
    """Return the names of the tensors whose bytes differ: the inputs to which a call has written."""
    pairs = zip(leaves(torch, before, name), leaves(torch, after, name), strict=True)
    return [where for (where, old), (_, new) in pairs if not same_bytes(torch, old, new)]


def same_bytes(torch: Any, tensor: Any, other: Any) -> bool:
    """Say whether two tensors have the same bytes. NaN equals itself here."""
    if tensor.shape != other.shape or tensor.dtype != other.dtype:
        return False
    if tensor.is_sparse or other.is_sparse:
        return bool(torch.equal(tensor.to_dense(), other.to_dense()))
    first, second = (each.detach().reshape(-1).view(torch.uint8) for each in (tensor, other))
    return bool(torch.equal(first, second))


def size(torch: Any, data: Any) -> int:
    """Return the bytes of distinct tensors."""
    sizes = {id(leaf): leaf.numel() * leaf.element_size() for _, leaf in leaves(torch, data, "")}
    return sum(sizes.values())


def memory(torch: Any, data: Any) -> set[int]:
    """Return where the storages of the tensors begin, without tensors that have no elements."""
    return {
        int(leaf.untyped_storage().data_ptr())
        for _, leaf in leaves(torch, data, "")
        if leaf.numel() and leaf.layout == torch.strided
    }
