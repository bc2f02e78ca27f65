"""An A/B comparison as a report."""

from __future__ import annotations

import time
from dataclasses import replace

from orbit_lsp.report.page import Block, FactList, Page, Rows
from orbit_lsp.report.plot import Mark, Plot, Series
from orbit_lsp.state import units
from orbit_lsp.state.results import AbResult
from orbit_lsp.views import ab_table as view
from orbit_lsp.views.tables import Table


def page(versus: AbResult, kernel: str, path: str) -> Page:
    """Make the page of a comparison that came to a verdict."""
    blocks: list[Block] = [] if (plot := _plot(versus)) is None else [plot]
    blocks += [Rows(table.title, table.header, table.rows) for table in _tables(versus, kernel)]
    about = [
        ("file", path),
        (
            "GPU",
            " against ".join(dict.fromkeys(device for device in versus.devices if device))
            or units.UNAVAILABLE,
        ),
        (
            "how",
            "whole runs of both sides in turn, each pair in a drawn order; the first run of each side is not counted",
        ),
        (
            "verdict",
            "computed from the pairs of runs, not from launches: the launches of one run share its clocks, temperature and addresses",
        ),
    ]
    blocks.append(FactList("Where it comes from", about))
    when = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(versus.at))
    return Page(f"{kernel} against {versus.against}", f"{view.sentence(kernel, versus)} · {when}", blocks)


def _tables(versus: AbResult, kernel: str) -> list[Table]:
    both, *beside = view.tables(kernel, versus, versus.at, stale=False)
    first = [versus.against, "now"]
    pairs = [
        (str(number), units.time(then), units.time(now), f"{100 * (now / then - 1):+.1f}%", first[now_first])
        for number, (then, now, now_first) in enumerate(zip(*versus.runs, versus.now_first, strict=False), 1)
    ]
    header = ("pair", versus.against, "now", "change", "ran first")
    return [replace(both, title="Both sides"), Table("Pairs of runs", header, tuple(pairs)), *beside]


def _plot(versus: AbResult) -> Plot | None:
    """Return the time of every counted run, by pairs."""
    series = [
        Series(
            name,
            [
                Mark(float(pair), ns, f"pair {pair}, {name}: {units.time(ns)}")
                for pair, ns in enumerate(runs, 1)
            ],
        )
        for name, runs in zip((versus.against, "now"), versus.runs, strict=True)
    ]
    return Plot("Runs in turn", "pair", "time", series, units.time) if all(versus.runs) else None
