"""The programs of `sanitizer/` and what is planted in them: a line that ends in `PLANTED TOOL` is one that TOOL has to name."""

from __future__ import annotations

import re
from pathlib import Path

PROGRAMS = Path(__file__).parent / "sanitizer"
RECORDED = PROGRAMS / "h100"
"""What compute-sanitizer 2025.3.1 said of them on an H100 (`scripts/record_sanitizer`)."""
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
PLANTED = (
    "out_of_bounds_write", "out_of_bounds_read", "misaligned", "race", "uninitialised", "warp_mask", "barrier_object",
)  # fmt: skip
"""Each has a twin without the fault, `…_right`. In `race` a barrier is missing."""
_MARK = re.compile(r"(?://|#) PLANTED (\w+)")


def lines(program: str, tool: str) -> set[int]:
    """The lines, from 1, that `tool` has to name in `race.cu`."""
    text = (PROGRAMS / program).read_text().splitlines()
    return {number for number, line in enumerate(text, 1) if (mark := _MARK.search(line)) and mark[1] == tool}
