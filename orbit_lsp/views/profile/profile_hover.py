"""Shows a profile in full: everything on its kernel's signature, and on a line what was counted there.

Every number has NVIDIA's name of its counter, and the unit of the report.
"""

from __future__ import annotations

import re
from pathlib import Path

from orbit_lsp.profile import bottleneck, dump_files
from orbit_lsp.state import units
from orbit_lsp.state.results import Profiled
from orbit_lsp.state.session import Session
from orbit_lsp.views import kernel_status
from orbit_lsp.views.explain.explanations import COUNTERS, STALLS
from orbit_lsp.views.profile import counter_rows, profile_hints, profile_lines, roofline_drawing
from orbit_lsp.views.profile.counter_rows import Row
from orbit_lsp.views.profile.profile_lines import PlacedLine
from orbit_lsp.views.tables import CodeCell, Drawing, Table
from orbit_remote.common.measurements import Advice, Line
from orbit_remote.common.messages import Profile

Section = tuple[str, list[Row]] | Table | Drawing
_STATES = 6
_LINES = 8
_SAMPLES = "smsp__pcsamp_sample_count"


def sections(name: str, profiled: Profiled, now: float, *, stale: bool) -> list[Section]:
    """Return a profile as titled tables. `now` is Unix time in seconds."""
    mark = ", edited since" if stale else ""
    verb = "a profile imported" if profiled.detail == "imported" else "profiled"
    title = f"{name}: {verb} {kernel_status.ago(now - profiled.at)}{mark}"
    profile = profiled.main
    if profile is None:
        return [(title, [("launches", "none: the program did not launch it", "Nsight Compute")])]
    if profile.tier == "times":
        return [(title, _times(profiled, profile))]
    shown: list[Section] = [(title, _summary(profiled, profile))]
    if drawing := roofline_drawing.drawing(profile):
        shown.append(drawing)
    if memory := counter_rows.rows(profile, counter_rows.MEMORY):
        shown.append(("memory", memory + reached_rows(profiled, profile)))
    if states := state_rows(profile)[:_STATES]:
        shown.append(("warp states: where the time between two instructions of a warp goes", states))
    if hot := hot_lines(profiled, profile):
        shown.append(hot)
    if advice := advice_rows(profile):
        shown.append(("NVIDIA's rules, by their own estimate of what they would gain", advice))
    return shown


def _summary(profiled: Profiled, profile: Profile) -> list[Row]:
    rows: list[Row] = [(CodeCell(profile.name), _launch(profile), profile.source)]
    if verdict := bottleneck.verdict(profile):
        rows.append(("bottleneck", f"{verdict.text}: {verdict.why}", "NVIDIA's rule SOLBottleneck"))
    rows += counter_rows.rows(profile, counter_rows.SPEED)
    rows += counter_rows.rows(profile, counter_rows.LAUNCH)
    if limit := counter_rows.limiters(profile):
        rows.append(limit)
    rows += counter_rows.rows(profile, counter_rows.CLOCKS)
    if profile.samples and not profile.lines:
        rows.append(("lines", "none: the code that ran has no line information", profile.source))
    if left_out := roofline_drawing.left_out(profile):
        rows.append(("not in the roofline", left_out, CodeCell(bottleneck.TENSOR)))
    if profiles := profiled.profiles[1:]:
        rows.append(
            ("other launches", f"{len(profiles)}, shorter than this one; the report has them", "orbit")
        )
    if levels := dump_files.levels(profiled):
        made = ", ".join(dump_files.TITLES[level] for level in levels)
        rows.append(("what the compiler made of it", f"{made}: a code action opens them", "orbit.openIr"))
    if profiled.report:
        rows.append(("report", f"{nsight_command(profiled.report)} opens it in Nsight Compute", "orbit"))
    return rows


def reached_rows(profiled: Profiled, profile: Profile) -> list[Row]:
    """Return the bandwidth against what a calibration reached on exactly this GPU. Return none if there was no
    calibration yet.
    """
    moved = bottleneck.value(profile, "dram__bytes.sum.per_second")
    reached = profiled.finished.device.reached.get("dram") if profiled.finished.device else None
    if moved is None or not reached:
        return []
    value = f"{units.percent(moved / reached)} of {units.bandwidth(reached)}"
    return [("of what this GPU was measured to reach", value, "orbit's calibration")]


def nsight_command(report: Path) -> str:
    """Return the command that opens a report, for a shell."""
    path = str(report)
    quoted = path if re.fullmatch(r"[\w./:\\-]+", path) else f'"{path}"'
    return f"ncu-ui {quoted}"


def _launch(profile: Profile) -> str:
    shape = f"<<<{_dim(profile.grid)}, {_dim(profile.block)}>>>, " if profile.grid and profile.block else ""
    return f"{shape}launch {profile.launch + 1} with this configuration, replayed to read all counters"


def _dim(size: tuple[int, int, int]) -> str:
    x, y, z = size
    return str(x) if (y, z) == (1, 1) else f"({x}, {y})" if z == 1 else f"({x}, {y}, {z})"


def _times(profiled: Profiled, profile: Profile) -> list[Row]:
    """Return the rows of a profile without counters, with the reason."""
    rows: list[Row] = [("counters", f"none: {profile.why}" if profile.why else "none", "Nsight Compute")]
    launches = profile_hints.launched(profiled, profile)
    if launches is None:
        return rows
    timing = launches.timing
    rows.append(
        ("time, median", f"{units.timing(timing)} ({timing.label})", timing.clock)
    )  # fmt: skip
    device = profiled.finished.device
    if device and device.capability:
        held = kernel_status.launch_occupancy(launches, device.capability, profiled.finished.resources)
        if held:
            value = f"≤{units.occupancy(held.fraction)}{kernel_status.limited_by(held)}"
            rows.append(("occupancy, theoretical", value, "derived from the launch"))
    if launches.registers is not None:
        rows.append(("registers per thread", f"{launches.registers} allocated", "CUPTI"))
    return rows


