"""The last run of a kernel as a report: plots, the table, the checks, GPU and tools."""

from __future__ import annotations

import textwrap
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from orbit_lsp.report import telemetry_plot
from orbit_lsp.report.page import FactList, Page, PageAnswer, Rows, SourceText
from orbit_lsp.report.plot import Mark, Plot, Series
from orbit_lsp.state import fitting, units
from orbit_lsp.state.results import RunResult
from orbit_lsp.views import kernel_tables, rates, sweep_tables
from orbit_lsp.views.answer import outcome, summary_lines
from orbit_remote.common.messages import Finished, Point

_ROWS = 6
"""Of a table that is open; a longer one is folded: the plots have its points."""


def page(result: RunResult, kernel: str, path: str) -> Page:
    """Make the page. `kernel` and `path` name what ran; everything else is in the result."""
    finished = result.finished
    table = sweep_tables.table(result, "Every run")
    tables = [Rows(table.title, table.header, table.rows) if table else _single(result)]
    if checks := sweep_tables.check_rows(finished.points):
        tables.append(Rows("Checks", ("what", "how it went", "when"), checks))
    blocks = [*_plots(result, kernel), *(each for each in tables if len(each.rows) <= _ROWS)]
    folded = [
        *(each for each in tables if len(each.rows) > _ROWS),
        *telemetry_plot.plots(finished.telemetry),
        _provenance(result, path),
        *([SourceText("Launch spec", textwrap.dedent(result.lines))] if result.lines else []),
    ]
    when = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(result.at))
    gpu = finished.device.name if finished.device else "GPU not known"
    time_text = fitting.fit(outcome.of_run(result), fitting.LENS)
    answer = PageAnswer(time_text, " · ".join(summary_lines.of_run(result))) if time_text else None
    return Page(kernel, f"{gpu} · {when} · {path}", blocks, folded, answer)


def _single(result: RunResult) -> FactList:
    """Return the one set of values of a spec without a sweep."""
    finished = result.finished
    rows: list[tuple[str, str]] = []
    for launch in result.launches:
        name = f"{launch.name}, {launch.timing.label}" if len(result.launches) > 1 else launch.timing.label
        rows.append((name, units.timing(launch.timing)))
        if launch.warm:
            rows.append((launch.warm.label, units.timing(launch.warm)))
    if point := sweep_tables.shown(finished.points):
        reached_rates = rates.of(
            point, sweep_tables.rated_ns(point.launches), finished.device, result.elements
        )
        rows += [(f"{rate.kind} rate", rates.explained(rate)[0]) for rate in reached_rates]
    return FactList("Times", rows or [("time", "not timed")])


def _provenance(result: RunResult, path: str) -> FactList:
    finished: Finished = result.finished
    rows = [("file", path), ("outcome", finished.outcome)]
    rows += [(name, f"{value} ({source})") for name, value, source in kernel_tables.run_rows(finished)]
    labels = {launch.timing.label for point in finished.points for launch in point.launches}
    rows += [("times are", "medians of " + "; ".join(sorted(labels)))] if labels else []
    return FactList("Where it comes from", rows)


# -- plots ------------------------------------------------------------------------------------------


def _plots(result: RunResult, kernel: str) -> list[Plot]:
    """Plot the time and each declared rate over the first swept name. There are no plots for a single set of values."""
    timed = [point for point in sweep_tables.timed(result.finished.points) if point.launches]
    names = list(dict.fromkeys(name for point in timed for name in point.values))
    across = _across(timed, names)
    if len(timed) < 2 or across is None:
        return []
    place, ticks = _places(timed, across)
    groups: dict[str, list[Point]] = defaultdict(list)
    for measured in timed:
        groups[
            ", ".join(f"{name} = {measured.values.get(name, '')}" for name in names if name != across)
        ].append(measured)

    def drawn(title: str, y: str, value: Callable[[Point], Mark | None], write: Callable[[float], str], limit: rates.Rate | None = None) -> Plot:  # fmt: skip
        made = [
            Series(name, [mark for point in group if (mark := value(point))])
            for name, group in groups.items()
        ]
        peak = limit.peak if limit else None
        text = f"peak, {write(peak.rate)} of {limit.limit}" if peak and limit else ""
        return Plot(title, across or "", y, made, write, ticks, peak.rate if peak else None, text)

    def time_of(point: Point) -> Mark | None:
        total = sweep_tables.total_ns(point.launches)
        timing = point.launches[0].timing
        bounds = (timing.low, timing.high) if len(point.launches) == 1 else (None, None)
        text = f"{sweep_tables.values_text(point)}: {sweep_tables.time_text(point.launches)}"
        return Mark(place(point), total, text, *bounds) if total else None

    plots = [drawn(f"Time of {kernel}", "time", time_of, units.time)]
    for kind in ("memory", "arithmetic"):
        every = {id(point): rate for point in timed if (rate := _rate(result, point, kind))}
        true = [rate for rate in every.values() if rate.suspect is None]
        if not true:
            continue  # a rate that cannot be true is not drawn as if it were

        def rate_of(point: Point, every: dict[int, rates.Rate] = every) -> Mark | None:
            rate = every.get(id(point))
            if rate is None or rate.suspect:
                return None
            share = f", {units.percent(rate.share)} of peak" if rate.share is not None else ""
            return Mark(place(point), rate.value, f"{sweep_tables.values_text(point)}: {rate.text}{share}")

        write = units.bandwidth if kind == "memory" else units.flops
        near = max((rate.share or 0 for rate in true), default=0) >= _NEAR
        title = (
            "Memory rate, from the declared bytes"
            if kind == "memory"
            else "Arithmetic rate, from the declared flops"
        )
        plots.append(drawn(title, f"{kind} rate", rate_of, write, true[0] if near else None))
    return plots


_NEAR = 0.1
"""Below this share the peak is too far away to be drawn: the points would lie on the floor."""


def _rate(result: RunResult, point: Point, kind: str) -> rates.Rate | None:
    reached_rates = rates.of(
        point, sweep_tables.rated_ns(point.launches), result.finished.device, result.elements
    )
    return next((rate for rate in reached_rates if rate.kind == kind), None)


def _across(timed: Sequence[Point], names: list[str]) -> str | None:
    """Return the first name that has several values. Numbers come before words."""
    several = [name for name in names if len({point.values.get(name) for point in timed}) > 1]
    numbers = [
        name for name in several if all(_number(point.values.get(name, "")) is not None for point in timed)
    ]
    return next(iter(numbers or several), None)


def _places(timed: Sequence[Point], across: str) -> tuple[Callable[[Point], float], tuple[str, ...]]:
    """Return where a point stands on the x axis, and the words of the axis if its values are no numbers."""
    written = [point.values.get(across, "") for point in timed]
    if all(_number(text) is not None for text in written):
        return lambda point: _number(point.values.get(across, "")) or 0.0, ()
    words = tuple(dict.fromkeys(written))
    return lambda point: float(words.index(point.values.get(across, ""))), words


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
