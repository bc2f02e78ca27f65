"""Reads the report of `ptxas -v` on each kernel: registers, shared memory, stack, spills."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from orbit_remote.common import symbols
from orbit_remote.common.messages import Place, Resources
from orbit_remote.toolchain.ptx import Ptx

_ERROR = re.compile(r"ptxas error\s*:")
_FATAL = re.compile(r"ptxas fatal\s*:")
_COMPILING = re.compile(r"Compiling entry function '(?P<symbol>[^']+)' for '(?P<architecture>[^']+)'")
_PROPERTIES = re.compile(r"Function properties for '?(?P<symbol>[\w$.]+)'?")
_FRAME = re.compile(
    r"^\s+(?P<stack>\d{1,9}) bytes stack frame, (?P<stores>\d{1,9}) bytes spill stores, (?P<loads>\d{1,9}) bytes spill loads"
)
_USED = re.compile(r"Used (?P<registers>\d{1,9}) registers(?P<rest>.*)")
_BARRIERS = re.compile(r"used (\d{1,9}) barriers")
_SHARED = re.compile(r"(\d{1,9}) bytes smem")


def resources(
    output: str, ptx: Iterable[Ptx] = (), place: Callable[[Place, str], Place | None] = lambda place, _: place
) -> tuple[Resources, ...]:
    """Return one record for each kernel and architecture that ptxas reported, in its order.

    ptxas leaves `bytes smem` out if it is zero, so a kernel with a `Used` line but no `smem` has none. It goes on
    behind an error of a kernel, or of constants, and reports the rest of what it refuses to make. So nothing of that
    architecture counts as a kernel's. CUDA 11 left barriers out; they are unknown there. `place` refines (place, bare
    name).
    """
    by_kernel: dict[tuple[str, str], Resources] = {}
    current: tuple[str, str] | None = None
    framed: str | None = None
    failed = False
    refused: set[str] = set()
    for line in output.splitlines():
        if entry := _COMPILING.search(line):
            current = entry["symbol"], entry["architecture"]
            if failed:
                refused.add(entry["architecture"])
                failed = False
            by_kernel[current] = Resources(current[0], symbols.short_name(current[0]), current[1])
        elif _ERROR.match(line):
            failed = True
        elif _FATAL.match(line):  # nothing more of this one is reported
            failed = False
        elif properties := _PROPERTIES.search(line):
            framed = properties["symbol"]
        elif current is None:
            continue
        elif (frame := _FRAME.match(line)) and framed == current[0]:
            by_kernel[current] = replace(
                by_kernel[current],
                stack=int(frame["stack"]),
                spill_stores=int(frame["stores"]),
                spill_loads=int(frame["loads"]),
            )
        elif used := _USED.search(line):
            barriers, shared = _BARRIERS.search(used["rest"]), _SHARED.search(used["rest"])
            by_kernel[current] = replace(
                by_kernel[current],
                registers=int(used["registers"]),
                barriers=int(barriers[1]) if barriers else None,
                static_shared=int(shared[1]) if shared else 0,
            )
    entries = {symbol: entry for file in ptx for symbol, entry in file.entries.items()}
    return tuple(
        replace(
            used,
            max_threads=entry.max_threads,
            threads=entry.threads,
            place=place(entry.place, symbols.base_name(used.symbol)) if entry.place else None,
        )
        if (entry := entries.get(used.symbol))
        else used
        for (_, architecture), used in by_kernel.items()
        if architecture not in refused
    )
