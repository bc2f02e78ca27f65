"""Finds the results of the last profiles by line, at the places of those lines in the present text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orbit_lsp.profile import bottleneck
from orbit_lsp.state import fitting, harness, line_map, units
from orbit_lsp.state.fitting import Part
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import Profiled
from orbit_lsp.state.session import Session
from orbit_lsp.views import kernel_status
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Line
from orbit_remote.common.messages import Profile

MARK = "◂"


@dataclass(frozen=True, slots=True)
class PlacedLine:
    """A line of a profile in the present text. `line` counts from 0. `stale` says that the kernel has been edited
    since.
    """

    line: int
    of: Line
    target: KernelId
    profiled: Profiled
    profile: Profile
    stale: bool


def placed(session: Session, uri: str) -> list[PlacedLine]:
    """Return the profiled lines of all kernels in this file. Lines that were edited since are left out."""
    file = session.files.get(uri)
    if file is None or not session.results.profiles:
        return []
    placed_lines: list[PlacedLine] = []
    judged: dict[str, set[KernelId]] = {}
    for target, profiled in session.results.profiles.items():
        profile = profiled.main
        if profile is None or profile.tier != "counters":
            continue
        for name, text in profiled.texts.items():
            if Path(name) == Path(file.document.path):
                lines = [line for line in profile.lines if line.file == name]
                where = line_map.places(text, file.document.lines, [line.line - 1 for line in lines])
                if target.uri not in judged:
                    judged[target.uri] = _stale(session, target.uri)
                stale = target in judged[target.uri]
                placed_lines += [
                    PlacedLine(where[line.line - 1], line, target, profiled, profile, stale)
                    for line in lines
                    if line.line - 1 in where
                ]
    # what a contract's call launched of the file's own kernels is known twice: as theirs, and as the call's
    placed_lines.sort(
        key=lambda placed_line: (
            placed_line.line,
            bool(harness.named(placed_line.target)),
            placed_line.target,
        )
    )
    once = {
        (placed_line.line, placed_line.profile.symbol): placed_line for placed_line in reversed(placed_lines)
    }
    return list(once.values())[::-1]


def _stale(session: Session, uri: str) -> set[KernelId]:
    """Return the kernels whose profiles are stale. A kernel that is no longer in its file is not the one that ran.
    Kernels of files that are not open cannot be judged: their results count as current.
    """
    if uri not in session.files:
        return set()
    fresh = {status.target for status in kernel_status.of(session, uri) if not status.profile_stale}
    checked = kernel_status.harness_status(session, uri)
    if checked and not checked.profile_stale:
        fresh.add(checked.entry.target)
    return {target for target in session.results.profiles if target.uri == uri} - fresh


def labels(session: Session, uri: str) -> list[tuple[int, str]]:
    """Return (line, text) for the lines that have something to show. Several kernels of a line stand one behind the
    other.
    """
    settings = session.setup.settings
    if not settings.hints.profile or not session.results.profiles:
        return []
    placed_lines = placed(session, uri)
    several = len({placed_line.target for placed_line in placed_lines}) > 1
    texts: list[tuple[int, str]] = []
    for each_line in placed_lines:
        mark = "edited since" if each_line.stale else ""
        if text := label(each_line, settings.profile.line_percent, settings.profile.excess_percent, mark):
            texts.append((each_line.line, text + (f" ({each_line.target.key})" if several else "")))
    return texts


def label(placed_line: PlacedLine, line_percent: float, excess_percent: float, mark: str = "") -> str:
    """Return `◂ 74% · long scoreboard · ⚠ uncoalesced: 25% used`, or "" if nothing of it matters. `mark` stands at
    the end.
    """
    parts: list[Part] = []
    part = bottleneck.share(placed_line.of, placed_line.profile)
    if part is not None and placed_line.of.samples and 100 * part >= line_percent:
        parts += Part.of(0, units.percent(part))
        if stall := bottleneck.main_stall(placed_line.of.stalls):
            parts += Part.of(5, stall[0])
    for warning in warnings(placed_line.of, placed_line.profile, excess_percent):
        parts += Part.of(2, f"⚠ {warning}")
    if not parts:
        return ""
    return f"{MARK} {fitting.fit(parts + Part.of(1, mark), fitting.HINT - len(MARK) - 1)}"


def warnings(line: Line, profile: Profile, excess_percent: float) -> list[str]:
    """Return warnings about needless traffic, if it is a large enough share of all that the kernel moved, in words
    for a line.
    """
    lines = profile.lines
    texts: list[str] = []
    if _matters(line, lines, lambda a: (a.sectors, a.ideal_sectors), excess_percent):
        assert line.sectors
        assert line.ideal_sectors is not None
        texts.append(f"uncoalesced: {units.percent(line.ideal_sectors / line.sectors)} used")
    if _matters(line, lines, lambda a: (a.wavefronts, a.ideal_wavefronts), excess_percent):
        assert line.wavefronts
        times = f"{line.wavefronts / line.ideal_wavefronts:.1f}×" if line.ideal_wavefronts else "only"
        texts.append(f"bank conflicts: {times}")
    moved = sum((a.sectors or 0) + (a.local_sectors or 0) for a in lines)
    if line.local_sectors and moved and 100 * line.local_sectors >= excess_percent * moved:
        texts.append(f"local memory: {units.percent(line.local_sectors / moved)}")
    return texts


def _matters(
    line: Line,
    lines: tuple[Line, ...],
    counts: Callable[[Line], tuple[int | None, int | None]],
    excess_percent: float,
) -> bool:
    moved, ideal = counts(line)
    if not moved or ideal is None or moved <= ideal:
        return False
    return 100 * (moved - ideal) >= excess_percent * sum(counts(line)[0] or 0 for line in lines)


def at(session: Session, uri: str, line: int) -> list[PlacedLine]:
    """Return the profiled lines that are at `line` (from 0) of the present text."""
    return [placed_line for placed_line in placed(session, uri) if placed_line.line == line]
