"""Stores outputs as they were captured, and compares other outputs with them.

Up to a MiB all elements are stored. Of more, it stores a fixed sample, and for each of some thousand blocks of
neighbours the sum, the sum of the magnitudes, and how many elements are no finite numbers. A change of any size in
any element shows in one of them.
"""

from __future__ import annotations

from typing import Any, Final

from orbit_remote.child.spec import output_compare
from orbit_remote.child.spec.output_compare import Comparison
from orbit_remote.spec.dtypes import Tolerance
from orbit_remote.spec.functions.makers import of_stored
from orbit_remote.spec.stored_tensors import StoredFile, StoredTensor

WHOLE: Final = 1 << 20
"""Bytes of an output that is stored whole."""
_SAMPLED: Final = 1 << 15
_BLOCKS: Final = 1 << 12
_PIECE: Final = 1 << 25
"""Elements that are added up at a time: each takes some float64 numbers."""
_GOLDEN: Final = 40503
"""The golden ratio of 2^16 (Knuth, The Art of Computer Programming 3, 6.4): multiples of it are spread evenly."""
SUMS: Final = ".sums"
"""What follows the key of an output whose elements are a sample; its sums have this key."""


def parts(torch: Any, key: str, output: Any) -> dict[str, StoredTensor]:
    """Return what is stored of an output, by key."""
    flat = output.reshape(-1)
    if flat.numel() * flat.element_size() <= WHOLE:
        return {key: stored(torch, output)}
    sample = flat[_places(torch, flat)]
    return {key: stored(torch, sample), f"{key}{SUMS}": stored(torch, _sums(torch, flat))}


def stored(torch: Any, tensor: Any) -> StoredTensor:
    """Return the elements of a tensor of torch, on the CPU."""
    dense = tensor.detach().contiguous().cpu()
    data = dense.reshape(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    return StoredTensor(str(dense.dtype).removeprefix("torch."), tuple(dense.shape), data)


def compare(torch: Any, actual: Any, file: StoredFile, key: str, tolerance: Tolerance) -> Comparison:
    """Compare an output with what is stored of it. Raises ValueError, whose text follows the file's name, and
    OSError.
    """
    expected = file.tensor(key)
    kind = str(actual.dtype).removeprefix("torch.")
    sampled = f"{key}{SUMS}" in file.entries
    shape = (_SAMPLED,) if sampled else tuple(actual.shape)
    if (expected.dtype, expected.shape) != (kind, shape):
        raise ValueError(f"has {key} for an output of another size or type: capture the launch again")
    flat = actual.reshape(-1)
    places = _places(torch, flat) if sampled else None
    found = flat if places is None else flat[places]
    wanted = of_stored(torch, expected, str(actual.device)).reshape(-1)
    exact = wanted if not wanted.is_floating_point() else wanted.to(torch.float64)
    comparison = output_compare.compare(torch, found, exact, tolerance)
    where = comparison.index
    if where:
        first = where[0] if places is None else int(places[where[0]])
        where = output_compare.unravelled(first, tuple(actual.shape))
    if places is not None and not comparison.differing:
        return _of_sums(torch, actual, file.tensor(f"{key}{SUMS}"), tolerance)
    return Comparison(comparison.elements, comparison.differing, where, comparison.actual, comparison.expected, comparison.error)  # fmt: skip


def _places(torch: Any, flat: Any) -> Any:
    """Return the indices of the sample: one in each of many stretches of the output, at a different place in each."""
    count = int(flat.numel())
    at = torch.arange(_SAMPLED, device=flat.device, dtype=torch.int64)
    return (at * count + ((at * _GOLDEN) & 0xFFFF) * count // 0x10000) // _SAMPLED


def _sums(torch: Any, flat: Any) -> Any:
    """Return each block's sum, the sum of its magnitudes and the number of its elements that are not finite. For
    integers return only the sum modulo 2^64.
    """
    size = -(-int(flat.numel()) // _BLOCKS)
    whole = int(flat.numel()) // size * size
    at_a_time = max(1, _PIECE // size)
    blocks = [*flat[:whole].view(-1, size).split(at_a_time)]
    blocks += [flat[whole:].view(1, -1)] if whole < flat.numel() else []
    return torch.cat([_rows(torch, each) for each in blocks])


def _rows(torch: Any, blocks: Any) -> Any:
    """The sums of blocks of one length, a row each."""
    if not blocks.is_floating_point():
        wide = blocks.view(torch.int64) if blocks.element_size() == 8 else blocks.to(torch.int64)
        return wide.sum(dim=1, keepdim=True)
    wide = blocks.to(torch.float64)
    finite = torch.where(wide.isfinite(), wide, 0.0)
    odd = (~wide.isfinite()).sum(dim=1).to(wide.dtype)
    return torch.stack((finite.sum(dim=1), finite.abs().sum(dim=1), odd), dim=1)


def _of_sums(torch: Any, actual: Any, expected: StoredTensor, tolerance: Tolerance) -> Comparison:
    """Compare sums. They differ if the difference is more than all elements of the block together may differ by."""
    flat = actual.reshape(-1)
    found = _sums(torch, flat)
    if (expected.dtype, expected.shape) != (str(found.dtype).removeprefix("torch."), tuple(found.shape)):
        raise ValueError("is damaged: it lacks the sums of an output")
    wanted = of_stored(torch, expected, str(actual.device))
    if found.dtype == torch.int64:
        wrong = (found != wanted).any(dim=1)
    else:
        size = -(-int(flat.numel()) // _BLOCKS)
        room = size * (
            tolerance.atol + tolerance.chain * float((wanted[:, 1].square().sum() / flat.numel()).sqrt())
        )
        allowed = room + (tolerance.rtol + 1e-12) * wanted[:, 1]
        wrong = ((found[:, 0] - wanted[:, 0]).abs() > allowed) | (found[:, 2] != wanted[:, 2])
    if not bool(wrong.any()):
        return Comparison(int(flat.numel()), 0)
    at = int(wrong.to(torch.uint8).argmax())
    size = -(-int(flat.numel()) // _BLOCKS)
    column = 0 if found.shape[1] == 1 or found[at, 2] == wanted[at, 2] else 2
    what = "the number of not finite ones among" if column else "the sum of"
    told, expected_text = (output_compare.written(each[at, column].item()) for each in (found, wanted))
    index = output_compare.unravelled(at * size, tuple(actual.shape))
    said = f"the first of {size:,} elements, {what} which is {told}"
    return Comparison(int(flat.numel()), int(wrong.sum()), index, said, expected_text)
