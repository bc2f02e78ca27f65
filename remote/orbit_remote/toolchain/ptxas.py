"""The report of `ptxas -v` on each kernel: registers, shared memory, stack, spills."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from orbit_remote.common import symbols
from orbit_remote.common.messages import Place, Resources
from orbit_remote.toolchain.ptx import Ptx

_COMPILING = re.compile(r"Compiling entry function '(?P<symbol>[^']+)' for '(?P<architecture>[^']+)'")
_PROPERTIES = re.compile(r"Function properties for '?(?P<symbol>[\w$.]+)'?")
_FRAME = re.compile(
    r"^\s+(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads"
)
_USED = re.compile(r"Used (?P<registers>\d+) registers(?P<rest>.*)")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")


def resources(
    output: str, ptx: Iterable[Ptx] = (), place: Callable[[Place, str], Place | None] = lambda place, _: place
) -> tuple[Resources, ...]:
    """One record for each kernel and architecture that ptxas reported, in its order.

    ptxas leaves `bytes smem` out where it is zero, so a kernel with a `Used` line and none has none.
    Barriers were left out by CUDA 11 and are unknown there. `place` refines (place, bare name).
    """
    found: dict[tuple[str, str], Resources] = {}
    current: tuple[str, str] | None = None
    framed: str | None = None
    for line in output.splitlines():
        if entry := _COMPILING.search(line):
            current = entry["symbol"], entry["architecture"]
            found[current] = Resources(current[0], symbols.short_name(current[0]), current[1])
        elif properties := _PROPERTIES.search(line):
            framed = properties["symbol"]
        elif current is None:
            continue
        elif (frame := _FRAME.match(line)) and framed == current[0]:
            found[current] = replace(
                found[current],
                stack=int(frame["stack"]),
                spill_stores=int(frame["stores"]),
                spill_loads=int(frame["loads"]),
            )
        elif used := _USED.search(line):
            barriers, shared = _BARRIERS.search(used["rest"]), _SHARED.search(used["rest"])
            found[current] = replace(
                found[current],
                registers=int(used["registers"]),
                barriers=int(barriers[1]) if barriers else None,
                static_shared=int(shared[1]) if shared else 0,
            )
    entries = {symbol: entry for one in ptx for symbol, entry in one.entries.items()}
    return tuple(
        replace(
            one,
            max_threads=entry.max_threads,
            threads=entry.threads,
            place=place(entry.place, symbols.base_name(one.symbol)) if entry.place else None,
        )
        if (entry := entries.get(one.symbol))
        else one
        for one in found.values()
    )
