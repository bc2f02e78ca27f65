"""Records on a stream of bytes. Each has a name and parts, with their lengths before them, so that parts are passed
on unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_HEAD = struct.Struct("!QI")
"""The bytes that follow, and the number of parts."""


def packed(name: str, parts: Sequence[bytes | memoryview]) -> bytes:
    every = [name.encode(), *parts]
    lengths = struct.pack(f"!{len(every)}Q", *(len(part) for part in every))
    total = len(lengths) + sum(map(len, every))
    return b"".join([_HEAD.pack(total, len(every)), lengths, *every])


class Records:
    """The records of one stream. Raises ValueError for anything else."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def feed(self, data: bytes) -> list[tuple[str, list[bytes]]]:
        """Return the records that `data` completes."""
        self._waiting += data
        whole: list[tuple[str, list[bytes]]] = []
        at = 0
        while len(self._waiting) - at >= _HEAD.size:
            total, count = _HEAD.unpack_from(self._waiting, at)
            if not 0 < 8 * count <= total:
                raise ValueError("what came is no record")
            if len(self._waiting) - at - _HEAD.size < total:
                break
            whole.append(self._one(at + _HEAD.size, total, count))
            at += _HEAD.size + total
        del self._waiting[:at]
        return whole

    def _one(self, at: int, total: int, count: int) -> tuple[str, list[bytes]]:
        lengths = struct.unpack_from(f"!{count}Q", self._waiting, at)
        if 8 * count + sum(lengths) != total:
            raise ValueError("what came is no record")
        at += 8 * count
        parts: list[bytes] = []
        with memoryview(self._waiting) as view:
            for length in lengths:
                parts.append(bytes(view[at : at + length]))
                at += length
        return parts[0].decode(errors="replace"), parts[1:]
