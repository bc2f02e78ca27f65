"""Draws a roofline in characters: both axes are logarithmic, the roofs are lines, the kernel is a point."""

from __future__ import annotations

import math

from orbit_lsp.profile import bottleneck, roofline
from orbit_lsp.profile.roofline import Roofline, RooflinePoint
from orbit_lsp.state import units
from orbit_lsp.views.tables import Drawing
from orbit_remote.common.messages import Profile

WIDTH, HEIGHT = 52, 10
_MARGIN = 2.0
"""How far beyond what is drawn the axes go, as a factor."""


def drawing(profile: Profile) -> Drawing | None:
    """Return the drawing. Return None if the counters are missing."""
    drawn = roofline.of(profile)
    if drawn is None:
        return None
    point = drawn.main
    title = f"roofline: {sentence(drawn, point)}"
    roofs = drawn.bandwidth is not None and point.peak is not None
    return Drawing(title, tuple(_lines(drawn, point)) if roofs else ())


def left_out(profile: Profile) -> str:
    """Return what a roofline of this profile does not show, in a sentence. Return "" if it shows all."""
    tensor = bottleneck.value(profile, bottleneck.TENSOR)
    drawn = roofline.of(profile)
    if not tensor or (drawn and any(point.name.startswith("tensor") for point in drawn.points)):
        return ""
    return (
        f"tensor cores were at {tensor:.0f} % of their peak; the full profile alone counts their operations"
    )


def sentence(drawn: Roofline, point: RooflinePoint) -> str:
    """Return `FP32 477 GFLOP/s at 0.18 FLOP/byte, 79% of the DRAM roof there (606 GFLOP/s)`."""
    text = f"{point.name} {units.flops(point.rate)} at {point.intensity:.3g} FLOP per byte of DRAM"
    if roof := drawn.roof(point):
        name, height = roof
        text += f", {units.percent(point.rate / height)} of the {name} roof there ({units.flops(height)})"
    return text


def _lines(drawn: Roofline, point: RooflinePoint) -> list[str]:
    assert drawn.bandwidth is not None
    assert point.peak is not None
    ridge = point.peak / drawn.bandwidth
    across = (min(point.intensity, ridge) / _MARGIN, max(point.intensity, ridge) * _MARGIN)
    up = (min(point.rate, drawn.bandwidth * across[0]), point.peak * 1.2)
    canvas = [[" "] * WIDTH for _ in range(HEIGHT)]
    for column in range(WIDTH):
        intensity = across[0] * (across[1] / across[0]) ** (column / (WIDTH - 1))
        height = min(drawn.bandwidth * intensity, point.peak)
        canvas[_row(height, up)][column] = "─" if height == point.peak else "╱"
    column = round((WIDTH - 1) * math.log(point.intensity / across[0]) / math.log(across[1] / across[0]))
    canvas[_row(point.rate, up)][column] = "●"
    labels = {_row(point.peak, up): units.flops(point.peak), _row(point.rate, up): units.flops(point.rate)}
    width = max(map(len, labels.values()))
    lines = [f"{labels.get(row, ''):>{width}} │{''.join(cells).rstrip()}" for row, cells in enumerate(canvas)]
    ends = f"{across[0]:.2g}", f"{across[1]:.2g}"
    lines.append(" " * width + " └" + "─" * WIDTH)
    middle = f"{ends[0]:<{WIDTH // 2 - 7}}FLOP per byte"
    lines.append(" " * width + "  " + f"{middle}{ends[1]:>{WIDTH - len(middle)}}")
    return lines


def _row(value: float, up: tuple[float, float]) -> int:
    share = math.log(value / up[0]) / math.log(up[1] / up[0])
    return min(HEIGHT - 1, max(0, round((HEIGHT - 1) * (1 - share))))
