"""The history of a kernel as a report: its time over its versions, and the table."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from orbit_lsp.history.history_store import HistoryEntry
from orbit_lsp.report.page import Block, FactList, Page, Rows
from orbit_lsp.report.plot import Mark, Plot, Series
from orbit_lsp.state import units
from orbit_lsp.views import sweep_tables
from orbit_lsp.views import version_table as view
from orbit_lsp.views.version_table import Row


def page(entries: Sequence[HistoryEntry], kernel: str, path: str, subtitle: str) -> Page:
    """Make a page from `entries` of one kernel, the oldest first."""
    every = view.rows(entries)
    table = view.table(entries, kernel)
    when = table.header.index("when")
    dated = [  # a page is read later
        (*cells[:when], _date(row.version.runs[-1]), *cells[when + 1 :])
        for row, cells in zip(every, table.rows, strict=True)
    ]
    blocks: list[Block] = [*_plots(every, kernel), Rows("Versions", table.header, dated)]
    rows = [
        ("file", path),
        ("from, to", f"{_date(entries[0])}, {_date(entries[-1])}"),
        ("a version", "consecutive runs in which the kernel and its headers did not change"),
        ("a line", "the median of a version's runs, its bar from the quickest to the slowest run"),
        (
            "change",
            "against the version before in the same setup; only Compare with… shows whether a difference is real",
        ),
    ]
    blocks.append(FactList("How to read it", rows))
    return Page(f"{kernel} over its versions", " · ".join(filter(None, (table.title, subtitle))), blocks)


def _date(entry: HistoryEntry) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.at))


def plots(entries: Sequence[HistoryEntry], kernel: str) -> list[Plot]:
    """Return plots of a kernel's times over its versions. There are none for a single version."""
    return _plots(view.rows(entries), kernel)


def _plots(every: Sequence[Row], kernel: str) -> list[Plot]:
    """Plot a line for each setup with at least two versions, with one plot for each GPU: times on different GPUs do
    not compare.
    """
    by_setup: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in every:
        if row.setup is not None and row.ns is not None:
            by_setup[row.setup].append(row)
    plots: dict[str, list[Series]] = defaultdict(list)
    for rows in by_setup.values():
        if len(rows) < 2:
            continue
        last = rows[-1].version.runs[-1].result.finished
        gpu = last.device.name if last.device else ""
        marks = [
            Mark(float(row.number), row.ns, f"version {row.number}: {units.time(row.ns)}", row.low, row.high)
            for row in rows
            if row.ns is not None
        ]
        plots[gpu].append(Series(_name(rows[-1]), marks))
    return [
        Plot(
            f"Time of {kernel} on {gpu}" if gpu else f"Time of {kernel}",
            "version",
            "time",
            series,
            units.time,
        )
        for gpu, series in plots.items()
    ]


def _name(row: Row) -> str:
    """Return what distinguishes setups on one GPU: how the kernel is started, and with which values."""
    stored = row.version.runs[-1].result
    point = sweep_tables.shown(stored.finished.points)
    return ", ".join(
        filter(None, (f"by its {stored.through}", sweep_tables.values_text(point) if point else ""))
    )
