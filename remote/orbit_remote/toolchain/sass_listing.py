"""Writes machine code as text, from a report's instructions or from a disassembler's, beside the lines of its source.

Each instruction has its offset in the kernel. Above it stands, where that changes, its source line, and the lines
that were inlined there. If the code itself is at hand, its control code stands before it, as CuAssembler writes it:
`B--2---:R1:W0:-:S02` waits for scoreboard 2, sets scoreboard 1 when its operands are read and 0 when its result is
written, and stalls 2 cycles; `Y` says that the warp may yield. NVIDIA does not document the layout of these bits: it
was published by Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking" (2018), section 2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from orbit_remote.toolchain.dwarf_lines import Frame

INSTRUCTION = 16
"""Bytes of one, since Volta."""
MOST = 1 << 14
"""Instructions of a kernel that are listed."""
_CONTROL = 105
"""The bit of an instruction at which its control code begins."""
_NO_BARRIER = 7


def text(
    title: str,
    instructions: Sequence[str],
    frames: Callable[[int], tuple[Frame, ...]],
    code: bytes = b"",
    missing: str = "",
) -> str:
    """Write a listing. `frames` gives the lines of an offset, innermost first. `code` are the bytes of the
    instructions, and `missing` says why no line is known. It is empty without instructions.
    """
    if not instructions:
        return ""
    lines = [f"// {title}", *([f"// {missing}"] if missing else ())]
    shown: tuple[Frame, ...] = ()
    for number, instruction in enumerate(instructions[:MOST]):
        offset = number * INSTRUCTION
        if (of := frames(offset)) and of != shown:
            shown = of
            (file, line), inner = of[-1], [f", in {Path(name).name}:{at}" for name, at in reversed(of[:-1])]
            lines.append(f"// {file}:{line}{''.join(inner)}")
        word = code[offset : offset + INSTRUCTION]
        control = f"{control_code(word)}  " if len(word) == INSTRUCTION else ""
        lines.append(f"        /*{offset:04x}*/  {control}{instruction.strip()}")
    if len(instructions) >= MOST:
        lines.append(f"// what comes after {MOST:,} instructions is left out")
    return "\n".join([*lines, ""])


def control_code(word: bytes) -> str:
    """Return the control code of one instruction of 16 bytes."""
    bits = int.from_bytes(word, "little") >> _CONTROL
    stall, no_yield, write, read, wait = (
        bits & 15,
        bits >> 4 & 1,
        bits >> 5 & 7,
        bits >> 8 & 7,
        bits >> 11 & 63,
    )
    waits = "".join(str(at) if wait >> at & 1 else "-" for at in range(6))
    sets = ["-" if barrier == _NO_BARRIER else str(barrier) for barrier in (read, write)]
    return f"B{waits}:R{sets[0]}:W{sets[1]}:{'-' if no_yield else 'Y'}:S{stall:02d}"


def size(listing: str) -> int:
    """Return the bytes of a listing's code."""
    return listing.count("\n        /*") * INSTRUCTION
