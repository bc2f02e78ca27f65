"""Shows the values with which a launch spec was run: the time of each set, its checks, and all of them as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orbit_lsp.state import units
from orbit_lsp.state.results import RunResult
from orbit_lsp.views import kernel_status, rates
from orbit_lsp.views.tables import Table
from orbit_remote.common import measure
from orbit_remote.common.measurements import Timing
from orbit_remote.common.messages import Check, Launches, Point


def timed(points: Sequence[Point]) -> list[Point]:
    """Return the points that are no cases."""
    return [point for point in points if not point.case]


def shown(points: Sequence[Point]) -> Point | None:
    """Return the point that a single number is about, as in `Finished.launches`: the first that was timed."""
    return next((point for point in points if point.launches), None)


def total_ns(launches: Sequence[Launches]) -> float | None:
    """Return the cold time of all launches of a spec together. Return None if there is none."""
    if timing := total(launches):
        return timing.median
    return sum(launch.timing.median for launch in launches) if launches else None


def total(launches: Sequence[Launches]) -> Timing | None:
    """Return the timing of all launches of a spec together: their sum in each round, if every sample of them is
    there.
    """
    if len(launches) < 2:
        return launches[0].timing if launches else None
    samples = [launch.timing.samples for launch in launches]
    if not samples[0] or any(len(sample) != len(samples[0]) for sample in samples):
        return None
    together = measure.timing([sum(parts) for parts in zip(*samples, strict=True)], launches[0].timing.label)
    under = [launch.timing.under for launch in launches]
    return replace(
        together,
        n=launches[0].timing.n,  # counts all launches; at most MAX_SAMPLES samples were sent
        under=sum(elapsed or 0 for elapsed in under) if None not in under else None,
    )


def rated_ns(launches: Sequence[Launches]) -> float | None:
    """Return the time from which a rate may be computed. Return None also if the time is below what the recording can
    measure.
    """
    timing = total(launches)
    return None if timing and timing.under is not None else total_ns(launches)


def time_text(launches: Sequence[Launches]) -> str:
    """Return `288 µs ±0.2%`, for several launches their sum."""
    timing = total(launches)
    return units.timing(timing) if timing else units.time(total_ns(launches))


def median_text(launches: Sequence[Launches]) -> str:
    """Return the same as `time_text` without the spread."""
    timing = total(launches)
    return units.median(timing) if timing else units.time(total_ns(launches))


def values_text(point: Point) -> str:
    """Return `n = 1024, BLOCK = 128` or `case tail`. Return "" for a spec without sweeps."""
    values = ", ".join(f"{name} = {value}" for name, value in point.values.items())
    return (f"case {point.case}" + (f" ({values})" if values else "")) if point.case else values


def verdict(points: Sequence[Point]) -> str:
    """Return `✓` if all expectations held, `✗ …` with the first that did not, "" without an expectation."""
    checks = [(point, check) for point in points for check in point.checks]
    failed = next(((point, check) for point, check in checks if not check.passed), None)
    if failed is None:
        return "✓" if checks else ""
    point, check = failed
    where = f" in {values_text(point)}" if point.case else f" at {values_text(point)}" if point.values else ""
    again = " with fresh data after timing" if check.when == "again" else ""
    return f"✗ {differing(check)}{where}{again}"


def differing(check: Check) -> str:
    """Return `12 of 67,108,864 differ`, or what is compared if the number is not known."""
    if check.message:
        return check.message
    if not check.differing:
        return f"{check.what} does not hold"
    return f"{units.count(check.differing)} of {units.count(check.elements)} differ"


def telling(points: Sequence[Point]) -> list[Point]:
    """Return the points whose checks a hover has room for: the one on the line, and those that failed. The table has
    all.
    """
    point_shown = shown(points) or next(iter(points), None)
    return [
        point for point in points if point is point_shown or not all(check.passed for check in point.checks)
    ]


def check_rows(points: Sequence[Point]) -> list[tuple[str, str, str]]:
    """Return (what, how it went, source) for every check."""
    rows: list[tuple[str, str, str]] = []
    for point in points:
        for check in point.checks:
            at = f" [{text}]" if (text := values_text(point)) else ""
            when = "fresh data after timing" if check.when == "again" else "before timing"
            rows.append((f"{'✓' if check.passed else '✗'} {check.what}{at}", _outcome(check), when))
    return rows


def _outcome(check: Check) -> str:
    parts: list[str] = []
    if check.passed and check.elements:
        parts.append(f"{units.count(check.elements)} elements")
    elif not check.passed:
        parts.append(differing(check))
        if check.index or check.actual:
            index = ", ".join(map(str, check.index))
            parts.append(f"first at [{index}]: {check.actual} instead of {check.expected}")
    if check.error is not None:
        parts.append(f"largest error {check.error:.3g}")
    if check.rtol is not None and check.atol is not None:
        parts.append(f"allowed {check.rtol:.2g} relative, {check.atol:.2g} absolute")
    return ", ".join(parts) or ("passed" if check.passed else "failed")


def table(result: RunResult, title: str) -> Table | None:
    """Return every set of values, a row each. Return None for a spec that ran with only one."""
    points = result.finished.points
    if len(points) < 2:
        return None
    names = tuple(dict.fromkeys(name for point in points for name in point.values))
    device = result.finished.device
    every = [rates.of(point, rated_ns(point.launches), device, result.elements) for point in points]
    kinds = [
        kind
        for kind in ("memory", "arithmetic")
        if any(rate.kind == kind for point_rates in every for rate in point_rates)
    ]
    cases = any(point.case for point in points)
    header = (
        *(("case",) if cases else ()), *names, "time", "spread", "samples",
        *(head for kind in kinds for head in (("memory", "of peak") if kind == "memory" else ("arithmetic", "of peak"))),
        "occupancy", "check",
    )  # fmt: skip
    rows: list[tuple[str, ...]] = []
    for point, rates_of_point in zip(points, every, strict=True):
        timing = total(point.launches)
        cells = [*((point.case or "-",) if cases else ()), *(point.values.get(name, "") for name in names)]
        cells += [median_text(point.launches) if point.launches else "not timed"]
        cells += [
            units.spread(timing.spread) if timing and timing.under is None else "",
            str(timing.n) if timing else "",
        ]
        for kind in kinds:
            rate = next((each for each in rates_of_point if each.kind == kind), None)
            cells += [rate.text if rate else "", _share(rate)]
        cells += [_occupancy(result, point.launches), verdict([point])]
        rows.append(tuple(cells))
    return Table(title, header, tuple(rows))


def tuning(launches: Launches) -> Table | None:
    """Return what autotuning tried, the fastest first. Return None for a kernel that was not tuned."""
    if not launches.tuning:
        return None
    tried = sorted(launches.tuning, key=lambda tried: (tried.median is None, tried.median or 0))
    rows = tuple(
        (
            "chosen" if trial.chosen else "",
            trial.configuration,
            units.time(trial.median) if trial.median else "did not run",
        )
        for trial in tried
    )
    return Table(f"{launches.name}: autotuned", ("", "configuration", "median while tuning"), rows)


def _share(rate: rates.Rate | None) -> str:
    if rate is None:
        return ""
    if rate.suspect:
        return "L2-resident" if rate.suspect == "L2-resident" else "above: doubtful"
    return units.percent(rate.share) if rate.share is not None else ""


def _occupancy(result: RunResult, launches: Sequence[Launches]) -> str:
    device = result.finished.device
    if len(launches) != 1 or device is None or device.capability is None:
        return ""
    held = kernel_status.launch_occupancy(launches[0], device.capability, result.finished.resources)
    return f"≤{units.occupancy(held.fraction)}" if held else ""
