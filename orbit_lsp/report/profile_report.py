"""A profile as a report. The verdict, the lines and the roofline are open; memory, history and all counters are
folded.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from orbit_lsp.history.history_store import HistoryEntry
from orbit_lsp.profile import bottleneck
from orbit_lsp.profile import roofline as rooflines
from orbit_lsp.report import history_report, memory_chart, roofline_plot, source_lines, telemetry_plot
from orbit_lsp.report.page import Block, FactList, Page, PageAnswer, Picture, Rows
from orbit_lsp.state import fitting, units
from orbit_lsp.state.results import Profiled
from orbit_lsp.views import kernel_tables
from orbit_lsp.views.explain.explanations import STALLS
from orbit_lsp.views.profile import (
    counter_rows,
    next_steps,
    profile_hints,
    profile_hover,
    roofline_drawing,
)
from orbit_remote.common.messages import Profile

_SECTIONS = {
    "click": "sections of a click",
    "full": "sections of a full profile",
    "imported": "in a profile that another program made",
}
_WHAT = ("what", "value", "counter")


def page(profiled: Profiled, kernel: str, path: str, past: Sequence[HistoryEntry] = ()) -> Page:
    """Make the page. `kernel` and `path` name what was profiled. `profiled` has at least one profile; `past` are the
    kernel's runs.
    """
    profile = profiled.profiles[0]
    device = profiled.finished.device
    when = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(profiled.at))
    answer = _answer(profile)
    parts = profile_hints.parts(profiled, time=True, verdict=answer is None)
    first, *facts = fitting.fit(parts, 100).removeprefix(profile_hints.MARK).strip().split(" · ")
    title = f"{kernel}: {first}"
    lead = " · ".join([*facts, device.name if device else "GPU not known", when])
    if profile.tier == "times":
        return Page(title, lead, [_without_counters(profiled), _provenance(profiled, path)])
    source, *more_source = source_lines.blocks(profiled, profile) or [None]
    roofline, *operations = _roofline(profile) or [None]
    pictures = [block for block in (source, roofline) if block]
    folded: list[Block | None] = [
        *_memory(profiled, profile),
        *history_report.plots(past, kernel),
        *more_source,
        *operations,
        *_counters(profile),
        _states(profile),
        comparison(profiled.before, profiled) if profiled.before else None,
        _advice(profile),
        launches(profiled.profiles) if len(profiled.profiles) > 1 else None,
        *telemetry_plot.plots(profiled.finished.telemetry),
        _provenance(profiled, path),
    ]
    return Page(title, lead, pictures, [block for block in folded if block], answer)


def _answer(profile: Profile) -> PageAnswer | None:
    verdict = bottleneck.verdict(profile)
    if verdict is None:
        return None
    return PageAnswer(verdict.text, verdict.why.partition("; its busiest part")[0], next_steps.steps(profile))


def _advice(profile: Profile) -> Rows | None:
    rows = [
        (
            units.percent(advice.speedup / 100) if advice.speedup is not None else "-",
            advice.scope or "-",
            advice.title or advice.rule,
            advice.message,
        )
        for advice in profile_hover.advice(profile)
    ]
    title = "NVIDIA's rules, by their own estimate of what they would gain"
    return Rows(title, ("gain", "of", "rule", "what it says"), rows) if rows else None


def _counters(profile: Profile) -> list[Block]:
    verdict = bottleneck.verdict(profile)
    limit = counter_rows.limiters(profile)
    known = (
        [("verdict", verdict.text), ("because", verdict.why), ("by", "NVIDIA's rule SOLBottleneck")]
        if verdict
        else []
    )
    known += [(limit[0], limit[1])] if limit else []
    known += [("not in the roofline", left_out)] if (left_out := roofline_drawing.left_out(profile)) else []
    rows = [
        row
        for wanted in (counter_rows.SPEED, counter_rows.LAUNCH, counter_rows.CLOCKS)
        for row in counter_rows.rows(profile, wanted)
    ]
    return [
        Rows("Speed of light and launch", _WHAT, rows),
        *([FactList("Bottleneck", known)] if known else []),
    ]


def _without_counters(profiled: Profiled) -> Rows:
    known = profile_hover.sections("", profiled, profiled.at, stale=False)
    rows = [row for section in known if isinstance(section, tuple) for row in section[1]]
    return Rows("Times only", ("what", "value", "from"), rows)


def _roofline(profile: Profile) -> list[Block]:
    roofline = rooflines.of(profile)
    drawn = roofline_plot.svg(roofline) if roofline else ""
    if not roofline or not drawn:
        return []
    remark = "The roofs are the peaks at the clocks of this launch."
    rows = [
        (point.name, roofline_drawing.sentence(roofline, point), ", ".join(point.metrics))
        for point in roofline.points
    ]
    return [Picture("Roofline", drawn, remark), Rows("Operations", _WHAT, rows)]


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


# -- against the last one ---------------------------------------------------------------------------


def comparison(before: Profiled, now: Profiled) -> Rows | None:
    """Compare the counters of this page with those of the last profile. Return None if there is no last one."""
    old, new = before.main, now.main
    if old is None or new is None:
        return None
    rows: list[tuple[str, ...]] = []
    verdicts = (bottleneck.verdict(old), bottleneck.verdict(new))
    rows.append(
        (
            "bottleneck",
            verdicts[0].text if verdicts[0] else "-",
            verdicts[1].text if verdicts[1] else "-",
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


def launches(profiles: Sequence[Profile]) -> Rows:
    rows: list[tuple[str, ...]] = []
    for profile in profiles:
        verdict = bottleneck.verdict(profile)
        rows.append(
            (
                profile.name,
                str(profile.grid or ""),
                str(profile.block or ""),
                units.time(bottleneck.value(profile, bottleneck.TIME)),
                verdict.text if verdict else "-",
            )
        )
    return Rows("Every launch that was profiled", ("kernel", "grid", "block", "time", "bottleneck"), rows)


def _provenance(profiled: Profiled, path: str) -> FactList:
    profile = profiled.profiles[0]
    rows = [
        ("file", path),
        (
            "counted by",
            f"{profile.source}, {_SECTIONS[profiled.detail]}",
        ),
    ]
    if profiled.report:
        rows.append(("open in Nsight Compute", profile_hover.nsight_command(profiled.report)))
    rows += [
        (name, f"{value} ({source})") for name, value, source in kernel_tables.run_rows(profiled.finished)
    ]
    return FactList("Where it comes from", rows)
