"""Digests of what an evaluation built, measured and compared, by which somebody else can tell that these belong together."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import field
from hashlib import sha256
from typing import Any, Final

from orbit_remote.common.lazy_dataclass import dataclass

WHOLE: Final = 1 << 20
"""Bytes of a tensor up to which all of them are in its digest."""
_PARTS, _OF_A_PART = 256, 4096


@dataclass(frozen=True, slots=True)
class Digests:
    """SHA-256 digests in hexadecimal.

    `candidate` and `reference` are of the texts in UTF-8, `files` of those beside the reference that its text names, `built` of
    libraries that were built from the candidate's text before it had the GPU; both by path. `code` is of the machine code of
    Triton's kernels, by name, as the candidate's process left it. `arguments`, `outputs` (the candidate's) and `expected` (the
    reference's) are of one comparison after the timed rounds. `seeds` are those from which it can be made again: of the
    `parameters`, of the `arguments`, and of the reference's `call`.
    """

    candidate: str
    reference: str
    files: dict[str, str] = field(default_factory=dict[str, str])
    built: dict[str, str] = field(default_factory=dict[str, str])
    code: dict[str, str] = field(default_factory=dict[str, str])
    seeds: dict[str, int] = field(default_factory=dict[str, int])
    arguments: str = ""
    outputs: str = ""
    expected: str = ""


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
