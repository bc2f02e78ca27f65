"""Shows a KernelBench or popcorn file: its lens, and its result against the reference on the line of its name."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orbit_lsp.state import fitting
from orbit_lsp.state.fitting import Part
from orbit_lsp.state.results import RunResult
from orbit_lsp.state.session import Session
from orbit_lsp.views import kernel_status, sweep_tables
from orbit_lsp.views.answer.outcome import EDITED
from orbit_lsp.views.profile import profile_hints
from orbit_remote.common.messages import Point


def label(session: Session, uri: str) -> tuple[int, str]:
    """Return (line, hint). The hint is empty if nothing was measured."""
    harness_status = kernel_status.harness_status(session, uri)
    if harness_status is None:
        return 0, ""
    wanted = session.setup.settings.hints
    parts: list[Part] = []
    if harness_status.result and wanted.measured:
        parts = Part.of(0, *forms(harness_status.result)) + Part.of(1, EDITED if harness_status.stale else "")
    if harness_status.profile and wanted.profile:
        parts += profile_hints.parts(harness_status.profile, time=not parts)
        parts += Part.of(1, EDITED if harness_status.profile_stale and not harness_status.stale else "")
    return harness_status.entry.span.line, fitting.fit(parts, fitting.HINT)


def forms(result: RunResult) -> tuple[str, ...]:
    """Return the result in words, the longest form first."""
    whole = text(result)
    first = whole.partition(fitting.BETWEEN)[0]
    return whole, first, first.partition(" at ")[0]


def text(result: RunResult) -> str:
    """Return `✓ 1.42x · 3.10 ms vs 4.41 ms`: how much faster than the reference it is, and both times."""
    every = result.finished.points
    verdict = sweep_tables.verdict(every)
    compared = [point for point in every if point.versus]
    parts = [f"{verdict} {speedup(compared)}".strip()]
    if len(compared) == 1:
        parts.append(times(every, compared[0]))
    elif compared:
        parts.append(f"{len(compared)} benchmarks")
    judged = result.finished.judged
    if judged and judged.policy:
        parts.append(f"no score: policy {judged.policy.name}")
    if result.finished.outcome not in ("ok", "wrong answer"):
        parts.append(f"then {result.finished.outcome}")
    return " · ".join(filter(None, parts)) or "checked, not timed"


def speedup(compared: Sequence[Point]) -> str:
    """Return `1.42x`, for several benchmarks their geometric mean, or `±` if no difference is significant."""
    ratios = [point.versus.ratio for point in compared if point.versus and point.versus.ratio > 0]
    if not ratios:
        return ""
    if all(point.versus and point.versus.verdict == "inconclusive" for point in compared):
        return "±"
    return f"{math.exp(-sum(map(math.log, ratios)) / len(ratios)):.2f}x"


def times(every: Sequence[Point], point: Point) -> str:
    """Return `3.10 ms vs 4.41 ms`."""
    assert point.versus
    other = {**point.values, "version": point.versus.against}
    against = next((each for each in every if each.values == other), None)
    own = sweep_tables.median_text(point.launches)
    return f"{own} vs {sweep_tables.median_text(against.launches)}" if against else own


def rows(result: RunResult) -> list[tuple[str, str, str]]:
    """Return (what, value, source) for every version and every check."""
    listed: list[tuple[str, str, str]] = []
    for point in result.finished.points:
        if point.launches:
            launches = point.launches[0]
            kernels = f", {launches.kernels} kernels a call" if launches.kernels is not None else ""
            listed.append(
                (
                    sweep_tables.values_text(point),
                    f"{sweep_tables.time_text(point.launches)}{kernels}",
                    launches.timing.label,
                )
            )
        if (versus := point.versus) is not None:
            bounds = ""
            if versus.low and versus.high:
                bounds = f", {1 / versus.high:.2f}x to {1 / versus.low:.2f}x at 99 %"
            sentence = (
                "no measurable difference" if versus.verdict == "inconclusive" else f"{1 / versus.ratio:.2f}x"
            )
            listed.append(
                (f"against {versus.against}", sentence + bounds, f"{versus.pairs} pairs of calls in turn")
            )
    return listed + sweep_tables.check_rows(result.finished.points)
