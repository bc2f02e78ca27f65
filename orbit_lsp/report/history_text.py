"""The runs of a kernel as a file for other programs: JSON, CSV or a table in Markdown."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import time
from collections.abc import Callable, Sequence

from orbit_lsp.history.history_store import HistoryEntry
from orbit_lsp.report import results_json
from orbit_lsp.report.results_json import KeptRun
from orbit_lsp.views import tables, version_table

COLUMNS = (
    "when", "version", "action", "outcome", "gpu", "time_ns", "low_ns", "high_ns", "launches", "warm_ns", "grid", "block",
    "values", "occupancy",
)  # fmt: skip


def as_json(name: str, entries: Sequence[HistoryEntry]) -> str:
    """Return a kernel's history as `orbit-lsp history --json` prints it."""
    return json.dumps(dataclasses.asdict(results_json.kernel_history(name, entries)), indent=2) + "\n"


def as_csv(name: str, entries: Sequence[HistoryEntry]) -> str:
    """Return a row for each run: `COLUMNS`, then every counter of its profiles by NVIDIA's name. A cell is empty if
    the run has no such value.
    """
    runs = results_json.kernel_history(name, entries).runs
    counters = sorted({metric for run in runs for metric in run.metrics or {}})
    text = io.StringIO()
    written = csv.writer(text, lineterminator="\n")
    written.writerow((*COLUMNS, *counters))
    for run in runs:
        metrics = run.metrics or {}
        written.writerow(
            (*_row(run), *(metrics[each].value if each in metrics else None for each in counters))
        )
    return text.getvalue()


def as_markdown(name: str, entries: Sequence[HistoryEntry]) -> str:
    return tables.render([version_table.table(entries, name)], markdown=True) + "\n"


def _row(run: KeptRun) -> tuple[object, ...]:
    timing, warm = run.timing, run.warm
    return (
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(run.at)), run.version, run.action, run.outcome, run.gpu,
        run.time_ns, timing.low if timing else None, timing.high if timing else None, timing.n if timing else None,
        warm.median if warm else None, _size(run.grid), _size(run.block),
        "; ".join(f"{key} = {value}" for key, value in (run.values or {}).items()), run.occupancy,
    )  # fmt: skip


def _size(size: tuple[int, int, int] | None) -> str:
    return "x".join(map(str, size)) if size else ""


FORMATS: dict[str, tuple[str, Callable[[str, Sequence[HistoryEntry]], str]]] = {
    "JSON": ("json", as_json),
    "CSV": ("csv", as_csv),
    "Markdown": ("md", as_markdown),
}
"""By title: the suffix of the file, and what writes it."""