def state_rows(profile: Profile) -> list[Row]:
    """Return the warp states, the greatest first."""
    return [
        (
            state.name,
            units.percent(state.share)
            + (f", {units.cycles(state.cycles)} cycles" if state.cycles is not None else "")
            + (f": {STALLS[state.name]}" if state.name in STALLS else ""),
            CodeCell(state.metric),
        )
        for state in bottleneck.states(profile)
        if state.share >= 0.005
    ]


def hot_lines(profiled: Profiled, profile: Profile) -> Table | None:
    """Return the lines with most samples, numbered as in the text that ran."""
    whole = profile.samples or sum(line.samples for line in profile.lines)
    if not whole:
        return None
    hot = sorted((line for line in profile.lines if line.samples), key=lambda line: -line.samples)[:_LINES]
    rows: list[tuple[str, ...]] = []
    for line in hot:
        stall = bottleneck.main_stall(line.stalls)
        place = f"{line.file.replace(chr(92), '/').rpartition('/')[2]}:{line.line}"
        row = (place, units.percent(line.samples / whole), stall[0] if stall else "issuing")
        rows.append((*row, text_of(profiled, line)))
    if not rows:
        return None
    without = whole - sum(line.samples for line in profile.lines)
    left = f", {units.percent(without / whole)} of them in no line" if without > 0 else ""
    return Table(
        f"lines by their share of {whole:,} warp samples{left}",
        ("line", "samples", "main stall", "text"),
        tuple(rows),
    )


def text_of(profiled: Profiled, line: Line) -> str:
    """Return the line as it was when it ran. Return "" if its file's text is not known."""
    text = profiled.texts.get(line.file, ())
    return text[line.line - 1].strip() if 0 < line.line <= len(text) else ""


def advice_rows(profile: Profile) -> list[Row]:
    return [(rule.title or rule.rule, _gain(rule) + rule.message, rule.rule) for rule in advice(profile)]


def advice(profile: Profile) -> list[Advice]:
    """Return the advice by its estimated speed-up. Advice without an estimate comes last."""
    return sorted(
        profile.advice, key=lambda rule: -1.0 if rule.speedup is None else rule.speedup, reverse=True
    )


def _gain(rule: Advice) -> str:
    if rule.speedup is None:
        return ""
    what = "of the part it speaks of" if rule.scope == "local" else "of the kernel"
    amount = f"about {rule.speedup:.0f} %" if rule.speedup >= 1 else "under 1 %"
    return f"{amount} {what}: "


# -- one line ---------------------------------------------------------------------------------------


def of_line(session: Session, uri: str, line: int) -> list[Section]:
    """Return what was counted on this line of the present text, kernel by kernel. Return none if nothing was."""
    return [
        (_title(placed), rows)
        for placed in profile_lines.at(session, uri, line)
        if (rows := line_rows(placed))
    ]


def _title(placed: PlacedLine) -> str:
    part = bottleneck.share(placed.of, placed.profile)
    sentence = (
        f": {units.percent(part)} of the warp samples" if part is not None and placed.of.samples else ""
    )
    return f"{placed.target.key}, this line{sentence}" + (
        ", the kernel was edited since" if placed.stale else ""
    )


def line_rows(placed: PlacedLine) -> list[Row]:
    line = placed.of
    rows: list[Row] = []
    if line.samples:
        whole = placed.profile.samples or sum(other.samples for other in placed.profile.lines)
        rows.append(_counted(_SAMPLES, f"{line.samples:,} of {whole:,}"))
    for reason, samples in sorted(line.stalls.items(), key=lambda stall: -stall[1]):
        if samples and samples >= 0.01 * line.samples:
            name = reason.replace("_", " ")
            meaning = f": {STALLS[name]}" if name in STALLS else ""
            value = f"{units.percent(samples / line.samples)}, {samples:,} samples{meaning}"
            rows.append((name, value, CodeCell(f"smsp__pcsamp_warps_issue_stalled_{reason}")))
    if line.inside and line.samples:
        part = sum(line.inside.values()) / line.samples
        rows.append(("in inlined code", f"{units.percent(part)} of its samples", "line table"))
    for place, samples in sorted(line.inside.items(), key=lambda inside: -inside[1])[:_LINES]:
        rows.append(
            (
                f"inlined from {place}",
                f"{units.percent(samples / line.samples)}, {samples:,} samples",
                "line table",
            )
        )
    if line.instructions is not None:
        rows.append(_counted("inst_executed", f"{line.instructions:,}, counted once for each warp"))
    rows += _traffic(line)
    return rows


def _traffic(line: Line) -> list[Row]:
    rows: list[Row] = []
    if line.sectors:
        ideal = "" if line.ideal_sectors is None else f", {line.ideal_sectors:,} would do"
        rows.append(
            _counted("memory_l2_theoretical_sectors_global", f"{line.sectors:,} sectors of 32 bytes{ideal}")
        )
    if line.wavefronts:
        ideal = (
            ""
            if line.ideal_wavefronts is None
            else f", {line.ideal_wavefronts:,} would do without bank conflicts"
        )
        rows.append(_counted("memory_l1_wavefronts_shared", f"{line.wavefronts:,} passes{ideal}"))
    if line.local_sectors:
        rows.append(
            _counted(
                "memory_l2_theoretical_sectors_local",
                f"{line.local_sectors:,} sectors: spills, or arrays that are not in registers",
            )
        )
    return rows


def _counted(name: str, value: str) -> Row:
    return (COUNTERS[name][0], value, CodeCell(name))
