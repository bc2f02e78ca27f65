"""Shows a profile on its kernel's line: time, bottleneck, occupancy, registers, waves."""

from __future__ import annotations

from orbit_lsp.profile import bottleneck
from orbit_lsp.state import units
from orbit_lsp.state.fitting import Part
from orbit_lsp.state.results import Profiled
from orbit_lsp.views import kernel_status
from orbit_remote.common.messages import Launches, Profile

ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"
THEORETICAL = "sm__maximum_warps_per_active_cycle_pct"
REGISTERS = "launch__registers_per_thread"
MARK = "◔"


def parts(profiled: Profiled, *, time: bool, verdict: bool = True) -> list[Part]:
    """Return `◔ 70.3 µs · memory 79% of peak · occ 76% of 100% · 16 regs · 62 waves`. It has the time if no run has a
    better one (`time`), and the bottleneck if no lens shows it (`verdict`).
    """
    profile = profiled.main
    if profile is None:
        return Part.of(0, f"{MARK} the program did not launch it", f"{MARK} not launched")
    shown = Part.of(0, f"{MARK} {time_text(profiled)}".strip()) if time else []
    shown += _counted(profile, verdict=verdict) if profile.tier == "counters" else _times(profiled, profile)
    if len(profiled.profiles) > 1:
        shown += Part.of(
            2, f"the longest of {len(profiled.profiles)} launches", f"longest of {len(profiled.profiles)}"
        )
    if profiled.finished.outcome != "ok":
        shown += Part.of(1, f"then {profiled.finished.outcome}")
    return shown


def _counted(profile: Profile, *, verdict: bool) -> list[Part]:
    counted = bottleneck.verdict(profile)
    parts = Part.of(1, counted.text, counted.text.removesuffix(" of peak")) if counted and verdict else []
    if held := occupancy(profile):
        parts += Part.of(4, f"occ {held}", f"occ {held.partition(' of ')[0]}")
    if (registers := bottleneck.value(profile, REGISTERS)) is not None:
        parts += Part.of(9, f"{registers:.0f} regs")
    waves = bottleneck.value(profile, bottleneck.WAVE)
    if waves is not None and not (counted and counted.kind == "small grid"):  # which says it already
        parts += Part.of(11, bottleneck.waves_text(waves))
    return parts or Part.of(3, "no counters of those that are shown here", "no counters")


def time_text(profiled: Profiled) -> str:
    """Return `70.3 µs` from the counters, or `288 µs ±0.2%` if only times are known. Return "" without either."""
    profile = profiled.main
    if profile is None:
        return ""
    if (time := bottleneck.value(profile, bottleneck.TIME)) is not None:
        return units.time(time)
    launches = launched(profiled, profile)
    return units.timing(launches.timing) if launches else ""


def occupancy(profile: Profile) -> str:
    """Return `76% of 100%`: achieved of theoretical. Return "" if the first is not known."""
    achieved, most = bottleneck.value(profile, ACHIEVED), bottleneck.value(profile, THEORETICAL)
    if achieved is None:
        return ""
    reached = units.percent(achieved / 100)
    return reached if most is None else f"{reached} of {units.occupancy(most / 100)}"


def _times(profiled: Profiled, profile: Profile) -> list[Part]:
    """Return what is known if the counters were refused. The hover says who refused them, and what would help."""
    parts: list[Part] = []
    launches, device = launched(profiled, profile), profiled.finished.device
    if launches and device and device.capability:
        held = kernel_status.launch_occupancy(launches, device.capability, profiled.finished.resources)
        parts += Part.of(4, f"occ ≤{units.occupancy(held.fraction)}" if held else "")
    if launches and launches.registers is not None:
        parts += Part.of(9, f"{launches.registers} regs")
    return parts + Part.of(3, "times only: no counters", "no counters")


def launched(profiled: Profiled, profile: Profile) -> Launches | None:
    """Return the launches of a profile without counters."""
    same = [launch for launch in profiled.finished.launches if launch.symbol == profile.symbol]
    shaped = [
        launches
        for launches in same
        if profile.grid in (None, launches.grid) and profile.block in (None, launches.block)
    ]
    return kernel_status.main_launch(tuple(shaped or same))
