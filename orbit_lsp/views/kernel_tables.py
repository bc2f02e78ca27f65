"""Shows everything known about a kernel as tables."""

from __future__ import annotations

import math
from pathlib import Path

from orbit_lsp.specs import job_builder
from orbit_lsp.state import units
from orbit_lsp.state.results import Profiled, RunResult
from orbit_lsp.state.session import Session, uri_of
from orbit_lsp.views import (
    gpu_table,
    kernel_status,
    labels,
    memory_view,
    rates,
    sweep_tables,
)
from orbit_lsp.views.ab_table import tables as tables_in_turn
from orbit_lsp.views.compiler import gpu_occupancy
from orbit_lsp.views.kernel_status import KernelStatus
from orbit_lsp.views.profile import profile_hover
from orbit_lsp.views.tables import CodeCell, Link, Row, Section
from orbit_remote.common import measure, occupancy
from orbit_remote.common.measurements import Telemetry, Timing
from orbit_remote.common.messages import Cost, Device, Finished, Launches, Resources

HOW_COMPILED = "how the file is compiled"
"""The title of the table that is the same for all kernels of a file."""
_EQUAL = 1.05
"""A cold time is no longer than a warm one if it is at most this many times as long."""
_MOST_REASONS = 6
"""How many inferred flags and folders a hover names."""


def profile_sections(name: str, profiled: Profiled, now: float, *, stale: bool) -> list[Section]:
    """Return a profile with its conditions. `now` is Unix time in seconds."""
    sections = profile_hover.sections(name, profiled, now, stale=stale)
    return [*sections, ("conditions of the profile", run_rows(profiled.finished))]


def content(session: Session, uri: str, known: KernelStatus, now: float) -> list[Section]:
    """Return titled tables, or none if nothing is known yet."""
    sections: list[Section] = []
    name = known.kernel.qualified
    if known.failed and known.failed.standing:
        rows: list[Row] = [
            (f"line {problem.place.line}" if problem.place else "no line", problem.message, "GPU core dump")
            for problem in known.failed.standing
        ]
        sections.append((f"{name}: where its warps stood", rows))
    if known.result:
        mark = ", edited since" if known.stale else ""
        title = f"{name}: run {kernel_status.ago(now - known.result.at)}{mark}"
        rows = [row for launch in known.result.launches for row in _launch_rows(launch, known)]
        if known.result.through == "spec":
            rows += _spec_rows(known.result)
        elif not rows:
            rows = [("launches", "none: the program did not launch it", "CUPTI")]
        if driver := known.result.driver:
            file = Path(session.setup.directory(session.path(uri)), driver.file)
            rows.append(("launched by", Link(driver.id, uri_of(str(file))), driver.kind))
        sections.append((title, rows + run_rows(known.result.finished)))
        if known.result.through == "spec" and (
            table := sweep_tables.table(known.result, f"{name}: every run")
        ):
            sections.append(table)
        sections += [table for launch in known.result.launches if (table := sweep_tables.tuning(launch))]
    if known.profile:
        sections += profile_sections(name, known.profile, now, stale=known.profile_stale)
    if checked := memory_view.section(session, uri, known, now):
        sections.append(checked)
    if comparison := session.results.multi_gpu.get(known.target):
        stale = comparison.digest != known.digest
        sections.append(gpu_table.table(comparison, name, now, stale=stale))
    if in_turn := session.results.ab.get(known.target):
        stale = in_turn.digest != known.digest
        sections += tables_in_turn(name, in_turn, now, stale=stale)
    if known.figures:
        mark = " (edited since)" if known.figures_stale else ""
        for resources in known.figures.resources:
            title = f"{resources.name}, compiled for {resources.architecture}{mark}"
            sections.append((title, _resource_rows(session, uri, known, resources)))
    sections += gpu_occupancy.sections(session, uri, known)
    if not sections and (frozen := session.freeze(uri)) and (why := job_builder.while_running(frozen)):
        return [(known.kernel.qualified, [("figures", why, "")])]
    if sections and (rows := compilation_rows(session, uri)):
        sections.append((HOW_COMPILED, rows))
    return sections


def compilation_rows(session: Session, uri: str) -> list[Row]:
    """Return where the flags of a CUDA file come from, and each flag that was inferred with its reason. Return none
    if it is compiled by a plain call of nvcc.
    """
    compilation = session.files[uri].compilation
    named = compilation.architectures or compilation.left_out or compilation.nvcc_not_started
    if not (compilation.flags or compilation.missing or named):
        return []
    rows: list[Row] = [("flags", compilation.source, "--flag and the setting `nvcc_flags` add to them")]
    if source := session.files[uri].source:
        rows.insert(0, ("through", Path(source[0]).name, "it includes this file"))
    rows += [(reason.what, reason.why, "inferred") for reason in compilation.reasons[:_MOST_REASONS]]
    if compilation.nvcc_not_started:
        why = f"not {compilation.nvcc_not_started}, as the project: it is started in a trusted workspace only"
        rows.append(("compiler", why, "figures may differ"))
    more = len(compilation.reasons) - _MOST_REASONS
    rows += (
        [("", f"and {more} more: orbit-lsp doctor {Path(session.path(uri)).name}", "")] if more > 0 else []
    )
    for reason in compilation.left_out[:_MOST_REASONS]:
        rows.append((reason.what, f"left out: {reason.why}", "figures may differ"))
    return rows


