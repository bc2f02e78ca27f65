"""Turns tensors that come with a request, in base64 with zlib or as safetensors, into files beside the job, bit for
bit.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from typing import Any

from orbit_lsp.queue.request import RequestRefusedError
from orbit_remote.common import limits
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec import stored_tensors
from orbit_remote.spec.dtypes import DTYPES

SIZES = {name: dtype.size for name, dtype in DTYPES.items()}
"""Element types by torch's names, with their bytes."""


@dataclass(frozen=True, slots=True)
class PackedTensor:
    """Elements in C order, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def packed(self) -> str:
        """Return the elements as they stand in a file beside the job."""
        return base64.b64encode(zlib.compress(self.data, 1)).decode()


def from_bytes(text: str, dtype: str, shape: Sequence[int], name: str, *, compressed: bool) -> PackedTensor:
    """Read elements from base64, with or without zlib. Raises RequestRefusedError."""
    size = _size(dtype, shape, name)
    data = _decoded(text, name)
    if compressed:
        try:
            data = zlib.decompressobj().decompress(data, size + 1)
        except zlib.error as error:
            raise RequestRefusedError(f"the data of {name} is not in zlib's format: {error}") from None
    if len(data) != size:
        more = "more" if len(data) > size else f"{len(data):,}"
        raise RequestRefusedError(
            f"the data of {name} has {more} bytes; {list(shape)} of {dtype} has {size:,}"
        )
    return PackedTensor(dtype, tuple(shape), data)


def from_safetensors(text: str, key: str, name: str) -> PackedTensor:
    """Read a tensor of a safetensors file in base64; without a key its only one. Raises RequestRefusedError."""
    content = _decoded(text, name)
    try:
        file = stored_tensors.of_bytes(content)
        stored = file.tensor(next(iter(file.entries)) if not key and len(file.entries) == 1 else key)
    except ValueError as error:
        raise RequestRefusedError(f"the data of {name} {error}") from None
    _size(stored.dtype, stored.shape, name)
    return PackedTensor(stored.dtype, stored.shape, stored.data)


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestRefusedError(f"the data of {name} is not in base64: {error}") from None


def _size(dtype: str, shape: Sequence[Any], name: str) -> int:
    """Return the size in bytes. Raises RequestRefusedError."""
    if dtype not in SIZES:
        raise RequestRefusedError(
            f"{name} has the element type {dtype!r:.30}, which is not one of {', '.join(SIZES)}"
        )
    if not all(isinstance(extent, int) and not isinstance(extent, bool) and extent >= 0 for extent in shape):
        raise RequestRefusedError(f"the shape of {name} is {list(shape)!r:.60}, not a list of sizes")
    size = SIZES[dtype]
    for extent in shape:
        size *= extent
        if size > limits.TENSOR.most:  # at once: the product of thousands of long numbers would take minutes
            raise RequestRefusedError(
                f"{name} is larger than {limits.TENSOR.size}, the limit of {limits.TENSOR.what}"
            )
    return size
