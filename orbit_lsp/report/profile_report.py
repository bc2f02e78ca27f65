"""A profile as a report: the bottleneck, its roofline, its lines, the memory, what NVIDIA's rules advise."""

from __future__ import annotations

import time

from orbit_lsp.profile import bottleneck
from orbit_lsp.profile import roofline as rooflines
from orbit_lsp.report import memory_chart, roofline_plot
from orbit_lsp.report.page import Annotated, Block, Facts, Page, Picture, Rows, Weighed
from orbit_lsp.state import fitting, units
from orbit_lsp.state.explanations import STALLS
from orbit_lsp.state.results import Profiled
from orbit_lsp.views import kernel_tables
from orbit_lsp.views.profile import (
    counter_rows,
    profile_hints,
    profile_hover,
    profile_lines,
    roofline_drawing,
)
from orbit_remote.common.messages import Line, Profile

_AROUND = 2
"""Lines of the text that are shown before and after one that has samples."""
_EXCESS = 5.0
"""Per cent of all such traffic of the kernel from which a line says that it need not be."""
_WHAT = ("what", "value", "counter")


def page(profiled: Profiled, kernel: str, path: str) -> Page:
    """`kernel` and `path` name what was profiled; `profiled` has a profile at least."""
    profile = profiled.profiles[0]
    device = profiled.finished.device
    when = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(profiled.at))
    lead = f"{device.name if device else 'GPU not known'} · {when} · {path}"
    title = f"{kernel}: {fitting.fit(profile_hints.parts(profiled, time=True), 100).removeprefix(profile_hints.MARK).strip()}"
    if profile.tier == "times":
        return Page(title, lead, [_without_counters(profiled), _provenance(profiled, path)])
    blocks: list[Block] = [*_summary(profile), *_roofline(profile)]
    blocks += lines(profiled, profile)
    blocks += _memory(profiled, profile)
    if states := _states(profile):
        blocks.append(states)
    if profiled.before and (block := comparison(profiled.before, profiled)):
        blocks.append(block)
    if advice := profile_hover.advice(profile):
        rows = [(units.percent((one.speedup or 0) / 100) if one.speedup is not None else "-", one.scope or "-", one.title or one.rule, one.message) for one in advice]  # fmt: skip
        blocks.append(
            Rows(
                "NVIDIA's rules, by their own estimate of what they would gain",
                ("gain", "of", "rule", "what it says"),
                rows,
            )
        )
    if len(profiled.profiles) > 1:
        blocks.append(_others(profiled))
    return Page(title, lead, [*blocks, _provenance(profiled, path)])


def _summary(profile: Profile) -> list[Block]:
    found = bottleneck.verdict(profile)
    limit = counter_rows.limiters(profile)
    told = (
        [("verdict", found.text), ("because", found.why), ("by", "NVIDIA's rule SOLBottleneck")]
        if found
        else []
    )
    told += [(limit[0], limit[1])] if limit else []
    told += [("not in the roofline", left_out)] if (left_out := roofline_drawing.left_out(profile)) else []
    rows = [
        row
        for wanted in (counter_rows.SPEED, counter_rows.LAUNCH, counter_rows.CLOCKS)
        for row in counter_rows.rows(profile, wanted)
    ]
    return [
        *([Facts("Bottleneck", told)] if told else []),
        Rows("Speed of light and launch", _WHAT, rows),
    ]


def _without_counters(profiled: Profiled) -> Rows:
    known = profile_hover.sections("", profiled, profiled.at, stale=False)
    rows = [row for section in known if isinstance(section, tuple) for row in section[1]]
    return Rows("Times only", ("what", "value", "from"), rows)


def _roofline(profile: Profile) -> list[Block]:
    found = rooflines.of(profile)
    drawn = roofline_plot.svg(found) if found else ""
    if not found or not drawn:
        return []
    said = "The roofs are the peaks at the clocks of this launch."
    rows = [(one.name, roofline_drawing.sentence(found, one), ", ".join(one.metrics)) for one in found.points]
    return [Picture("Roofline", drawn, said), Rows("Operations", _WHAT, rows)]


def _memory(profiled: Profiled, profile: Profile) -> list[Block]:
    rows = counter_rows.rows(profile, counter_rows.MEMORY)
    rows += profile_hover.reached_rows(profiled, profile)
    drawn = memory_chart.svg(profile)
    return [
        *(
            [Picture("Memory", drawn, "Read from right to left, written from left to right.")]
            if drawn
            else []
        ),
        *([Rows("Memory in numbers", _WHAT, rows)] if rows else []),
    ]


def _states(profile: Profile) -> Rows | None:
    rows = [
        (
            state.name,
            units.percent(state.share),
            units.cycles(state.cycles) if state.cycles is not None else "-",
            STALLS.get(state.name, ""),
            state.metric,
        )
        for state in bottleneck.states(profile)
    ]
    header = ("state", "share", "cycles", "a warp that", "counter")
    return Rows("Warp states: the time between two instructions of a warp", header, rows) if rows else None


