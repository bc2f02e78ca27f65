"""What it costs to read the GPU's counters, by each of the ways to count."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from orbit_lsp.kernels.model import Language
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Launches
from orbit_remote.common.requests import Through


@dataclass(frozen=True, slots=True)
class CountingWay:
    """A way to count: `start_s` for a kernel that takes no time, and the `passes` that multiply the kernel's own time.
    There are `fewer` passes, the first number that fits or else the last, if all would take longer than `longest_s`.
    """

    tool: str
    start_s: float
    passes: int
    fewer: tuple[int, ...] = ()
    longest_s: float = math.inf

    def passes_of(self, kernel_s: float) -> int:
        """Return the number of passes for a kernel that takes `kernel_s`."""
        every = (self.passes, *self.fewer)
        return next((passes for passes in every if passes * kernel_s <= self.longest_s), every[-1])

    def seconds(self, kernel_s: float) -> float:
        """Return the whole time for a kernel that takes `kernel_s`, without that of a program around it."""
        return self.start_s + self.passes_of(kernel_s) * kernel_s


CUPTI = CountingWay("CUPTI", 0.7, 17, fewer=(4, 1), longest_s=20.0)
"""H200, 2026-11-30: docs/dev/results/measurements-profile.md, *A click on a launch spec, counted by CUPTI*. `longest_s` is that of
orbit_remote's `counters.profiler`.
"""
CUPTI_IN_PROGRAM = replace(CUPTI, start_s=0.9)
"""H200, 2026-12-01: the same page, *A click on a program, counted by CUPTI*."""
NCU = CountingWay("Nsight Compute", 2.8, 20)
"""H100, 2026-11-21: the same page, *What the sections of a click cost*."""


def way(cupti: str | None, through: Through, language: Language) -> CountingWay:
    """Return the way that a click takes on a machine that has this CUPTI (None for none)."""
    if not cupti:
        return NCU
    if through == "spec" or (through == "driver" and language == "triton"):
        return CUPTI
    return CUPTI_IN_PROGRAM if through in ("program", "driver") and language == "cuda" else NCU


def kernel_seconds(launches: Iterable[Launches]) -> float:
    """Return the seconds of one launch of each configuration, which is what a profile counts."""
    return sum(each.timing.median for each in launches) / 1e9
