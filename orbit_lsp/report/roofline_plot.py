"""A roofline as SVG: operations per second over operations per byte of DRAM, both axes logarithmic."""

from __future__ import annotations

import math
from html import escape

from orbit_lsp.profile.roofline import Roofline, RooflinePoint
from orbit_lsp.state import units

_WIDTH, _HEIGHT = 600, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 92, 12, 12, 44


def svg(roofline: Roofline) -> str:
    """Draw a roofline. Every type that was counted is a point under its own flat roof. It is empty if no roof is
    known.
    """
    peaks = [(point.name, point.peak) for point in roofline.points if point.peak]
    width = roofline.bandwidth
    if not peaks or not width:
        return ""
    points = roofline.points
    ridges = [peak / width for _, peak in peaks]
    places = [*(point.intensity for point in points), *ridges]
    low_x, high_x = (
        10.0 ** math.floor(math.log10(min(places) / 2)),
        10.0 ** math.ceil(math.log10(max(places) * 2)),
    )
    lowest = min(*(point.rate for point in points), width * low_x)
    low_y, high_y = (
        10.0 ** math.floor(math.log10(lowest)),
        10.0 ** math.ceil(math.log10(max(peak for _, peak in peaks))),
    )
    axes = _Axes(low_x, high_x, low_y, high_y)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(_description(points))}">',
        *_grid(axes),
        *_roofs(axes, width, peaks),
        *(_point(axes, number, point, roofline) for number, point in enumerate(points)),
        "</svg>",
    ]
    return "\n".join(parts)


class _Axes:
    def __init__(self, low_x: float, high_x: float, low_y: float, high_y: float) -> None:
        self.low_x, self.high_x, self.low_y, self.high_y = low_x, high_x, low_y, high_y

    def x(self, value: float) -> float:
        share = math.log(value / self.low_x) / math.log(self.high_x / self.low_x)
        return _LEFT + share * (_WIDTH - _RIGHT - _LEFT)

    def y(self, value: float) -> float:
        share = math.log(value / self.low_y) / math.log(self.high_y / self.low_y)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)


def _decades(low: float, high: float) -> list[float]:
    first, last = round(math.log10(low)), round(math.log10(high))
    step = max(1, math.ceil((last - first) / 8))
    return [10.0**power for power in range(first, last + 1, step)]


def _grid(axes: _Axes) -> list[str]:
    floor, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts: list[str] = []
    for value in _decades(axes.low_y, axes.high_y):
        y = axes.y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        text = units.flops(value).replace(".00", "").replace(".0", "")
        parts.append(f'<text class="quiet" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    for value in _decades(axes.low_x, axes.high_x):
        x = axes.x(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{floor}"/>')
        parts.append(
            f'<text class="quiet" x="{x:.1f}" y="{floor + 20}" text-anchor="middle">{value:g}</text>'
        )
    middle = (_LEFT + right) / 2
    axis = "operations per byte of DRAM"
    return [*parts, f'<text x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">{axis}</text>']


def _roofs(axes: _Axes, bandwidth: float, peaks: list[tuple[str, float]]) -> list[str]:
    """Draw the slope of memory up to the highest flat roof, and each flat roof from the slope on."""
    highest = max(peak for _, peak in peaks)
    start = max(axes.low_x, axes.low_y / bandwidth)
    slope = (axes.x(start), axes.y(bandwidth * start), axes.x(highest / bandwidth), axes.y(highest))
    parts = ['<line class="roof" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(*slope)]
    along = start * (highest / bandwidth / start) ** 0.62
    parts.append(
        f'<text class="quiet" x="{axes.x(along) - 10:.1f}" y="{axes.y(bandwidth * along) - 4:.1f}" '
        f'text-anchor="end">DRAM {escape(units.bandwidth(bandwidth))}</text>'
    )
    for name, peak in peaks:
        y = axes.y(peak)
        parts.append(
            f'<line class="roof" x1="{axes.x(peak / bandwidth):.1f}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text class="quiet" x="{_WIDTH - _RIGHT}" y="{y + 17:.1f}" text-anchor="end">'
            f"{escape(name)} {escape(units.flops(peak))}</text>"
        )
    return parts


def _point(axes: _Axes, number: int, point: RooflinePoint, roofline: Roofline) -> str:
    """Return the point, and a line up to the roof over it."""
    x, y = axes.x(point.intensity), axes.y(point.rate)
    roof = roofline.roof(point)
    up = (
        f'<line class="peak" x1="{x:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{axes.y(roof[1]):.1f}"/>'
        if roof
        else ""
    )
    share = f", {units.percent(point.rate / roof[1])} of the {roof[0]} roof" if roof else ""
    text = escape(f"{point.name} {units.flops(point.rate)}{share}")
    right = x < (_LEFT + _WIDTH) / 2
    anchor = f'x="{x + 10:.1f}"' if right else f'x="{x - 10:.1f}" text-anchor="end"'
    return (
        f'<g>{up}<circle class="f{number % 8}" cx="{x:.1f}" cy="{y:.1f}" r="5.5"/>'
        f'<text {anchor} y="{y + 16:.1f}">{text}</text></g>'
    )


def _description(points: tuple[RooflinePoint, ...]) -> str:
    sentence = "; ".join(
        f"{point.name} {units.flops(point.rate)} at {point.intensity:.3g} per byte" for point in points
    )
    return f"Roofline: {sentence}. The table has the values."
