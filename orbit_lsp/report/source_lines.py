"""The lines of a profile as blocks of a report: an excerpt with the hottest lines of the text that ran, then all
lines with counts.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from orbit_lsp.profile import bottleneck
from orbit_lsp.report.page import Annotated, Block, Rows, Weighed
from orbit_lsp.state import units
from orbit_lsp.state.results import Profiled
from orbit_lsp.views.profile import profile_lines
from orbit_remote.common.measurements import Line
from orbit_remote.common.messages import Profile

_AROUND = 2
"""Lines of the text that are shown before and after one that has samples."""
_EXCERPT = 12
"""Rows of an excerpt: with the verdict above and the roofline below they fill a first screen, 600 px wide and 900 high."""
_COLUMNS = 58
"""Characters of text that fit a row there."""
_LEAST = 0.01
"""The share of the samples from which a line stands in an excerpt."""
_EXCESS = 5.0
"""Per cent of all such traffic of the kernel from which a line says that it need not be."""


def blocks(profiled: Profiled, profile: Profile) -> list[Block]:
    """Return the blocks of a profile. The file with most samples is first, shortened to its hottest lines if it is
    long. Then follow what was left out, and the other files. A file without a text becomes a table.
    """
    by_file: dict[str, list[Line]] = {}
    for line in profile.lines:
        by_file.setdefault(line.file, []).append(line)
    order = sorted(by_file, key=lambda file: (file in profiled.texts, _samples(by_file[file])), reverse=True)
    drawn: list[Block] = []
    for file in order:
        lines, text = by_file[file], profiled.texts.get(file)
        name = file.replace("\\", "/").rpartition("/")[2]
        if text is None:
            rows = [
                (f"{name}:{sampled.line}", _percent(sampled, profile), _note(profile, sampled))
                for sampled in lines
            ]
            drawn.append(Rows(f"Lines of {name}", ("line", "samples", "mainly"), rows))
            continue
        every = _weighed(profile, lines, text, _around(lines, text, _AROUND))
        if drawn or sum(map(_rows, every)) <= _EXCERPT:
            drawn.append(Annotated(f"Lines of {name}, as it ran", every))
            continue
        excerpt = _weighed(profile, lines, text, _excerpt(profile, lines, text))
        drawn.append(Annotated(f"Hottest lines of {name}, as it ran", excerpt))
        drawn.append(Annotated(f"All lines of {name} with samples", every))
    return drawn


def _samples(lines: Collection[Line]) -> int:
    return sum(line.samples for line in lines)


def _around(lines: Collection[Line], text: tuple[str, ...], around: int) -> set[int]:
    """Return the numbers of some lines and of the lines beside them."""
    near = {number for line in lines for number in range(line.line - around, line.line + around + 1)}
    return {number for number in near if 0 < number <= len(text)}


def _excerpt(profile: Profile, lines: list[Line], text: tuple[str, ...]) -> set[int]:
    """Choose the hottest lines, then the lines beside them, while there are rows left."""
    hot = [sampled for sampled in lines if (bottleneck.share(sampled, profile) or 0) >= _LEAST]
    hot.sort(key=lambda sampled: -sampled.samples)
    shown: set[int] = set()
    for around in (0, 1):
        for line in hot:
            with_it = shown | _around([line], text, around)
            if sum(map(_rows, _weighed(profile, lines, text, with_it))) > _EXCERPT:
                return shown
            shown = with_it
    return shown


def _rows(line: Weighed | None) -> int:
    """Return how many rows a line takes on a narrow page."""
    if line is None:
        return 1
    return max(1, math.ceil(len(line.text) / _COLUMNS)) + math.ceil(len(line.note) / _COLUMNS)


def _weighed(
    profile: Profile, of_file: list[Line], text: tuple[str, ...], shown: set[int]
) -> list[Weighed | None]:
    counted = {line.line: line for line in of_file if 0 < line.line <= len(text)}
    weighed: list[Weighed | None] = []
    for number in sorted(shown):
        if weighed and weighed[-1] and weighed[-1].number + 1 < number:
            weighed.append(None)
        line = counted.get(number)
        share = bottleneck.share(line, profile) if line else None
        note = _note(profile, line) if line else ""
        weighed.append(Weighed(number, text[number - 1].rstrip("\r\n").expandtabs(4), share or None, note))
    return weighed


def _note(profile: Profile, line: Line) -> str:
    """Return a line's note: `long scoreboard 96% · ⚠ uncoalesced: 12% used · 1.05 M instr · 33.6 MB of L1`."""
    parts: list[str] = []
    if line.samples and (stall := bottleneck.main_stall(line.stalls)):
        parts.append(f"{stall[0]} {units.percent(stall[1] / line.samples)}")
    if line.inside and line.samples:
        places = ", ".join(sorted(line.inside, key=lambda place: -line.inside[place])[:2])
        parts.append(f"{units.percent(sum(line.inside.values()) / line.samples)} of it inlined from {places}")
    parts += [f"⚠ {warning}" for warning in profile_lines.warnings(line, profile, _EXCESS)]
    if line.instructions:
        parts.append(f"{units.amount(line.instructions)} instr")
    if line.sectors:
        parts.append(f"{units.bytes_moved(32 * line.sectors)} of L1")
    if line.wavefronts:
        parts.append(f"{units.amount(line.wavefronts)} shared passes")
    return " · ".join(parts)


def _percent(line: Line, profile: Profile) -> str:
    share = bottleneck.share(line, profile)
    return units.percent(share) if share and line.samples else ""