def _spec_rows(result: RunResult) -> list[Row]:
    """Return what a launch spec adds: rates and checks, and the change to the version before."""
    finished = result.finished
    rows: list[Row] = []
    if point := sweep_tables.shown(finished.points):
        reached_rates = rates.of(
            point, sweep_tables.rated_ns(result.launches), finished.device, result.elements
        )
        rows += [(f"{rate.kind} rate", *rates.explained(rate)) for rate in reached_rates]
        if point.footprint is not None:
            rows.append(("memory of its arguments", units.size(point.footprint), "launch spec"))
    if result.difference:
        sentence = labels.change(result.difference)
        if result.difference.verdict == "inconclusive":
            sentence = "no more than two runs of the same code may differ"
        rows.append(("against the version before", sentence, "two runs, 99 % intervals of the medians"))
    return rows + sweep_tables.check_rows(sweep_tables.telling(finished.points))


def _launch_rows(launches: Launches, known: KernelStatus) -> list[Row]:
    timing = launches.timing
    rows: list[Row] = [
        (CodeCell(f"{launches.name}{labels.configuration(launches)}"), f"{launches.count} launches", "CUPTI")
    ]
    rows.append(("time, median", f"{units.timing(timing)} ({timing.label})", timing.clock))
    if launches.warm:
        warm = launches.warm
        rows.append(("time, median, warm", f"{units.timing(warm)} ({warm.label})", warm.clock))
        if timing.under is None and warm.under is None:
            rows.append(("cold or warm", _which(timing, warm), "orbit"))
    if timing.stopped:
        rows.append(("measured until", _stopped(timing), "orbit"))
    if timing.dropped:
        left_out = f"{timing.dropped} below {measure.CLOCK_FLOOR:.0%} of the default clock"
        rows.append(("launches left out", left_out, "NVML"))
    if timing.sm_clock_mhz is not None:
        rows.append(("SM clock while it ran", f"{timing.sm_clock_mhz:.0f} MHz", "the SMs' cycle counters"))
    if timing.under is None:
        rows += _spread_rows(timing)
    if timing.first is not None:
        rows.append(("first launch", units.time(timing.first), timing.clock))
    if held := _occupancy(launches, known):
        value = (
            f"≤{units.occupancy(held.fraction)}{kernel_status.limited_by(held)}, {held.blocks} blocks per SM"
        )
        rows.append(("occupancy, theoretical", value, "derived from the launch"))
    if launches.registers is not None:
        rows.append(("registers per thread", f"{launches.registers} allocated", "CUPTI"))
    if launches.static_shared is not None and launches.dynamic_shared is not None:
        value = f"{units.size(launches.static_shared)} static, {units.size(launches.dynamic_shared)} dynamic"
        rows.append(("shared memory per block", value, "CUPTI"))
    if launches.local_per_thread:
        rows.append(("local memory per thread", units.size(launches.local_per_thread), "CUPTI"))
    rows += [(name, value, "Triton") for name, value in launches.constants.items()]
    return rows


def _which(cold: Timing, warm: Timing) -> str:
    """Return which of the two times counts where the kernel is used. No measurement can tell that."""
    ratio = cold.median / warm.median if warm.median else math.inf
    if ratio <= _EQUAL:
        return f"either: the cold time is at most {_EQUAL - 1:.0%} longer"
    return (
        f"cold ({ratio:.2g} times as long) if much is read or written between two launches, as in a model; "
        "warm if the kernel before leaves the data in L2"
    )


def _stopped(timing: Timing) -> str:
    """Return why no more launches were made: the median is known well enough, or a limit of launches or time was
    reached.
    """
    error = f"the median is known to ±{units.percent(timing.error)}" if timing.error is not None else ""
    if timing.stopped == "precise":
        return f"n={timing.n}: {error or 'the median is known well enough'}"
    return f"n={timing.n}, the most that is made" + (f": {error}" if error else "")


def _spread_rows(timing: Timing) -> list[Row]:
    """Return how the launches spread around their median, if there are enough of them."""
    rows: list[Row] = []
    if timing.low is not None and timing.high is not None:
        rows.append(
            ("time, 20 % to 80 %", f"{units.time(timing.low)} to {units.time(timing.high)}", timing.clock)
        )
    if timing.mean is not None and timing.deviation is not None:
        mean = f"{units.time(timing.mean)}, standard deviation {units.time(timing.deviation)}"
        rows.append(("time, mean", mean, timing.clock))
    late = [
        (f"{percent} %", value)
        for percent, value in ((95, timing.p95), (99, timing.p99))
        if value is not None
    ]
    if late:
        value = ", ".join(units.time(value) for _, value in late)
        rows.append((f"time, {' and '.join(name for name, _ in late)}", value, timing.clock))
    return rows


