"""Finds the calls through which Triton's code was inlined, from comments in its PTX: cubins do not have them.

LLVM writes `.loc 2 170 27 // standard.py:170:27 @[ standard.py:191:40 @[ softmax.py:13:36 ] ]`, but ptxas keeps only
the first place. The cubin has the PTX without its comments, line for line, and a table from instructions to those
lines. So a PTX with comments can be recognised as the same code, and its calls can be read.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path

from orbit_remote.toolchain.dwarf_lines import Frame, FunctionLines, rows
from orbit_remote.toolchain.elf import Cubin

_LOC = re.compile(r"^\s*\.loc\s+(\d{1,9})\s+(\d{1,9})\s+\d+[^/]*(?://\s*(.*))?$")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"(.*)"', re.MULTILINE)
_STEP = re.compile(r"@\[ (.+?):(\d{1,9}):\d+")


def add(lines: FunctionLines, symbol: str, content: bytes, texts: Iterable[str]) -> FunctionLines:
    """Return the `lines` of one function with the calls that the fitting one of `texts` (PTX with comments) names."""
    code = Cubin(content)
    kept = code.section(".nv_debug_ptx_txt").decode("utf-8", "replace").split("\0")
    text = next((text for text in texts if _is_same(text, kept)), None)
    if text is None:
        return lines
    chains = _chains(text)
    numbers = [number for number, _ in chains]
    places = rows(content, ".nv_debug_line_sass").get(symbol, ())

    def chain(address: int, frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        at = bisect_right(places, address, key=lambda pair: pair[0]) - 1
        before = bisect_right(numbers, places[at][1]) - 1 if at >= 0 else -1
        outer = chains[before][1] if before >= 0 else ()
        return outer if outer[:1] == frames[:1] else frames

    starts = sorted({address for address, _ in lines.frames} | {address for address, _ in places})
    return FunctionLines(tuple((address, chain(address, lines.at(address))) for address in starts))


def _is_same(text: str, kept: Sequence[str]) -> bool:
    """Say whether the code was made from this PTX. ptxas keeps its lines, and drops places and most comments."""
    given = text.split("\n")
    if abs(len(given) - len(kept)) > 1:
        return False
    pairs = ((_bare(here), _bare(there)) for here, there in zip(given, kept, strict=False))
    return all(not there or here == there for here, there in pairs)


def _bare(line: str) -> list[str]:
    return line.partition("//")[0].split()


def _chains(text: str) -> list[tuple[int, tuple[Frame, ...]]]:
    """Return (line of the PTX, from 1, frames, innermost first) for every `.loc`."""
    files = dict(_FILE.findall(text))
    by_name = {Path(path).name: path for path in files.values()}
    chains: list[tuple[int, tuple[Frame, ...]]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if match := _LOC.match(line):
            file, at, comment = match.groups()
            first = (files.get(file, ""), int(at))
            calls = tuple((by_name.get(name, name), int(of)) for name, of in _STEP.findall(comment or ""))
            chains.append((number, (first, *calls)))
    return chains
