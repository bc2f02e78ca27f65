"""Writes the numbers of a kernel as short texts: the inlay hint at the end of its line, and cells of tables."""

from __future__ import annotations

import re

from orbit_lsp.state import fitting, units
from orbit_lsp.state.fitting import Part
from orbit_lsp.state.results import RunResult
from orbit_lsp.state.session import Session
from orbit_lsp.views import (
    kernel_status,
    memory_view,
    rates,
    sweep_tables,
)
from orbit_lsp.views.answer import outcome
from orbit_lsp.views.kernel_status import KernelStatus
from orbit_lsp.views.profile import profile_hints
from orbit_remote.common import measure
from orbit_remote.common.measure import Difference
from orbit_remote.common.messages import Launches, Resources

COMPILING = "compiling…"
_ASSUMED = " (assumed)"
_CONSTANT = re.compile(r"[+-]?[\d.]+|True|False|'.*'")
"""What of the constants and types that an instance was compiled with is a constant's value."""


def hint(session: Session, uri: str, known: KernelStatus) -> str:
    """Return `⏱ 288 µs ±0.2% · 2.80 TB/s (83%)`: what has room behind the kernel's line.

    If the editor draws no lens, the outcome and the bottleneck are here too.
    """
    wanted = session.setup.settings.hints
    lens = session.client.draws_lenses
    parts: list[Part] = []
    if wanted.measured and (running := kernel_status.main_launch(known.so_far)):
        count = f"so far, n={running.timing.n}"
        return fitting.fit([*outcome.timed("⏱", running.timing), *Part.of(1, count)], fitting.HINT)
    profile = known.profile if wanted.profile and not (known.profile_stale and known.result) else None
    if wanted.measured and (known.result or (known.failed and not lens)):
        parts += _measured(known, lens=lens, verdict=bool(profile) and not lens)
        if profile:
            parts += profile_hints.parts(profile, time=False, verdict=not lens) if profile.main else []
    elif profile:
        parts += profile_hints.parts(profile, time=True, verdict=not lens)
        parts += Part.of(1, outcome.EDITED if known.profile_stale else "")
    if wanted.measured and (text := memory_view.label(session, uri, known)):
        parts += Part.of(1 if text.startswith("✗") else 5, text)
    counted = any(part.forms[0].startswith("occ ") for part in parts)
    if wanted.measured and known.result and not counted:
        parts += _launch_occupancy(session, known)
        counted = True
    if wanted.static and known.figures:
        parts += _static(session, uri, known, counted=counted or bool(parts))
    if wanted.static and uri in session.compiling and (known.figures is None or known.figures_stale):
        parts += Part.of(0, COMPILING)
    return fitting.fit(parts, fitting.HINT)


def _measured(known: KernelStatus, *, lens: bool, verdict: bool) -> list[Part]:
    """Return the last run's time, rates and configurations. `verdict`: the verdict of a profile needs room beside
    them.
    """
    if known.failed and not lens:
        return outcome.parts(known)
    result = known.result
    assert result
    stale = Part.of(1, outcome.EDITED if known.stale else "")
    ended = result.finished.outcome
    after = Part.of(1, f"then {ended}" if ended not in ("ok", "wrong answer") else "")
    change_text = Part.of(1, change(result.difference) if result.difference else "")
    if result.through == "spec":
        return _by_spec(result, lens=lens, verdict=verdict) + change_text + stale + after
    main = kernel_status.main_launch(result.launches)
    if main is None:
        return (
            Part.of(
                0,
                f"⏱ {result.driver.short if result.driver else 'the program'} did not launch it",
                "⏱ not launched",
            )
            + stale
        )
    parts = outcome.timed("⏱", main.timing) + change_text + stale
    if len(result.launches) > 1:
        total = sum(launch.count for launch in result.launches)
        parts += Part.of(
            5, f"{total} launches in {len(result.launches)} configurations",
            f"{total} in {len(result.launches)} configurations", f"{total} launches",
        )  # fmt: skip
    else:
        few = main.timing.n < measure.MIN_FOR_SPREAD  # the time has no spread that would warn of it
        parts += Part.of(
            1 if few else fitting.FILLER, main.timing.label, main.timing.label.rpartition(" ")[2]
        )
    if result.driver:
        parts += Part.of(fitting.FILLER, f"via {result.driver.short}")
    return parts + after