def _occupancy(launches: Launches, known: KernelStatus) -> occupancy.Occupancy | None:
    capability = labels.architecture_of(known)
    assert known.result
    compiled = known.result.finished.resources
    return kernel_status.launch_occupancy(launches, capability, compiled) if capability else None


def run_rows(finished: Finished) -> list[Row]:
    """Return which GPU was used, under which conditions, with which tools."""
    rows: list[Row] = []
    if finished.device:
        rows += _device_rows(finished.device)
    if finished.telemetry:
        rows += _telemetry_rows(finished.telemetry)
    if finished.outcome != "ok":
        why = f": {finished.failure.message}" if finished.failure else ""
        rows.append(("outcome", f"{finished.outcome}{why}", "program"))
    if finished.run_s is not None:
        rows.append(("program's wall time", f"{finished.run_s:.2f} s", "host clock"))
    rows += [] if finished.cost is None else _cost_rows(finished.cost)
    rows += [("remark", remark, "orbit") for remark in finished.remarks]
    versions = ", ".join(f"{name} {version}" for name, version in finished.toolchain.items())
    if versions:
        rows.append(("toolchain", versions, "installed"))
    return rows


def _cost_rows(spent: Cost) -> list[Row]:
    seconds = f"{spent.seconds:.2f} s of {spent.gpu}"
    if spent.usd is None:
        return [("rented", f"{seconds}; its price is not known", "host clock")]
    rows: list[Row] = [("cost", f"{units.money(spent.usd)} for {seconds}", spent.rates)]
    if spent.idle_usd is not None:
        value = f"{units.money(spent.idle_usd)} more if the container idles to its end"
        rows.append(("cost of waiting", value, spent.rates))
    return rows


def _device_rows(device: Device) -> list[Row]:
    driver = f", driver {device.driver}" if device.driver else ""
    return [("GPU", f"{device.name}{driver}", "NVML")]


def _telemetry_rows(telemetry: Telemetry) -> list[Row]:
    rows: list[Row] = []
    source = f"NVML, n={telemetry.samples}"
    if telemetry.sm_clock_mhz:
        low, median, high = telemetry.sm_clock_mhz
        rows.append(("SM clock set", f"{median:.0f} MHz ({low:.0f} to {high:.0f})", source))
    if telemetry.memory_clock_mhz:
        rows.append(("memory clock", f"{telemetry.memory_clock_mhz[1]:.0f} MHz", source))
    if telemetry.throttle_reasons is not None:
        rows.append(("throttling", ", ".join(telemetry.throttle_reasons) or "none", source))
    if telemetry.temperature_c:
        rows.append(("temperature", f"{telemetry.temperature_c[2]:.0f} °C at most", source))
    if telemetry.power_w:
        rows.append(("power", f"{telemetry.power_w[2]:.0f} W at most", source))
    if telemetry.utilization:
        low, median, high = telemetry.utilization
        rows.append(("GPU in use", f"{median:.0f} % of the time ({low:.0f} to {high:.0f})", source))
    if telemetry.energy_j is not None and telemetry.energy_step_j:
        rows.append(("energy, the whole GPU", _energy(telemetry, telemetry.energy_step_j), source))
    if telemetry.memory_used is not None:
        rows.append(("memory used", units.size(telemetry.memory_used), source))
    return rows


def _energy(telemetry: Telemetry, step_j: float) -> str:
    """Return `12.3 J, to 0.4 J`, and the energy of a launch if one kernel had the GPU nearly all of the time."""
    total = telemetry.energy_j or 0.0
    text = f"{total:.3g} J, to {step_j:.2g} J"
    if telemetry.launch_energy_j is None:
        return text
    joules, exact_to = telemetry.launch_energy_j
    return f"{text}; {1000 * joules:.3g} mJ a launch, to {1000 * exact_to:.2g} mJ"


def _resource_rows(session: Session, uri: str, known: KernelStatus, resources: Resources) -> list[Row]:
    rows: list[Row] = []
    by_nvcc = known.kernel.language == "cuda" or known.kernel.dsl in job_builder.IN_STRINGS
    source = "ptxas" if by_nvcc else "Triton's compiler"
    amounts = (
        ("registers per thread", resources.registers, str),
        ("static shared memory", resources.static_shared, units.size),
        ("dynamic shared memory", resources.dynamic_shared, units.size),
        ("stack per thread", resources.stack, units.size),
        ("spill stores", resources.spill_stores, units.size),
        ("spill loads", resources.spill_loads, units.size),
        ("barriers", resources.barriers, str),
    )
    rows += [(name, show(value), source) for name, value, show in amounts if value is not None]
    if reached := kernel_status.static_occupancy(session, uri, known.kernel, resources):
        rows.append(("occupancy, theoretical", reached[0].removeprefix("occ "), "derived from the above"))
    rows += [(name, value, source) for name, value in resources.constants.items()]
    return rows
