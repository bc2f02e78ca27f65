"""The numbers of a kernel as short texts: for the end of its line, for lenses and tables."""

from __future__ import annotations

from orbit_lsp.state import units
from orbit_lsp.state.results import Result
from orbit_lsp.state.session import Session
from orbit_lsp.views import (
    kernel_status,
    memory_view,
    rates,
    sweep_tables,
)
from orbit_lsp.views.kernel_status import KernelStatus
from orbit_lsp.views.profile import profile_hints
from orbit_remote.common.measure import Difference
from orbit_remote.common.messages import Launches, Resources, Timing


def labels(session: Session, uri: str, known: KernelStatus) -> list[str]:
    """The texts for one kernel, most telling first."""
    wanted = session.setup.settings.hints
    found: list[str] = []
    if wanted.measured and known.result:
        found.append(measured(session, known))
    if wanted.profile and known.profile:
        found.append(profile_hints.label(known.profile, stale=known.profile_stale))
    if wanted.measured and (text := memory_view.label(session, uri, known)):
        found.append(text)
    if wanted.static and known.figures and (text := static(session, uri, known)):
        found.append(text)
    return found


def measured(session: Session, known: KernelStatus) -> str:
    assert known.result
    mark = " · edited since" if known.stale else ""
    if known.result.through == "spec":
        return by_spec(known.result) + mark
    launches = known.result.launches
    main = kernel_status.main_launch(launches)
    if main is None:
        return f"⏱ the program did not launch it{mark}"
    parts = [f"⏱ {time_text(main.timing)}", f"({main.timing.label})"]
    if known.result.difference:
        parts.append(f"· {change(known.result.difference)}")
    x, y, z = main.block
    arch = architecture_of(known) or session.setup.architecture()
    if occupancy := kernel_status.launch_occupancy(main, arch, known.result.finished.resources):
        parts.append(f"· occ ≤{units.occupancy(occupancy.fraction)} ({x * y * z} thr)")
    if len(launches) > 1:
        total = sum(one.count for one in launches)
        parts.append(f"· {total} launches in {len(launches)} configurations")
    if known.result.finished.outcome != "ok":
        parts.append(f"· then {known.result.finished.outcome}")
    return " ".join(parts) + mark


def by_spec(result: Result) -> str:
    """`⏱ 288 µs ±0.2% · 2.79 TB/s (83% of peak) · occ ≤100% (256 thr) · ✓`, of the first set of values."""
    finished = result.finished
    parts: list[str] = []
    if result.launches:
        first, *others = result.launches
        time = f"⏱ {sweep_tables.time_text(result.launches)}"
        every, one = sweep_tables.timed(finished.points), sweep_tables.shown(finished.points)
        if one and len(every) > 1:
            time += f" at {sweep_tables.values_text(one)} ({every.index(one) + 1} of {len(every)})"
        parts.append(time + (f" in {1 + len(others)} launches" if others else ""))
        if result.difference:
            parts.append(change(result.difference))
        if one:
            found = rates.of(one, sweep_tables.total_ns(result.launches), finished.device, result.elements)
            parts.append(rates.short(found))
        capability = finished.device.capability if finished.device else None
        if not others and capability:
            held = kernel_status.launch_occupancy(first, capability, finished.resources)
            x, y, z = first.block
            parts.append(f"occ ≤{units.occupancy(held.fraction)} ({x * y * z} thr)" if held else "")
    parts.append(sweep_tables.verdict(finished.points))
    if finished.outcome not in ("ok", "wrong answer"):
        parts.append(f"then {finished.outcome}")
    return " · ".join(filter(None, parts)) or "⏱ not timed"


def time_text(timing: Timing) -> str:
    """`288 µs ±0.2%`, the spread only where enough launches allow one."""
    return f"{units.time(timing.median)} {units.spread(timing.spread)}".strip()


def static(session: Session, uri: str, known: KernelStatus) -> str:
    """`40 regs · 8 KB smem · occ 75% (registers) · sm_90a`; of several instances, the widest said so."""
    assert known.figures
    resources = known.figures.resources
    widest = max(resources, key=lambda one: one.registers or 0)
    parts = resource_parts(widest)
    if occupancy := kernel_status.static_occupancy(session, uri, known.kernel, widest):
        parts.append(occupancy)
    parts.append(widest.architecture)
    if len(resources) > 1:
        parts.append(f"the widest of {len(resources)} instances")
    if known.figures_stale:
        parts.append("before your edits")
    return " · ".join(parts)


def resource_parts(resources: Resources) -> list[str]:
    parts: list[str] = []
    if resources.registers is not None:
        parts.append(f"{resources.registers} regs")
    shared = (resources.static_shared or 0) + (resources.dynamic_shared or 0)
    if shared:
        parts.append(f"{units.size(shared)} smem")
    spilled = (resources.spill_stores or 0) + (resources.spill_loads or 0)
    if spilled:
        parts.append(f"⚠ spills {units.size(spilled)}")
    if resources.stack and not spilled:
        parts.append(f"{units.size(resources.stack)} stack")
    return parts


def architecture_of(known: KernelStatus) -> str | None:
    """Of the GPU that the last run was on."""
    device = known.result.finished.device if known.result else None
    return device.capability if device else None


def configuration(launches: Launches) -> str:
    """`<<<(262144, 1, 1), (256, 1, 1)>>>` in the field's notation, trailing ones left out."""
    text = f"<<<{_dim(launches.grid)}, {_dim(launches.block)}"
    if launches.dynamic_shared:
        text += f", {launches.dynamic_shared}"
    return text + ">>>"


def _dim(size: tuple[int, int, int]) -> str:
    x, y, z = size
    if (y, z) == (1, 1):
        return str(x)
    return f"({x}, {y})" if z == 1 else f"({x}, {y}, {z})"


def change(difference: Difference) -> str:
    """`-7%` against the version before; `±` where two runs of the same code may differ as much."""
    if difference.verdict == "inconclusive":
        return "±"
    percent = 100 * difference.change
    return f"{percent:+.0f}%" if abs(percent) >= 10 else f"{percent:+.1f}%"
