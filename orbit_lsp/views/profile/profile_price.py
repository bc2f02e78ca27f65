"""Estimates how long a profile will take, before the click: as long as the last one of its kind, else by the last
run.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from orbit_lsp.state import units
from orbit_lsp.state.session import Session
from orbit_lsp.views.kernel_status import KernelStatus
from orbit_remote.common.lazy_dataclass import dataclass

Detail = Literal["click", "full"]

LONG_S = 10.0
"""A profile that takes so long says so in its lens."""


@dataclass(frozen=True, slots=True)
class _Tool:
    """The time of a way to count: `start_s` for a kernel that takes no time, and the `passes` that multiply the
    kernel's own time. There are only `fewer` passes if they would take longer than `longest_s`.
    """

    name: str
    start_s: float
    passes: int
    fewer: int = 0
    longest_s: float = math.inf

    def passes_of(self, kernel_s: float) -> int:
        """Return the number of passes for a kernel that takes `kernel_s`."""
        return self.passes if self.passes * kernel_s <= self.longest_s else self.fewer


_CUPTI = _Tool("CUPTI", 0.7, 17, fewer=4, longest_s=20.0)
"""H200, 2026-11-30: docs/dev/results/measurements-profile.md, *A click on a launch spec, counted by CUPTI*. `longest_s` is that of
orbit_remote's `counters.profiler`.
"""
_CUPTI_IN_PROGRAM = replace(_CUPTI, start_s=0.9)
"""H200, 2026-12-01: the same page, *A click on a program, counted by CUPTI*."""
_NCU = _Tool("Nsight Compute", 2.8, 20)
"""H100, 2026-11-21: the same page, *What the sections of a click cost*."""


@dataclass(frozen=True, slots=True)
class ProfilePrice:
    """An estimate. `text` is `0.7 s last time`, or `about 3 s: 20 passes of 0.06 ms by Nsight Compute`."""

    seconds: float
    text: str

    @property
    def is_long(self) -> bool:
        return self.seconds >= LONG_S


def of(session: Session, known: KernelStatus, detail: Detail = "click") -> ProfilePrice | None:
    """Return how long a profile will take. Return None if neither a run nor a profile says. The number of passes of a
    full profile depends on the GPU, so only the last full one can say.
    """
    profile = known.profile
    if profile and profile.detail == detail and profile.finished.run_s is not None:
        return ProfilePrice(profile.finished.run_s, f"{_seconds(profile.finished.run_s)} last time")
    if detail == "full" or known.result is None or not known.result.launches:
        return None
    kernel_s = (
        sum(launches.timing.median for launches in known.result.launches) / 1e9
    )  # one launch of each configuration
    tool = _tool(session, known)
    count = tool.passes_of(kernel_s)
    seconds = tool.start_s + count * kernel_s
    if tool is _NCU or known.plan.through != "spec":  # else the process is there already
        seconds += known.result.finished.run_s or 0.0
    passes = f"{count} passes of {units.time(kernel_s * 1e9)} by {tool.name}"
    return ProfilePrice(seconds, f"about {_seconds(seconds)}: {passes}")


def _tool(session: Session, known: KernelStatus) -> _Tool:
    """Return the tool that counts when the user clicks."""
    machine = session.setup.machine
    through, language = known.plan.through, known.kernel.language
    if machine is None or not machine.cupti:
        return _NCU
    if through == "spec" or (through == "driver" and language == "triton"):
        return _CUPTI
    return _CUPTI_IN_PROGRAM if through in ("program", "driver") and language == "cuda" else _NCU


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= LONG_S else f"{seconds:.1f} s"
