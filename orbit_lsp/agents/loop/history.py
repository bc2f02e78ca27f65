"""The history of a loop: `history.jsonl`, a table, and a page with the plot. All are made anew from the journal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from orbit_lsp.agents.loop.records import Iteration
from orbit_lsp.report import page
from orbit_lsp.report.plot import Mark, Plot, Series
from orbit_lsp.state import units
from orbit_lsp.views import tables
from orbit_lsp.views.tables import Table
from orbit_remote.common import regular_files
from orbit_remote.common.plain_text import visible

_HEADER = ("iteration", "decision", "outcome", "time", "best so far", "change", "pairs", "reason")


def write(folder: Path, kernel: str, rows: Sequence[Iteration], start_ns: float | None) -> None:
    """Raises OSError."""
    lines = [json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows]
    regular_files.replace(folder / "history.jsonl", "".join(lines).encode("utf-8", "backslashreplace"))
    regular_files.replace(
        folder / "history.md",
        tables.render([table(kernel, rows)], markdown=True).encode("utf-8", "backslashreplace"),
    )
    made = page.Page(
        f"{kernel}: the loop's way", _subtitle(rows), [*_plots(kernel, rows, start_ns), _rows(kernel, rows)]
    )
    regular_files.replace(folder / "history.html", page.html(made).encode("utf-8", "backslashreplace"))


def table(kernel: str, rows: Sequence[Iteration]) -> Table:
    made_up = " (simulated, nothing was measured)" if any(row.simulated for row in rows) else ""
    return Table(f"{kernel}: {len(rows)} iterations{made_up}", _HEADER, tuple(_cells(row) for row in rows))


def best_ns(rows: Sequence[Iteration], start_ns: float | None) -> float | None:
    """Return the time of the best version so far, by its last measurement."""
    kept = [row.time_ns for row in rows if row.decision == "KEEP"]
    return kept[-1] if kept else start_ns


def _cells(row: Iteration) -> tuple[str, ...]:
    change = "" if row.ratio is None else f"{100 * (row.ratio - 1):+.1f}%"
    times = ["" if value is None else units.time(value) for value in (row.time_ns, row.best_ns)]
    return (
        str(row.iteration),
        row.decision,
        row.outcome,
        *times,
        change,
        str(row.pairs or ""),
        visible(row.reason),
    )


def _rows(kernel: str, rows: Sequence[Iteration]) -> page.Rows:
    shown = table(kernel, rows)
    return page.Rows(shown.title, shown.header, list(shown.rows))


def _subtitle(rows: Sequence[Iteration]) -> str:
    kept = sum(row.decision == "KEEP" for row in rows)
    return f"{kept} of {len(rows)} changes kept" + (
        " · simulated" if any(row.simulated for row in rows) else ""
    )


def _plots(kernel: str, rows: Sequence[Iteration], start_ns: float | None) -> list[Plot]:
    """Plot the best so far after each iteration, and the candidates that were measured."""
    steps = [
        (0, start_ns),
        *((row.iteration, best_ns(rows[: at + 1], start_ns)) for at, row in enumerate(rows)),
    ]
    best = [
        Mark(float(at), ns, f"best after iteration {at}: {units.time(ns)}")
        for at, ns in steps
        if ns is not None
    ]
    tried = [
        Mark(
            float(row.iteration),
            row.time_ns,
            f"iteration {row.iteration}, {row.outcome}: {units.time(row.time_ns)}",
        )
        for row in rows
        if row.time_ns is not None
    ]
    if len(best) < 2:
        return []
    series = [Series("best so far", best), Series("each change", tried)]
    return [Plot(f"Time of {kernel}", "iteration", "time", series, units.time)]
