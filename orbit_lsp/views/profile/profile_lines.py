"""What the last profiles say of the lines of a file, where those lines stand in its present text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orbit_lsp.profile import bottleneck
from orbit_lsp.state import fitting, harness, line_map, units
from orbit_lsp.state.fitting import Part
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import Profiled
from orbit_lsp.state.session import Session
from orbit_lsp.views import kernel_status
from orbit_remote.common.messages import Line, Profile

MARK = "◂"


@dataclass(frozen=True, slots=True)
class Placed:
    """A line of a profile in the present text; `line` counts from 0. `stale`: the kernel has been edited since."""

    line: int
    of: Line
    target: KernelId
    profiled: Profiled
    profile: Profile
    stale: bool


def placed(session: Session, uri: str) -> list[Placed]:
    """Of all kernels with lines in this file; lines that were edited since are left out."""
    file = session.files.get(uri)
    if file is None or not session.results.profiles:
        return []
    found: list[Placed] = []
    judged: dict[str, set[KernelId]] = {}
    for target, profiled in session.results.profiles.items():
        profile = profiled.main
        if profile is None or profile.tier != "counters":
            continue
        for name, text in profiled.texts.items():
            if Path(name) == Path(file.document.path):
                lines = [one for one in profile.lines if one.file == name]
                where = line_map.places(text, file.document.lines, [one.line - 1 for one in lines])
                if target.uri not in judged:
                    judged[target.uri] = _stale(session, target.uri)
                stale = target in judged[target.uri]
                found += [
                    Placed(where[one.line - 1], one, target, profiled, profile, stale)
                    for one in lines
                    if one.line - 1 in where
                ]
    # what a contract's call launched of the file's own kernels is known twice: as theirs, and as the call's
    found.sort(key=lambda one: (one.line, bool(harness.named(one.target)), one.target))
    once = {(one.line, one.profile.symbol): one for one in reversed(found)}
    return list(once.values())[::-1]


def _stale(session: Session, uri: str) -> set[KernelId]:
    """A kernel that is no longer in its file is none that ran; of a file that is not open none can be judged: their
    results stand.
    """
    if uri not in session.files:
        return set()
    fresh = {one.target for one in kernel_status.of(session, uri) if not one.profile_stale}
    checked = kernel_status.harness_status(session, uri)
    if checked and not checked.profile_stale:
        fresh.add(checked.entry.target)
    return {target for target in session.results.profiles if target.uri == uri} - fresh


def labels(session: Session, uri: str) -> list[tuple[int, str]]:
    """(line, text) for the lines that say something, several kernels of a line one behind the other."""
    settings = session.setup.settings
    if not settings.hints.profile or not session.results.profiles:
        return []
    told = placed(session, uri)
    several = len({one.target for one in told}) > 1
    found: list[tuple[int, str]] = []
    for one in told:
        mark = "edited since" if one.stale else ""
        if text := label(one, settings.profile.line_percent, settings.profile.excess_percent, mark):
            found.append((one.line, text + (f" ({one.target.key})" if several else "")))
    return found


def label(one: Placed, line_percent: float, excess_percent: float, mark: str = "") -> str:
    """`◂ 74% · long scoreboard · ⚠ uncoalesced: 25% used`; empty where nothing of it matters. `mark` stands at the end."""
    parts: list[Part] = []
    part = share(one.of, one.profile)
    if part is not None and one.of.samples and 100 * part >= line_percent:
        parts += Part.of(0, units.percent(part))
        if stall := bottleneck.main_stall(one.of.stalls):
            parts += Part.of(5, stall[0])
    for warning in warnings(one.of, one.profile, excess_percent):
        parts += Part.of(2, f"⚠ {warning}")
    if not parts:
        return ""
    return f"{MARK} {fitting.fit(parts + Part.of(1, mark), fitting.HINT - len(MARK) - 1)}"


def share(line: Line, profile: Profile) -> float | None:
    """Of all warp samples of the kernel, those without a line too; None where none were taken."""
    whole = profile.samples or sum(one.samples for one in profile.lines)
    return line.samples / whole if whole else None


def warnings(line: Line, profile: Profile, excess_percent: float) -> list[str]:
    """Traffic that need not be, where it is at least so much of all that the kernel moved, in the words of a line."""
    lines = profile.lines
    found: list[str] = []
    if _matters(line, lines, lambda a: (a.sectors, a.ideal_sectors), excess_percent):
        assert line.sectors
        assert line.ideal_sectors is not None
        found.append(f"uncoalesced: {units.percent(line.ideal_sectors / line.sectors)} used")
    if _matters(line, lines, lambda a: (a.wavefronts, a.ideal_wavefronts), excess_percent):
        assert line.wavefronts
        times = f"{line.wavefronts / line.ideal_wavefronts:.1f}×" if line.ideal_wavefronts else "only"
        found.append(f"bank conflicts: {times}")
    moved = sum((a.sectors or 0) + (a.local_sectors or 0) for a in lines)
    if line.local_sectors and moved and 100 * line.local_sectors >= excess_percent * moved:
        found.append(f"local memory: {units.percent(line.local_sectors / moved)}")
    return found


def _matters(
    line: Line,
    lines: tuple[Line, ...],
    counts: Callable[[Line], tuple[int | None, int | None]],
    excess_percent: float,
) -> bool:
    moved, ideal = counts(line)
    if not moved or ideal is None or moved <= ideal:
        return False
    return 100 * (moved - ideal) >= excess_percent * sum(counts(one)[0] or 0 for one in lines)


def at(session: Session, uri: str, line: int) -> list[Placed]:
    return [one for one in placed(session, uri) if one.line == line]
