"""The machine code of a profiled launch as text, from its report: no disassembler is needed.

Each instruction has its offset in the kernel. Above it stands, where that changes, the line that it is of, and those that
were inlined there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orbit_remote.toolchain.dwarf_lines import Frame

INSTRUCTION = 16
"""Bytes of one, since Volta."""
_MOST = 1 << 14
"""Instructions of a kernel; NVIDIA's reader takes about 50 us for each."""
_TARGET = re.compile(r"(?:`\([^)]*\) *)?0x([0-9a-f]+)")


def listing(action: Any, symbol: str, first: int | None, frames: Callable[[int], tuple[Frame, ...]]) -> str:
    """`frames` says of an address the lines that it is of, innermost first. Empty where the report has no code."""
    if first is None:
        return ""
    texts: list[str] = []
    while len(texts) < _MOST and (text := str(action.sass_by_pc(first + len(texts) * INSTRUCTION) or "")):
        texts.append(text)
    end = first + len(texts) * INSTRUCTION

    def within(found: re.Match[str]) -> str:
        at = int(found[1], 16)
        return f"0x{at - first:04x}" if first <= at < end else found[0]

    lines: list[str] = []
    shown: tuple[Frame, ...] = ()
    for number, text in enumerate(texts):
        offset = number * INSTRUCTION
        if (of := frames(first + offset)) and of != shown:
            shown = of
            (file, line), inner = of[-1], [f", in {Path(name).name}:{at}" for name, at in reversed(of[:-1])]
            lines.append(f"// {file}:{line}{''.join(inner)}")
        lines.append(f"        /*{offset:04x}*/  {_TARGET.sub(within, text.strip())}")
    if len(texts) == _MOST:
        lines.append(f"// what comes after {_MOST:,} instructions is left out")
    return "\n".join([f"// {symbol}, as it ran", *lines, ""]) if lines else ""


def size(text: str) -> int:
    """Bytes of the code that a listing is of."""
    return text.count("\n        /*") * INSTRUCTION
