"""A KernelBench or popcorn file: its lens, and its result against the reference on the line of its name."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orbit_lsp.state import fitting, units
from orbit_lsp.state.fitting import Part
from orbit_lsp.state.results import Result
from orbit_lsp.state.session import Session
from orbit_lsp.views import kernel_status, sweep_tables
from orbit_lsp.views.answer.outcome import EDITED
from orbit_lsp.views.profile import profile_hints
from orbit_remote.common.messages import Point


def label(session: Session, uri: str) -> tuple[int, str]:
    """(line, hint); empty where nothing was measured."""
    found = kernel_status.harness_status(session, uri)
    if found is None:
        return 0, ""
    wanted = session.setup.settings.hints
    parts: list[Part] = []
    if found.result and wanted.measured:
        parts = Part.of(0, *forms(found.result)) + Part.of(1, EDITED if found.stale else "")
    if found.profile and wanted.profile:
        parts += profile_hints.parts(found.profile, time=not parts)
        parts += Part.of(1, EDITED if found.profile_stale and not found.stale else "")
    return found.entry.span.line, fitting.fit(parts, fitting.HINT)


def forms(result: Result) -> tuple[str, ...]:
    """The result in words, the longest form first."""
    whole = text(result)
    first = whole.partition(fitting.BETWEEN)[0]
    return whole, first, first.partition(" at ")[0]


def text(result: Result) -> str:
    """`✓ 1.42x · 3.10 ms vs 4.41 ms`: how much less time it takes than the reference, and both times."""
    every = result.finished.points
    verdict = sweep_tables.verdict(every)
    compared = [one for one in every if one.versus]
    parts = [f"{verdict} {speedup(compared)}".strip()]
    if len(compared) == 1:
        parts.append(times(every, compared[0]))
    elif compared:
        parts.append(f"{len(compared)} benchmarks")
    if result.finished.outcome not in ("ok", "wrong answer"):
        parts.append(f"then {result.finished.outcome}")
    return " · ".join(filter(None, parts)) or "checked, not timed"


def speedup(compared: Sequence[Point]) -> str:
    """`1.42x`, of several benchmarks their geometric mean; `±` where none of them can be told apart."""
    ratios = [one.versus.ratio for one in compared if one.versus and one.versus.ratio > 0]
    if not ratios:
        return ""
    if all(one.versus and one.versus.verdict == "inconclusive" for one in compared):
        return "±"
    return f"{math.exp(-sum(map(math.log, ratios)) / len(ratios)):.2f}x"


def times(every: Sequence[Point], one: Point) -> str:
    """`3.10 ms vs 4.41 ms`"""
    assert one.versus
    other = {**one.values, "version": one.versus.against}
    against = next((each for each in every if each.values == other), None)
    own = units.time(sweep_tables.total_ns(one.launches))
    return f"{own} vs {units.time(sweep_tables.total_ns(against.launches))}" if against else own


def rows(result: Result) -> list[tuple[str, str, str]]:
    """(what, value, source) of every version and every check."""
    found: list[tuple[str, str, str]] = []
    for point in result.finished.points:
        if point.launches:
            one = point.launches[0]
            kernels = f", {one.kernels} kernels a call" if one.kernels is not None else ""
            found.append(
                (
                    sweep_tables.values_text(point),
                    f"{sweep_tables.time_text(point.launches)}{kernels}",
                    one.timing.label,
                )
            )
        if (versus := point.versus) is not None:
            bounds = ""
            if versus.low and versus.high:
                bounds = f", {1 / versus.high:.2f}x to {1 / versus.low:.2f}x at 99 %"
            said = (
                "no measurable difference" if versus.verdict == "inconclusive" else f"{1 / versus.ratio:.2f}x"
            )
            found.append(
                (f"against {versus.against}", said + bounds, f"{versus.pairs} pairs of calls in turn")
            )
    return found + sweep_tables.check_rows(result.finished.points)
