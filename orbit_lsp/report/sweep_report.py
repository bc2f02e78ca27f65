"""The last run of a launch spec as a report: plots, the table, the checks, GPU and tools."""

from __future__ import annotations

import textwrap
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from orbit_lsp.report.page import Block, Facts, Page, Rows, Source
from orbit_lsp.report.plot import Mark, Plot, Series
from orbit_lsp.state import units
from orbit_lsp.state.results import Result
from orbit_lsp.views import kernel_tables, rates, sweep_tables
from orbit_remote.common.messages import Finished, Point


def page(result: Result, kernel: str, path: str) -> Page:
    """`kernel` and `path` name what was run; everything else is in the result."""
    finished = result.finished
    blocks: list[Block] = [*_plots(result, kernel)]
    if table := sweep_tables.table(result, "Every run"):
        blocks.append(Rows(table.title, table.header, table.rows))
    else:
        blocks.append(_single(result))
    if checks := sweep_tables.check_rows(finished.points):
        blocks.append(Rows("Checks", ("what", "how it went", "when"), checks))
    blocks += [_provenance(result, path), Source("Launch spec", textwrap.dedent(result.lines))]
    when = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(result.at))
    gpu = finished.device.name if finished.device else "GPU not known"
    return Page(kernel, f"{gpu} · {when} · {path}", blocks)


def _single(result: Result) -> Facts:
    """The one set of values of a spec without a sweep."""
    finished = result.finished
    rows: list[tuple[str, str]] = []
    for one in result.launches:
        name = f"{one.name}, {one.timing.label}" if len(result.launches) > 1 else one.timing.label
        rows.append((name, f"{units.time(one.timing.median)} {units.spread(one.timing.spread)}".strip()))
        if one.warm:
            rows.append(
                (one.warm.label, f"{units.time(one.warm.median)} {units.spread(one.warm.spread)}".strip())
            )
    if point := sweep_tables.shown(finished.points):
        found = rates.of(point, sweep_tables.total_ns(point.launches), finished.device, result.elements)
        rows += [(f"{one.kind} rate", rates.explained(one)[0]) for one in found]
    return Facts("Times", rows or [("time", "not timed")])


def _provenance(result: Result, path: str) -> Facts:
    finished: Finished = result.finished
    rows = [("file", path), ("outcome", finished.outcome)]
    rows += [(name, f"{value} ({source})") for name, value, source in kernel_tables.run_rows(finished)]
    labels = {one.timing.label for point in finished.points for one in point.launches}
    rows += [("times are", "medians of " + "; ".join(sorted(labels)))] if labels else []
    return Facts("Where it comes from", rows)


# -- plots ------------------------------------------------------------------------------------------


def _plots(result: Result, kernel: str) -> list[Plot]:
    """Time, and each declared rate, over the swept name that is a number; none for a single set of values."""
    timed = [one for one in sweep_tables.timed(result.finished.points) if one.launches]
    names = list(dict.fromkeys(name for one in timed for name in one.values))
    across = _across(timed, names)
    if len(timed) < 2 or across is None:
        return []
    place, ticks = _places(timed, across)
    groups: dict[str, list[Point]] = defaultdict(list)
    for one in timed:
        groups[", ".join(f"{name} = {one.values.get(name, '')}" for name in names if name != across)].append(
            one
        )

    def drawn(title: str, y: str, value: Callable[[Point], Mark | None], write: Callable[[float], str], limit: rates.Rate | None = None) -> Plot:  # fmt: skip
        made = [
            Series(name, [mark for one in group if (mark := value(one))]) for name, group in groups.items()
        ]
        peak = limit.peak if limit else None
        text = f"peak, {write(peak.rate)} of {limit.limit}" if peak and limit else ""
        return Plot(title, across or "", y, made, write, ticks, peak.rate if peak else None, text)

    def time_of(one: Point) -> Mark | None:
        total = sweep_tables.total_ns(one.launches)
        timing = one.launches[0].timing
        bounds = (timing.low, timing.high) if len(one.launches) == 1 else (None, None)
        text = f"{sweep_tables.values_text(one)}: {sweep_tables.time_text(one.launches)}"
        return Mark(place(one), total, text, *bounds) if total else None

    found = [drawn(f"Time of {kernel}", "time", time_of, units.time)]
    for kind in ("memory", "arithmetic"):
        every = {id(one): rate for one in timed if (rate := _rate(result, one, kind))}
        true = [rate for rate in every.values() if rate.suspect is None]
        if not true:
            continue  # a rate that cannot be true is not drawn as if it were

        def rate_of(one: Point, every: dict[int, rates.Rate] = every) -> Mark | None:
            rate = every.get(id(one))
            if rate is None or rate.suspect:
                return None
            share = f", {units.percent(rate.share)} of peak" if rate.share is not None else ""
            return Mark(place(one), rate.value, f"{sweep_tables.values_text(one)}: {rate.text}{share}")

        write = units.bandwidth if kind == "memory" else units.flops
        near = max((rate.share or 0 for rate in true), default=0) >= _NEAR
        title = (
            "Memory rate, from the declared bytes"
            if kind == "memory"
            else "Arithmetic rate, from the declared flops"
        )
        found.append(drawn(title, f"{kind} rate", rate_of, write, true[0] if near else None))
    return found


_NEAR = 0.1
"""Below this share the peak is too far away to be drawn: the points would lie on the floor."""


def _rate(result: Result, one: Point, kind: str) -> rates.Rate | None:
    found = rates.of(one, sweep_tables.total_ns(one.launches), result.finished.device, result.elements)
    return next((rate for rate in found if rate.kind == kind), None)


def _across(timed: Sequence[Point], names: list[str]) -> str | None:
    """The first name with several values, a number before words."""
    several = [name for name in names if len({one.values.get(name) for one in timed}) > 1]
    numbers = [
        name for name in several if all(_number(one.values.get(name, "")) is not None for one in timed)
    ]
    return next(iter(numbers or several), None)


def _places(timed: Sequence[Point], across: str) -> tuple[Callable[[Point], float], tuple[str, ...]]:
    """Where a point stands on the x axis, and the axis' words where its values are no numbers."""
    written = [one.values.get(across, "") for one in timed]
    if all(_number(text) is not None for text in written):
        return lambda one: _number(one.values.get(across, "")) or 0.0, ()
    words = tuple(dict.fromkeys(written))
    return lambda one: float(words.index(one.values.get(across, ""))), words


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
