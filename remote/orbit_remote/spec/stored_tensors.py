"""Reads tensors in a `.safetensors` file as data that may be hostile, and writes them.

The format (huggingface.co/docs/safetensors): 8 bytes with the length of the header, little-endian, the header in
JSON, then the elements of every tensor in C order. Only the header of a file and the tensor that is asked for are
read. Nothing of it is believed before it is checked against the file's size.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from orbit_remote.common import codec, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import STORED
from orbit_remote.spec.dtypes import DTYPES

SUFFIX: Final = ".orbit.safetensors"
"""How the names of files end that a capture writes."""
CODES: Final = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64",
    "BOOL": "bool",
}  # fmt: skip
"""The format's element types -> torch's names."""
_CODE_OF: Final = {name: code for code, name in CODES.items()}
_LONGEST_HEADER: Final = 1 << 20
_LENGTH: Final = 8
_METADATA: Final = "__metadata__"
_NAME: Final = re.compile(rf"(?!\.)[\w.+-]{{1,120}}{re.escape(SUFFIX)}")
_UNBELIEVABLE: Final = "is no safetensors file: its header and its bytes do not agree"

Fetch = Callable[[int, int], bytes]
"""The bytes of a file from one offset to another."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor: its elements are in C order, little-endian. `dtype` is torch's name."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file whose header has been read. `notes` are its metadata: texts by name."""

    entries: Mapping[str, Any]
    notes: Mapping[str, str]
    size: int
    begin: int
    fetch: Fetch

    def tensor(self, key: str) -> StoredTensor:
        """Read a tensor. Raises ValueError, whose text goes on after the file's name, and OSError."""
        if key not in self.entries:
            names = ", ".join(self.entries)[:200] or "none"
            raise ValueError(f"has no tensor {key!r:.60}; it has: {names}")
        match self.entries[key]:
            case {"dtype": str(code), "shape": [*shape], "data_offsets": [int(start), int(end)]}:
                if code not in CODES:
                    raise ValueError(f"has the element type {code!r:.20}, which is not supported")
                dtype = CODES[code]
                size = _bytes(dtype, shape, self.size)
                if 0 <= start <= end <= self.size - self.begin and end - start == size:
                    data = self.fetch(self.begin + start, self.begin + end)
                    if len(data) == size:
                        return StoredTensor(dtype, tuple(shape), data)
            case _:
                pass
        raise ValueError(_UNBELIEVABLE)


def _bytes(dtype: str, shape: Sequence[Any], most: int) -> int:
    """Return the size of a shape in bytes. Return -1 if it is no shape or larger than the file: the product of long
    numbers would take minutes.
    """
    size = DTYPES[dtype].size
    for extent in shape:
        if not isinstance(extent, int) or isinstance(extent, bool) or extent < 0:
            return -1
        size *= extent
        if size > most:
            return -1
    return size


def parsed(size: int, fetch: Fetch) -> StoredFile:
    """Read the header of a file of `size` bytes. Raises ValueError, whose text follows the file's name, and OSError."""
    length = int.from_bytes(fetch(0, _LENGTH), "little")
    if size < _LENGTH or length > min(_LONGEST_HEADER, size - _LENGTH):
        raise ValueError("is no safetensors file: its header is longer than the file")
    try:
        header: Any = codec.read_json(fetch(_LENGTH, _LENGTH + length))
    except ValueError as error:
        raise ValueError(f"is no safetensors file: {error}") from None
    if not isinstance(header, dict):
        raise ValueError("is no safetensors file: its header is no JSON object")  # noqa: TRY004 - of somebody's file
    entries = cast("dict[str, Any]", header)
    notes = entries.pop(_METADATA, {})
    texts = cast("dict[str, Any]", notes) if isinstance(notes, dict) else {}
    kept = {name: text for name, text in texts.items() if isinstance(text, str)}
    return StoredFile(entries, kept, size, _LENGTH + length, fetch)


def of_bytes(content: bytes) -> StoredFile:
    """Read the header of a file that is in memory. Raises ValueError."""
    return parsed(len(content), lambda start, end: content[start:end])


def is_name(name: object) -> bool:
    """Say whether a name can be that of a tensor file in another file's folder: it is no path, and no hidden file."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def opened(folder: str, name: str, given: Mapping[str, bytes] | None = None) -> StoredFile:
    """Open the file of this name in a folder; it may be no link. A `given` file is used in its place. Raises
    ValueError with a sentence.
    """
    try:
        if given and name in given:
            return of_bytes(given[name])
        return _of_folder(folder, name)
    except FileNotFoundError:
        raise ValueError(f"{name} is not beside this file: capture the launch again") from None
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None


def _of_folder(folder: str, name: str) -> StoredFile:
    """Raises OSError and ValueError."""

    def size_and(start: int, end: int) -> tuple[int, bytes]:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            with regular_files.opened(name, within=descriptor) as file:
                file.seek(start)
                return os.fstat(file.fileno()).st_size, regular_files.upto(file, end - start)
        finally:
            os.close(descriptor)

    size, _ = size_and(0, 0)
    if size > STORED.most:
        raise ValueError(f"is larger than {STORED.size}, the limit of {STORED.what}")
    return parsed(size, lambda start, end: size_and(start, end)[1])


def tensor(folder: str, name: str, key: str, given: Mapping[str, bytes] | None = None) -> StoredTensor:
    """Return a tensor of the file of this name. Raises ValueError with a sentence."""
    file = opened(folder, name, given)
    try:
        return file.tensor(key)
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None


def written(tensors: Mapping[str, StoredTensor], notes: Mapping[str, str]) -> bytes:
    """Return the content of a file with these tensors."""
    header: dict[str, Any] = {_METADATA: dict(sorted(notes.items()))} if notes else {}
    at = 0
    for key, each in sorted(tensors.items()):
        header[key] = {
            "dtype": _CODE_OF[each.dtype],
            "shape": list(each.shape),
            "data_offsets": [at, at + len(each.data)],
        }
        at += len(each.data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH)
    body = b"".join(each.data for _, each in sorted(tensors.items()))
    return len(text).to_bytes(_LENGTH, "little") + text + body


def merged(old: Path, new: bytes, kernel: str) -> bytes:
    """Return the content of a kernel's new file, with the tensors of other kernels from the file `old`. Unreadable
    parts are dropped, because nobody could load them. Raises OSError if the file exists and cannot be read.
    """
    made = of_bytes(new)
    tensors = {key: made.tensor(key) for key in made.entries}
    notes = dict(made.notes)
    try:
        known = _of_folder(str(old.parent), old.name)
        others = {key: known.tensor(key) for key in known.entries if not _is_of(key, kernel)}
    except (FileNotFoundError, ValueError):
        return new
    kept_notes = {name: text for name, text in known.notes.items() if not _is_of(name, kernel)}
    return written(others | tensors, kept_notes | notes)


def _is_of(key: str, kernel: str) -> bool:
    return key == kernel or key.startswith(f"{kernel}.")


def elements(each: StoredTensor) -> int:
    return math.prod(each.shape)
