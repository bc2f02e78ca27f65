"""Shows the history of a kernel: a row for each version, how its time changed, and what a profile found."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from orbit_lsp.history import counter_diff
from orbit_lsp.history.history_store import HistoryEntry
from orbit_lsp.history.version_groups import Version, grouped, setup
from orbit_lsp.profile import bottleneck
from orbit_lsp.state import units
from orbit_lsp.views import kernel_status, labels, sweep_tables
from orbit_lsp.views.profile import profile_hints
from orbit_lsp.views.tables import Table
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Metric

HEADER = (
    "version", "when", "time", "change", "warm", "occupancy", "launch", "GPU", "runs", "outcome", "profile",
)  # fmt: skip
_SPEED = {"compute": bottleneck.COMPUTE, "memory": bottleneck.MEMORY}


@dataclass(frozen=True, slots=True)
class Row:
    """One version in one setup. `ns` is the median of its runs' times, `low` and `high` are the quickest and slowest
    run. `number` counts versions from 1. Times may be compared only within one `setup`.
    """

    number: int
    version: Version
    setup: tuple[object, ...] | None
    ns: float | None = None
    low: float | None = None
    high: float | None = None


def rows(entries: Sequence[HistoryEntry]) -> list[Row]:
    """Return the versions in the order in which they ran, a row for each setup of a version."""
    listed: list[Row] = []
    for number, version in enumerate(grouped(entries), 1):
        setups = list(dict.fromkeys(setup(run) for run in version.runs if run.action == "run")) or [None]
        for each in setups:
            runs = tuple(run for run in version.runs if run.action == "profile" or setup(run) == each)
            times = [
                total
                for run in runs
                if each is not None and (total := sweep_tables.rated_ns(run.result.launches)) is not None
            ]
            part = Version(version.digest, runs)
            listed.append(
                Row(number, part, each, median(times), min(times), max(times))
                if times
                else Row(number, part, each)
            )
    return listed


def table(entries: Sequence[HistoryEntry], kernel: str, now: float | None = None) -> Table:
    """Return the table, without columns that no version fills."""
    every = rows(entries)
    cells: list[tuple[str, ...]] = []
    before: dict[object, float] = {}
    for row in every:
        cells.append(_cells(row, before.get(row.setup), time.time() if now is None else now))
        if row.ns is not None:
            before[row.setup] = row.ns
    filled = [at for at in range(len(HEADER)) if at < 3 or any(cell[at] for cell in cells)]
    runs = "1 run" if len(entries) == 1 else f"{len(entries)} runs"
    count = len({row.number for row in every})
    versions = "1 version" if count == 1 else f"{count} versions"
    return Table(
        f"{kernel}: {versions}, {runs}",
        tuple(HEADER[at] for at in filled),
        tuple(tuple(cell[at] for at in filled) for cell in cells),
    )


def _cells(row: Row, before: float | None, now: float) -> tuple[str, ...]:
    runs = [run for run in row.version.runs if run.action == "run"]
    last = runs[-1] if runs else row.version.runs[-1]
    stored = last.result
    launches = kernel_status.main_launch(stored.launches) if runs else None
    device = stored.finished.device
    change = "" if before is None or row.ns is None else f"{100 * (row.ns / before - 1):+.1f}%"
    capability = device.capability if device else None
    held = (
        kernel_status.launch_occupancy(launches, capability, stored.finished.resources)
        if launches and capability
        else None
    )
    launch = labels.configuration(launches) if launches and launches.kernels is None else ""
    values = sweep_tables.values_text(point) if (point := sweep_tables.shown(stored.finished.points)) else ""
    return (
        str(row.number),
        kernel_status.ago(now - last.at),
        sweep_tables.time_text(stored.launches) if runs and stored.launches else "",
        change,
        units.median(launches.warm) if launches and launches.warm else "",
        f"≤{units.occupancy(held.fraction)}" if held else "",
        f"{launch} {values}".strip(),
        device.name.removeprefix("NVIDIA ") if device else "",
        str(len(row.version.runs)),
        "" if stored.finished.outcome == "ok" else stored.finished.outcome,
        _profiled(row.version),
    )


def _profiled(version: Version) -> str:
    """Return `memory 92%, compute 31%, occupancy 78%` for the last profile of a version."""
    for run in reversed(version.runs):
        profile = counter_diff.main(run.result.finished.profiles) if run.action == "profile" else None
        if profile:
            metrics = {
                name: profile.metrics.get(metric)
                for name, metric in (*_SPEED.items(), ("occupancy", profile_hints.ACHIEVED))
            }
            return ", ".join(f"{name} {_percent(metric)}" for name, metric in metrics.items() if metric)
    return ""


def _percent(metric: Metric) -> str:
    return f"{metric.value:.0f}%"
