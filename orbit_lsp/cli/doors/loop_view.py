"""Shows on standard error what a loop is doing: on a terminal a table that is redrawn, else a line for each stage."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orbit_lsp.agents.loop import history
from orbit_lsp.agents.loop.coordinator import LoopWatcher
from orbit_lsp.agents.loop.records import Iteration
from orbit_lsp.cli import terminal_text
from orbit_lsp.state import units
from orbit_remote.common.plain_text import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

_SHOWN = 10
_PER_SECOND = 2


@contextmanager
def watcher(kernel: str, *, quiet: bool) -> Generator[LoopWatcher]:
    """Give the view of a loop, until the end of the `with`."""
    if quiet or not terminal_text.escapes(sys.stderr):
        yield LoopLines(quiet=quiet)
        return
    from rich.console import Console
    from rich.live import Live

    table = Redrawn(kernel)
    with Live(get_renderable=table.drawn, console=Console(stderr=True), refresh_per_second=_PER_SECOND):
        yield table


class LoopLines(LoopWatcher):
    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def stage(self, iteration: int, text: str) -> None:
        if not self._quiet:
            print(visible(f"iteration {iteration}: {text}"), file=sys.stderr, flush=True)

    def ended(self, rows: Sequence[Iteration], start_ns: float | None) -> None:
        row, best = rows[-1], history.best_ns(rows, start_ns)
        time_text = f"; best {units.time(best)}" if best is not None else ""
        self.stage(row.iteration, f"{row.decision}, {row.outcome}: {row.reason}{time_text}")


class Redrawn(LoopWatcher):
    """Shows the last iterations, and below them what is done now, and for how long."""

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel
        self._rows: Sequence[Iteration] = ()
        self._start_ns: float | None = None
        self._now = ""
        self._since = time.monotonic()

    def stage(self, iteration: int, text: str) -> None:
        self._now, self._since = f"iteration {iteration}: {text}", time.monotonic()

    def ended(self, rows: Sequence[Iteration], start_ns: float | None) -> None:
        self._rows, self._start_ns = rows, start_ns
        self._now = ""

    def drawn(self) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        known = history.table(self._kernel, self._rows)
        best = history.best_ns(self._rows, self._start_ns)
        title = known.title + (f", best {units.time(best)}" if best is not None else "")
        table = Table(title=Text(visible(title)), title_justify="left")
        for name in known.header:
            table.add_column(name)
        for cells in known.rows[-_SHOWN:]:
            table.add_row(*(Text(cell) for cell in cells), style="bold" if cells[1] == "KEEP" else "")
        now = (
            Text(visible(f"{self._now} · {time.monotonic() - self._since:.0f} s")) if self._now else Text("")
        )
        return Group(table, now) if known.rows else now