# -- the lines --------------------------------------------------------------------------------------


def lines(profiled: Profiled, profile: Profile) -> list[Block]:
    """The text that ran with what was counted of its lines, one block a file; what has no text as a table."""
    blocks: list[Block] = []
    by_file: dict[str, list[Line]] = {}
    for line in profile.lines:
        by_file.setdefault(line.file, []).append(line)
    for file, of_file in by_file.items():
        name = file.replace("\\", "/").rpartition("/")[2]
        text = profiled.texts.get(file)
        if text is None:
            rows = [(f"{name}:{one.line}", _percent(one, profile), _note(profile, one)) for one in of_file]
            blocks.append(Rows(f"Lines of {name}", ("line", "samples", "mainly"), rows))
            continue
        said = "as the text was when it ran"
        blocks.append(Annotated(f"Lines of {name}", _weighed(profile, of_file, text), said))
    return blocks


def _weighed(profile: Profile, of_file: list[Line], text: tuple[str, ...]) -> list[Weighed | None]:
    counted = {line.line: line for line in of_file if 0 < line.line <= len(text)}
    shown = sorted(
        {
            number
            for line in counted
            for number in range(line - _AROUND, line + _AROUND + 1)
            if 0 < number <= len(text)
        }
    )
    found: list[Weighed | None] = []
    for number in shown:
        if found and found[-1] and found[-1].number + 1 < number:
            found.append(None)
        line = counted.get(number)
        share = profile_lines.share(line, profile) if line else None
        note = _note(profile, line) if line else ""
        found.append(Weighed(number, text[number - 1].rstrip("\r\n").expandtabs(4), share or None, note))
    return found


def _note(profile: Profile, line: Line) -> str:
    parts: list[str] = []
    if line.samples and (stall := bottleneck.main_stall(line.stalls)):
        parts.append(f"{stall[0]} {units.percent(stall[1] / line.samples)}")
    if line.inside and line.samples:
        places = ", ".join(sorted(line.inside, key=lambda place: -line.inside[place])[:2])
        parts.append(f"{units.percent(sum(line.inside.values()) / line.samples)} of it inlined from {places}")
    parts += profile_lines.warnings(line, profile, _EXCESS)
    return " · ".join(parts)


def _percent(line: Line, profile: Profile) -> str:
    whole = profile.samples or sum(one.samples for one in profile.lines)
    return units.percent(line.samples / whole) if whole and line.samples else ""


# -- against the last one ---------------------------------------------------------------------------


def comparison(before: Profiled, now: Profiled) -> Rows | None:
    """The counters that this page shows, of the last profile and of this one; None where there is no last one."""
    old, new = before.main, now.main
    if old is None or new is None:
        return None
    rows: list[tuple[str, ...]] = []
    told = (bottleneck.verdict(old), bottleneck.verdict(new))
    rows.append(
        (
            "bottleneck",
            told[0].text if told[0] else "-",
            told[1].text if told[1] else "-",
            "",
            "NVIDIA's rule SOLBottleneck",
        )
    )
    for title, name in (*counter_rows.SPEED, *counter_rows.LAUNCH, *counter_rows.MEMORY):
        first, second = old.metrics.get(name), new.metrics.get(name)
        if not (first and second) or first.value == second.value:
            continue
        change = "" if not first.value else f"{100 * (second.value / first.value - 1):+.1f}%"
        rows.append((title, counter_rows.text(first), counter_rows.text(second), change, name))
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(before.at))
    same = "" if before.digest != now.digest else ", of the same code"
    gpus = (before.finished.device, now.finished.device)
    other = f", on {gpus[0].name}" if gpus[0] and gpus[1] and gpus[0].name != gpus[1].name else ""
    title = f"Against the profile of {when}{same}{other}: one launch each, so small changes mean nothing"
    return Rows(title, ("what", "before", "now", "change", "counter"), rows)


def _others(profiled: Profiled) -> Rows:
    rows: list[tuple[str, ...]] = []
    for one in profiled.profiles:
        found = bottleneck.verdict(one)
        rows.append(
            (
                one.name,
                str(one.grid or ""),
                str(one.block or ""),
                units.time(bottleneck.value(one, bottleneck.TIME)),
                found.text if found else "-",
            )
        )
    return Rows("Every launch that was profiled", ("kernel", "grid", "block", "time", "bottleneck"), rows)


def _provenance(profiled: Profiled, path: str) -> Facts:
    profile = profiled.profiles[0]
    rows = [
        ("file", path),
        (
            "counted by",
            f"{profile_hover.source(profile)}, sections of a {'full profile' if profiled.detail == 'full' else 'click'}",
        ),
    ]
    if profiled.report:
        rows.append(("open in Nsight Compute", profile_hover.nsight_command(profiled.report)))
    rows += [
        (name, f"{value} ({source})") for name, value, source in kernel_tables.run_rows(profiled.finished)
    ]
    return Facts("Where it comes from", rows)
