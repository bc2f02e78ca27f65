"""Packs what compilers made of kernels into `Dump`s, to be sent."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import get_args

from orbit_remote.common import symbols
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Dump
from orbit_remote.common.requests import Level

_MOST_TEXT = 8 << 20
"""Bytes of one level; LLVM IR of large kernels has two million."""
_MOST_PACKED = 6 << 20
"""Characters of all of them as they travel: IR packs to a tenth."""


@dataclass(frozen=True, slots=True)
class DumpedInstance:
    """An instance of a kernel with what its compiler made of it. `name` is for people."""

    symbol: str
    name: str
    constants: Mapping[str, str] = field(default_factory=dict[str, str])
    texts: Mapping[Level, bytes] = field(default_factory=dict["Level", bytes])


def packed(listed: Sequence[DumpedInstance], remarks: list[str]) -> tuple[Dump, ...]:
    """Pack the instances. What is too large is left out, and a remark is added."""
    dumps: list[Dump] = []
    left_out: list[str] = []
    room = _MOST_PACKED
    counted: dict[str, int] = {}
    for made in listed:
        number = counted[made.symbol] = counted.get(made.symbol, -1) + 1
        for level in get_args(Level):
            if level not in made.texts:
                continue
            text = made.texts[level]
            packed = base64.b64encode(zlib.compress(text)).decode("ascii") if len(text) <= _MOST_TEXT else ""
            if packed and len(packed) <= room:
                room -= len(packed)
                dumps.append(Dump(made.symbol, made.name, level, number, dict(made.constants), packed))
            else:
                left_out.append(f"{level} of {symbols.short_name(made.name)} ({max(1, len(text) >> 20)} MiB)")
    if left_out:
        remarks.append(f"too large to be kept: {', '.join(left_out)}")
    return tuple(dumps)
