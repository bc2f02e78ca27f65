"""Tensors that a request brings along, in base64 with zlib or as safetensors -> files beside the job, bit for bit"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Sequence
from typing import Any, cast

from orbit_lsp.queue.request import Refused
from orbit_remote.common import codec, limits
from orbit_remote.common.lazy_dataclass import dataclass

SIZES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "int64": 8, "int32": 4,
    "int16": 2, "int8": 1, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1,
}  # fmt: skip
"""Element types by torch's names, with their bytes."""
_SAFETENSORS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    "BOOL": "bool",
}  # fmt: skip
_LONGEST_HEADER = 1 << 20


@dataclass(frozen=True, slots=True)
class Tensor:
    """Elements in C order, little-endian."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def packed(self) -> str:
        """As it stands in a file beside the job."""
        return base64.b64encode(zlib.compress(self.data, 1)).decode()


def from_bytes(text: str, dtype: str, shape: Sequence[int], name: str, *, compressed: bool) -> Tensor:
    """Base64 of the elements, or of zlib's format of them. Raises Refused."""
    size = _size(dtype, shape, name)
    data = _decoded(text, name)
    if compressed:
        try:
            data = zlib.decompressobj().decompress(data, size + 1)
        except zlib.error as error:
            raise Refused(f"the data of {name} is not in zlib's format: {error}") from None
    if len(data) != size:
        more = "more" if len(data) > size else f"{len(data):,}"
        raise Refused(f"the data of {name} has {more} bytes; {list(shape)} of {dtype} has {size:,}")
    return Tensor(dtype, tuple(shape), data)


def from_safetensors(text: str, key: str, name: str) -> Tensor:
    """A tensor of a safetensors file in base64; without a key its only one. Raises Refused."""
    content = _decoded(text, name)
    length = int.from_bytes(content[:8], "little")
    try:
        if len(content) < 8 or length > min(_LONGEST_HEADER, len(content) - 8):
            raise ValueError("its header is longer than the file")  # noqa: TRY301 - one answer for all that is wrong with it
        header: Any = codec.read_json(content[8 : 8 + length])
    except (ValueError, RecursionError) as error:
        raise Refused(f"the data of {name} is no safetensors file: {error}") from None
    header = cast("dict[str, Any]", header) if isinstance(header, dict) else {}
    entries = {each: entry for each, entry in header.items() if each != "__metadata__"}
    if not key and len(entries) == 1:
        key = next(iter(entries))
    if key not in entries:
        raise Refused(
            f"the data of {name} has no tensor {key!r:.60}; it has: {', '.join(entries)[:200] or 'none'}"
        )
    return _entry(entries[key], content[8 + length :], name)


def _entry(entry: Any, data: bytes, name: str) -> Tensor:
    match entry:
        case {"dtype": str(code), "shape": [*shape], "data_offsets": [int(start), int(end)]}:
            dtype = _SAFETENSORS.get(code)
            if dtype is None:
                raise Refused(f"the data of {name} has the element type {code!r:.20}, which is not supported")
            size = _size(dtype, shape, name)
            if 0 <= start <= end <= len(data) and end - start == size:
                return Tensor(dtype, tuple(shape), data[start:end])
        case _:
            pass
    raise Refused(f"the data of {name} is no safetensors file: its header and its bytes do not agree")


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(f"the data of {name} is not in base64: {error}") from None


def _size(dtype: str, shape: Sequence[Any], name: str) -> int:
    """Bytes. Raises Refused."""
    if dtype not in SIZES:
        raise Refused(f"{name} has the element type {dtype!r:.30}, which is not one of {', '.join(SIZES)}")
    if not all(isinstance(extent, int) and not isinstance(extent, bool) and extent >= 0 for extent in shape):
        raise Refused(f"the shape of {name} is {list(shape)!r:.60}, not a list of sizes")
    size = SIZES[dtype]
    for extent in shape:
        size *= extent
        if size > limits.TENSOR.most:  # at once: the product of thousands of long numbers would take minutes
            raise Refused(f"{name} is larger than {limits.TENSOR.size}, the limit of {limits.TENSOR.what}")
    return size
