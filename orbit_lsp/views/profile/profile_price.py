"""Estimates how long a profile will take, before the click: as long as the last one of its kind, else by the last
run.
"""

from __future__ import annotations

from typing import Literal

from orbit_lsp.profile import counting_cost
from orbit_lsp.state import units
from orbit_lsp.state.session import Session
from orbit_lsp.views.kernel_status import KernelStatus
from orbit_remote.common.lazy_dataclass import dataclass

Detail = Literal["click", "full"]

LONG_S = 10.0
"""A profile that takes so long says so in its lens."""


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
    kernel_s = counting_cost.kernel_seconds(known.result.launches)
    machine = session.setup.machine
    way = counting_cost.way(machine.cupti if machine else None, known.plan.through, known.kernel.language)
    seconds = way.seconds(kernel_s)
    if way is counting_cost.NCU or known.plan.through != "spec":  # else the process is there already
        seconds += known.result.finished.run_s or 0.0
    passes = f"{_passes(way.passes_of(kernel_s))} of {units.time(kernel_s * 1e9)} by {way.tool}"
    return ProfilePrice(seconds, f"about {_seconds(seconds)}: {passes}")


def _passes(count: int) -> str:
    return f"{count} passes" if count > 1 else "1 pass"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= LONG_S else f"{seconds:.1f} s"
