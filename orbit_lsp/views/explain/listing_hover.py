"""The instructions that a line of a file was compiled to, where its kernel's SASS is being looked at."""

from __future__ import annotations

from orbit_lsp.profile import listing
from orbit_lsp.state import line_map
from orbit_lsp.state.session import Session, path_of
from orbit_lsp.views.explain import sass_instructions
from orbit_lsp.views.tables import Code, Row, Section

_MOST = 12


def of_line(session: Session, uri: str, line: int) -> list[Section]:
    """For line `line`, from 0, of the present text; empty where it was compiled to nothing, or was edited since."""
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
                (Code(instruction.text), sass_instructions.meaning(instruction.mnemonic), instruction.control)
                for instruction in every[:_MOST]
            ]
            if len(every) > _MOST:
                rows.append((f"and {len(every) - _MOST} more", "", "orbit.disassemble"))
            count = "1 instruction" if len(every) == 1 else f"{len(every)} instructions"
            sections.append((f"{target.key}, this line: {count}", rows))
    return sections
