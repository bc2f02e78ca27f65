"""Digests of what an evaluation built, measured and compared, by which somebody else can tell that these belong together."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any, Final

WHOLE: Final = 1 << 20
"""Bytes of a tensor up to which all of them are in its digest."""
_PARTS, _OF_A_PART = 256, 4096


def of_text(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def of_bytes(content: bytes) -> str:
    return sha256(content).hexdigest()


def of_tensors(tensors: Iterable[tuple[str, Sequence[int], Sequence[int], Any]]) -> str:
    """Return a digest of tensors in order, each as its element type, shape, strides and a torch tensor of its bytes. Of more
    than `WHOLE` bytes count the first 4,096 of each of 256 equal parts, and the last 4,096.
    """
    known = sha256()
    for dtype, shape, strides, data in tensors:
        known.update(f"{dtype} {list(shape)} {list(strides)}\n".encode())
        for part in _parts(data):
            host = part.cpu()
            known.update(ctypes.string_at(host.data_ptr(), host.numel()) if host.numel() else b"")
    return known.hexdigest()


def _parts(data: Any) -> list[Any]:
    size = data.numel()
    if size <= WHOLE:
        return [data]
    each = size // _PARTS
    return [data[: _PARTS * each].view(_PARTS, each)[:, :_OF_A_PART].contiguous(), data[-_OF_A_PART:]]
