"""Shows the instructions that a line was compiled to in a hover, and their number, while somebody looks at the
kernel's SASS.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import lru_cache
from pathlib import Path

from orbit_lsp.profile import listing
from orbit_lsp.state import line_map
from orbit_lsp.state.session import Session, path_of
from orbit_lsp.views.explain import sass_instructions
from orbit_lsp.views.tables import CodeCell, Row, Section

_MOST = 12


def of_line(session: Session, uri: str, line: int) -> list[Section]:
    """Return sections for line `line`, from 0, of the present text. They are empty if it was compiled to nothing, or
    was edited since.
    """
    file = session.files.get(uri)
    sections: list[Section] = []
    for (target, level), made in session.results.listings.items():
        if file is None or made is None or target.uri != uri or level != "sass":
            continue
        before = line_map.places(file.document.lines, made.lines, [line]).get(line)
        if before is None:
            continue
        for text in made.texts.values():
            every = listing.of_line(listing.read(text), path_of(uri), before + 1)
            if not every:
                continue
            rows: list[Row] = [
                (
                    CodeCell(instruction.text),
                    sass_instructions.meaning(instruction.mnemonic),
                    instruction.control,
                )
                for instruction in every[:_MOST]
            ]
            if len(every) > _MOST:
                rows.append((f"and {len(every) - _MOST} more", "", "orbit.disassemble"))
            count = "1 instruction" if len(every) == 1 else f"{len(every)} instructions"
            sections.append((f"{target.key}, this line: {count}", rows))
    return sections


def counts(session: Session, uri: str) -> list[tuple[int, str]]:
    """Return (line from 0, `12 instructions`) for the present text, if the author wants them. A line that was
    compiled several times has the least and the most.
    """
    file = session.files.get(uri)
    if file is None or not session.setup.settings.hints.instructions:
        return []
    by_line: defaultdict[int, list[int]] = defaultdict(list)
    for (target, level), made in session.results.listings.items():
        if made is None or target.uri != uri or level != "sass":
            continue
        for text in made.texts.values():
            of_text = _counted(text, path_of(uri))
            now = line_map.places(made.lines, file.document.lines, of_text)
            for line, place in now.items():
                by_line[place].append(of_text[line])
    labels: list[tuple[int, str]] = []
    for line, many in sorted(by_line.items()):
        least, most = min(many), max(many)
        number = str(most) if least == most else f"{least} to {most}"
        labels.append((line, f"{number} {'instruction' if most == 1 else 'instructions'}"))
    return labels


@lru_cache(maxsize=16)
def _counted(text: str, path: str) -> Counter[int]:
    """Count the instructions of a listing for each line of the file at `path`, from 0."""
    return Counter(
        each.line - 1
        for each in listing.read(text)
        if each.line is not None and Path(each.file) == Path(path)
    )
