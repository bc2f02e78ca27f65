"""A file that keeps a contract: its lens, and how it did against the reference, on the line of its name."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lsprotocol import types as lsp

from orbit_lsp.state import placement, units
from orbit_lsp.state.session import Result, Session
from orbit_lsp.views import kernel_status, positions, sweep_tables
from orbit_lsp.views.kernel_status import HarnessStatus
from orbit_lsp.views.profile import profile_hints
from orbit_remote.common.messages import Point


def lenses(session: Session, uri: str, now: float) -> list[lsp.CodeLens]:
    """`now` is on the monotonic clock."""
    found = kernel_status.harness_status(session, uri)
    file = session.files.get(uri)
    if found is None or file is None:
        return []
    where = positions.whole_line(session, file.document, found.entry.span.line)
    profile = profile_command(found)
    return [lsp.CodeLens(where, one) for one in (command(session, found, now), profile) if one]


def profile_command(found: HarnessStatus) -> lsp.Command | None:
    """Of one call of what the file offers, unless something runs."""
    arguments = [{"uri": found.entry.target.uri, "kernel": found.entry.target.key}]
    return None if found.running else lsp.Command("Profile", "orbit.profile", arguments=arguments)


def command(session: Session, found: HarnessStatus, now: float) -> lsp.Command:
    arguments = [{"uri": found.entry.target.uri, "kernel": found.entry.target.key}]
    if found.running:
        why = f": {found.running.why}" if found.running.why else ""
        title = f"⏳ {found.running.state} {int(now - found.running.began)} s (cancel){why}"
        return lsp.Command(title, "orbit.cancel", arguments=arguments)
    title = f"✓ Check on {kernel_status.gpu_name(session)}"
    if found.result:
        title += f" · last {text(found.result)}" + (", edited since" if found.stale else "")
    return lsp.Command(title, "orbit.check", arguments=arguments)


def labels(session: Session, uri: str) -> tuple[int, list[str]]:
    """(line, hints); none where nothing was measured."""
    found = kernel_status.harness_status(session, uri)
    if found is None:
        return 0, []
    wanted = placement.settings_of(session).hints
    said: list[str] = []
    if found.result and wanted.measured:
        said.append(text(found.result) + (" · edited since" if found.stale else ""))
    if found.profile and wanted.profile:
        said.append(profile_hints.label(found.profile, stale=found.profile_stale))
    return found.entry.span.line, said


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
                "no difference that can be told"
                if versus.verdict == "inconclusive"
                else f"{1 / versus.ratio:.2f}x"
            )
            found.append(
                (f"against {versus.against}", said + bounds, f"{versus.pairs} pairs of calls in turn")
            )
    return found + sweep_tables.check_rows(result.finished.points)
