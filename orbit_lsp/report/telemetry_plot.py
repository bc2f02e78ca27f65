"""What NVML reported about the GPU during a run. Values that changed are plotted over time; the table has the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orbit_lsp.report.plot import Mark, Plot, Series
from orbit_lsp.state import units
from orbit_remote.common.measurements import Telemetry


def plots(telemetry: Telemetry | None) -> list[Plot]:
    """Return the plots, or none without a series or if nothing changed."""
    series = telemetry.series if telemetry else None
    if series is None:
        return []
    drawn = [
        _plot("SM clock that was set", series.at_s, series.sm_clock_mhz, units.clock),
        _plot("Power of the whole GPU", series.at_s, series.power_w, lambda watts: f"{watts:.0f} W"),
        _plot("GPU in use", series.at_s, series.utilization, lambda share: f"{share:.0f} %"),
    ]
    return [plot for plot in drawn if plot]


def _plot(
    title: str, at_s: Sequence[float], values: Sequence[float | None], write: Callable[[float], str]
) -> Plot | None:
    known = [(at, value) for at, value in zip(at_s, values, strict=False) if value is not None]
    if len({value for _, value in known}) < 2:
        return None
    marks = [Mark(at, value, f"{at:.2f} s: {write(value)}") for at, value in known]
    return Plot(title, "seconds since the first sample", "NVML", [Series(title, marks)], write)