def _by_spec(result: RunResult, *, lens: bool, verdict: bool) -> list[Part]:
    """Return `⏱ 288 µs ±0.2% · 2.80 TB/s (83%)` for the first set of values."""
    finished = result.finished
    timing = sweep_tables.total(result.launches)
    wrong = sweep_tables.verdict(finished.points).startswith("✗")
    if not lens or wrong or not result.launches:
        parts = outcome.of_run(result)
    elif timing:
        parts = outcome.timed("⏱", timing)
    else:
        parts = Part.of(0, f"⏱ {sweep_tables.time_text(result.launches)}")
    every, shown = sweep_tables.timed(finished.points), sweep_tables.shown(finished.points)
    if shown and len(every) > 1:
        place = f"{every.index(shown) + 1} of {len(every)}"
        forms = (f"at {sweep_tables.values_text(shown)} ({place} values)", f"{place} values")
        names = list(shown.values)
        parts += Part.of(1, *forms, *([f"{names[0]}: {place}"] if len(names) == 1 else []))
    if len(result.launches) > 1:
        parts += Part.of(1, f"in {len(result.launches)} launches")
    if shown:
        reached_rates = rates.of(
            shown, sweep_tables.rated_ns(result.launches), finished.device, result.elements
        )
        forms = rates.short(reached_rates)
        if forms and verdict:
            forms += (forms[-1].partition(" (")[0],)
        parts += Part.of(2, *forms)
    return parts


def _launch_occupancy(session: Session, known: KernelStatus) -> list[Part]:
    """Return the theoretical occupancy of the one configuration that ran."""
    assert known.result
    launches = known.result.launches
    main = kernel_status.main_launch(launches)
    arch = architecture_of(known) or session.setup.architecture()
    if main is None or (known.result.through == "spec" and len(launches) > 1):
        return []
    held = kernel_status.launch_occupancy(main, arch, known.result.finished.resources)
    return Part.of(4, f"occ ≤{units.occupancy(held.fraction)}") if held else []


def _static(session: Session, uri: str, known: KernelStatus, *, counted: bool) -> list[Part]:
    """Return `occ 75% · 40 regs · 8 KiB shared` for the instance that is launched. `counted`: the occupancy is shown
    already.
    """
    assert known.figures
    resources, launched = kernel_status.launched_instance(known)
    spills = (resources.spill_stores or 0) + (resources.spill_loads or 0)
    parts = Part.of(1, f"⚠ spills {units.size(spills)}" if spills else "")
    if not counted:
        parts += Part.of(2, *kernel_status.static_occupancy(session, uri, known.kernel, resources)[1:])
    if resources.registers is not None:
        parts += Part.of(9 if counted else 3, f"{resources.registers} regs")
    if shared := (resources.static_shared or 0) + (resources.dynamic_shared or 0):
        parts += Part.of(10 if counted else 3, f"{units.size(shared)} shared")
    if resources.stack and not spills:
        parts += Part.of(10, f"{units.size(resources.stack)} stack")
    every = known.figures.resources
    architectures = {each.architecture for each in every}
    instances = len({(each.symbol, *sorted(each.constants.items())) for each in every})
    parts += _assumed(resources)
    if instances > 1 and not launched:
        tuned = known.kernel.language == "triton"
        named = f"{instances} {'configurations' if tuned else 'instances'}"
        shortest = f"1 of {instances} configs" if tuned else f"1 of {named}"
        parts += Part.of(2, f"most registers of {named}", f"1 of {named}", shortest)
    if not counted:
        parts += Part.of(12 if len(architectures) == 1 else 3, resources.architecture)
    stale = known.figures_stale and not known.stale and uri not in session.compiling
    return parts + Part.of(1, outcome.EDITED if stale else "")


def _assumed(resources: Resources) -> list[Part]:
    """Return `BLOCK=64 assumed`. A guessed size decides the figures, so it comes before most of them; a guessed type
    seldom matters.
    """
    values = {
        name: value.removesuffix(_ASSUMED)
        for name, value in resources.constants.items()
        if value.endswith(_ASSUMED)
    }
    constants = [f"{name}={value}" for name, value in values.items() if _CONSTANT.fullmatch(value)]
    if constants:
        return Part.of(
            2,
            f"{', '.join(constants)} assumed",
            *([f"{constants[0]}, … assumed"] if len(constants) > 1 else []),
            "assumed",
        )
    return Part.of(3, "arguments assumed", "assumed") if values else []


def architecture_of(known: KernelStatus) -> str | None:
    """Return the architecture of the GPU of the last run."""
    device = known.result.finished.device if known.result else None
    return device.capability if device else None


def configuration(launches: Launches) -> str:
    """Return `<<<(262144, 1, 1), (256, 1, 1)>>>` in CUDA's notation, without the default values at the end."""
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
    """Return `-7%` against the version before, or `±` if two runs of the same code may differ as much."""
    if difference.verdict == "inconclusive":
        return "±"
    percent = 100 * difference.change
    return f"{percent:+.0f}%" if abs(percent) >= 10 else f"{percent:+.1f}%"
