"""Lines through measured points as SVG, with logarithmic axes where the values span decades."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from orbit_remote.common.lazy_dataclass import dataclass

_WIDTH, _HEIGHT = 760, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 104, 20, 16, 52
_DECADE = 10.0
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
MOST_SERIES = 8


@dataclass(frozen=True, slots=True)
class Mark:
    """A measured point. `low` and `high` are the bounds of its measured values. `text` is its label."""

    x: float
    y: float
    text: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot. `ticks` names the places on the x axis if its values are no numbers. `limit` is a line that no point
    may pass. The y axis begins at 0, unless the plot shows its values `closely`.
    """

    title: str
    x: str
    y: str
    series: Sequence[Series]
    write: Callable[[float], str]
    ticks: Sequence[str] = ()
    limit: float | None = None
    limit_text: str = ""
    closely: bool = False


@dataclass(frozen=True, slots=True)
class _Axis:
    """Turns values into pixels. `marks` are the values that get a line and a label."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    marks: tuple[tuple[float, str], ...] = ()

    def at(self, value: float) -> float:
        low, high, here = self.low, self.high, value
        if self.log:
            low, high, here = math.log(low), math.log(high), math.log(value)
        share = (here - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


def svg(plot: Plot) -> str:
    """Draw a plot. At most `MOST_SERIES` series are drawn; the table beneath has all."""
    drawn = [series for series in plot.series if series.marks][:MOST_SERIES]
    marks = [mark for series in drawn for mark in series.marks]
    if not marks:
        return "<p>There is nothing to draw.</p>"
    named = len(drawn) > 1
    top = _TOP + (22 * math.ceil(len(drawn) / 4) if named else 0)
    across = _x_axis(plot, [mark.x for mark in marks])
    bounds = [value for mark in marks for value in (mark.y, mark.low, mark.high) if value is not None]
    up = _y_axis(plot, [*bounds, *([plot.limit] if plot.limit else [])], top)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(_description(plot, drawn))}">',
        *_frame(plot, across, up, top),
        *(
            part
            for number, series in enumerate(drawn)
            for part in _series(number, series, across, up, joined=not plot.ticks)
        ),
        *(_legend(drawn) if named else ()),
        "</svg>",
    ]
    return "\n".join(parts)


def _description(plot: Plot, drawn: Sequence[Series]) -> str:
    return f"{plot.title}: {plot.y} over {plot.x}, {sum(len(series.marks) for series in drawn)} points. The table has the values."


def _x_axis(plot: Plot, values: list[float]) -> _Axis:
    low, high = min(values), max(values)
    start, end = _LEFT + 14, _WIDTH - _RIGHT - 14
    if plot.ticks:
        marks = tuple((float(at), name) for at, name in enumerate(plot.ticks))
        return _Axis(low, high, start, end, False, marks)
    log = low > 0 and high / low >= _DECADE
    return _Axis(low, high, start, end, log, _x_marks(sorted(set(values)), log))


def _x_marks(values: list[float], log: bool) -> tuple[tuple[float, str], ...]:
    """Return the marks of the x axis: the measured values themselves if they fit, as powers of two if all are."""
    powers = log and all(value == int(value) and int(value) & (int(value) - 1) == 0 for value in values)
    step = math.ceil(len(values) / 10)
    chosen = values[::step]
    if powers:
        return tuple(
            (value, f"2{str(int(value).bit_length() - 1).translate(_SUPERSCRIPT)}") for value in chosen
        )
    return tuple((value, f"{value:,.6g}") for value in chosen)


def _y_axis(plot: Plot, values: list[float], top: float) -> _Axis:
    low, high = min(values), max(values)
    start, end = _HEIGHT - _BOTTOM, top
    if plot.closely:
        step = _nice((high - low) / 5 or high / 100)
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        steps = [step * n for n in range(first, max(last, first + 1) + 1)]
        return _Axis(
            steps[0], steps[-1], start, end, False, tuple((tick, plot.write(tick)) for tick in steps)
        )
    if low > 0 and high / low >= _DECADE:
        steps = [factor * 10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for factor in (1, 2, 5)]  # fmt: skip
        first = max((step for step in steps if step <= low), default=low)
        last = min((step for step in steps if step >= high), default=high)
        inside = [step for step in steps if first <= step <= last]
        if len(inside) > 7:
            inside = [tick for tick in inside if math.log10(tick) % 1 < 1e-9 or tick in (first, last)]
        return _Axis(first, last, start, end, True, tuple((tick, plot.write(tick)) for tick in inside))
    step = _nice(high / 5)
    last = step * max(1, math.ceil(high / step - 1e-9))
    count = round(last / step)
    return _Axis(
        0,
        last,
        start,
        end,
        False,
        tuple((step * n, plot.write(step * n) if n else "0") for n in range(count + 1)),
    )


def _nice(step: float) -> float:
    """Return the next of 1, 2, 2.5, 5 and 10 times a power of ten."""
    if step <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(step))
    return next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= step * (1 - 1e-9))


def _frame(plot: Plot, across: _Axis, up: _Axis, top: float) -> list[str]:
    floor, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts: list[str] = []
    for value, text in up.marks:
        y = up.at(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="quiet" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(text)}</text>'
        )
    for value, text in across.marks:
        x = across.at(value)
        parts.append(f'<line class="axis" x1="{x:.1f}" y1="{floor}" x2="{x:.1f}" y2="{floor + 5}"/>')
        parts.append(
            f'<text class="quiet" x="{x:.1f}" y="{floor + 20}" text-anchor="middle">{escape(text)}</text>'
        )
    parts.append(f'<line class="axis" x1="{_LEFT}" y1="{floor}" x2="{right}" y2="{floor}"/>')
    middle = (_LEFT + right) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(plot.x)}</text>')
    if plot.limit:
        y = up.at(plot.limit)
        parts.append(f'<line class="peak" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="quiet" x="{right}" y="{max(y - 6, top - 4):.1f}" text-anchor="end">{escape(plot.limit_text)}</text>'
        )
    return parts


def _series(number: int, series: Series, across: _Axis, up: _Axis, *, joined: bool) -> list[str]:
    """Draw the marks of a series. A line joins them if the values in between mean something (`joined`)."""
    marks = sorted(series.marks, key=lambda mark: mark.x)
    places = [(across.at(mark.x), up.at(mark.y)) for mark in marks]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<polyline class="series c{number}" points="{line}"/>'] if joined and len(places) > 1 else []
    for mark, (x, y) in zip(marks, places, strict=True):
        bar = ""
        if mark.low is not None and mark.high is not None:
            bar = f'<line class="c{number}" x1="{x:.1f}" y1="{up.at(mark.low):.1f}" x2="{x:.1f}" y2="{up.at(mark.high):.1f}"/>'
        parts.append(f"<g>{bar}{_marker(number, x, y)}<title>{escape(mark.text)}</title></g>")
    return parts


def _marker(number: int, x: float, y: float) -> str:
    """Draw a circle, square, diamond or triangle in turn, to distinguish series without colour."""
    filled = f'class="f{number}"'
    match number % 4:
        case 0:
            return f'<circle {filled} cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
        case 1:
            return f'<rect {filled} x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
        case 2:
            return f'<path {filled} d="M{x:.1f} {y - 6:.1f} l6 6 l-6 6 l-6 -6 z"/>'
        case _:
            return f'<path {filled} d="M{x:.1f} {y - 6:.1f} l6 10 l-12 0 z"/>'


def _legend(drawn: Sequence[Series]) -> list[str]:
    parts: list[str] = []
    for number, series in enumerate(drawn):
        x, y = _LEFT + 172 * (number % 4), 12 + 22 * (number // 4)
        text = series.name if len(series.name) <= 22 else series.name[:21] + "…"
        parts.append(
            f'<g>{_marker(number, x + 6, y)}<text x="{x + 18}" y="{y + 4}">{escape(text)}</text></g>'
        )
    return parts
