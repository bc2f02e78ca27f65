"""A profile on its kernel's line: time, bottleneck, occupancy, registers, waves."""

from __future__ import annotations

from orbit_lsp.profile import bottleneck
from orbit_lsp.state import units
from orbit_lsp.state.results import Profiled
from orbit_lsp.views import kernel_status
from orbit_remote.common.messages import Launches, Profile

ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"
THEORETICAL = "sm__maximum_warps_per_active_cycle_pct"
REGISTERS = "launch__registers_per_thread"
MARK = "◔"


def label(profiled: Profiled, *, stale: bool) -> str:
    """`◔ 70.3 µs · memory 79% of peak · occ 76% of 100% · 16 regs · 62 waves`."""
    mark = " · edited since" if stale else ""
    profile = profiled.main
    if profile is None:
        return f"{MARK} the program did not launch it{mark}"
    parts = _times(profiled, profile) if profile.tier == "times" else _counted(profile)
    if len(profiled.profiles) > 1:
        parts.append(f"the longest of {len(profiled.profiles)} launches")
    if profiled.finished.outcome != "ok":
        parts.append(f"then {profiled.finished.outcome}")
    return f"{MARK} {' · '.join(parts)}{mark}"


def _counted(profile: Profile) -> list[str]:
    parts: list[str] = []
    if (time := bottleneck.value(profile, bottleneck.TIME)) is not None:
        parts.append(units.time(time))
    found = bottleneck.verdict(profile)
    if found:
        parts.append(found.text)
    if held := occupancy(profile):
        parts.append(f"occ {held}")
    if (registers := bottleneck.value(profile, REGISTERS)) is not None:
        parts.append(f"{registers:.0f} regs")
    waves = bottleneck.value(profile, bottleneck.WAVE)
    if waves is not None and not (found and found.kind == "small grid"):  # which says it already
        parts.append(bottleneck.waves_text(waves))
    return parts or ["the report has none of the counters that are shown here"]


def occupancy(profile: Profile) -> str:
    """`76% of 100%`: achieved of theoretical; empty where the first is not known."""
    achieved, most = bottleneck.value(profile, ACHIEVED), bottleneck.value(profile, THEORETICAL)
    if achieved is None:
        return ""
    reached = units.percent(achieved / 100)
    return reached if most is None else f"{reached} of {units.occupancy(most / 100)}"


def _times(profiled: Profiled, profile: Profile) -> list[str]:
    """What is known where the counters were refused: the hover says by whom, and what would help."""
    parts: list[str] = []
    launches = launched(profiled, profile)
    if launches:
        parts.append(f"{units.time(launches.timing.median)} {units.spread(launches.timing.spread)}".strip())
        device = profiled.finished.device
        if device and device.capability:
            held = kernel_status.launch_occupancy(launches, device.capability, profiled.finished.resources)
            parts.append(f"occ ≤{units.occupancy(held.fraction)}" if held else "")
        if launches.registers is not None:
            parts.append(f"{launches.registers} regs")
    return [*filter(None, parts), "times only: no counters"]


def launched(profiled: Profiled, profile: Profile) -> Launches | None:
    """The launches that a profile without counters is of."""
    same = [one for one in profiled.finished.launches if one.symbol == profile.symbol]
    shaped = [one for one in same if profile.grid in (None, one.grid) and profile.block in (None, one.block)]
    return kernel_status.main_launch(tuple(shaped or same))
