"""A comparison in turn as a report."""

from __future__ import annotations

import time

from orbit_lsp import units
from orbit_lsp.report.page import Block, Facts, Page, Rows
from orbit_lsp.report.plot import Mark, Plot, Series
from orbit_lsp.session import Versus
from orbit_lsp.views import versus as view


def page(versus: Versus, kernel: str, path: str) -> Page:
    """Of a comparison that came to a verdict."""
    blocks: list[Block] = []
    if (plot := _plot(versus)) is not None:
        blocks.append(plot)
    if table := view.table(kernel, versus, versus.at, stale=False):
        rows = [row for row in table.rows if row[0] != "remark"]
        blocks.append(Rows("Both sides", table.header, rows))
    if versus.remarks:
        blocks.append(Rows("What to know beside it", ("remark",), [(one,) for one in versus.remarks]))
    about = [
        ("file", path),
        ("GPU", " against ".join(dict.fromkeys(one for one in versus.devices if one)) or units.UNAVAILABLE),
        ("how", "whole runs in turn, the other side first; the verdict is of pairs of runs, not of launches"),
    ]
    blocks.append(Facts("Where it comes from", about))
    when = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(versus.at))
    return Page(f"{kernel} against {versus.against}", f"{view.sentence(kernel, versus)} · {when}", blocks)


def _plot(versus: Versus) -> Plot | None:
    """Every launch of both sides, in the order in which they were made."""
    sides = [(versus.against, versus.then), ("now", versus.now)]
    series = [
        Series(
            name,
            [
                Mark(float(at), float(value), f"{name}: {units.time(value)}")
                for at, value in _spread(one.samples)
            ],
        )
        for name, one in sides
        if one is not None
    ]
    drawn = [one for one in series if one.marks]
    return (
        Plot("Launches of the counted runs", "launch", "time", drawn, units.time) if len(drawn) == 2 else None
    )


_MOST = 300


def _spread(samples: tuple[int, ...]) -> list[tuple[int, int]]:
    """At most `_MOST` of them, evenly."""
    step = -(-len(samples) // _MOST)
    return list(enumerate(samples))[:: max(1, step)]
