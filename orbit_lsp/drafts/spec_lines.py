"""Writes statements as the comment lines of a launch spec, in the layout of an author."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbit_lsp.drafts.guesses import DraftStatement
    from orbit_remote.spec.syntax_tree import Language

_LINE = 110


def above(language: Language, statements: Sequence[DraftStatement], first: str) -> str:
    """Return comment lines in the indentation of the kernel's `first` line. Short assignments with the same remark
    share a line.
    """
    mark = "//" if language == "cuda" else "#"
    indentation = re.match(r"[ \t]*", first)
    begin = f"{indentation[0] if indentation else ''}{mark} orbit: "
    made: list[str] = []
    together, remark = "", ""
    for statement in statements:
        stored = " as captured" in statement.text
        alone = statement.missing or stored or statement.text.startswith("launch ")
        end = f"  {mark} {statement.remark}" if statement.remark else ""
        longest = _LINE - len(begin) - len(end)
        if together and (alone or end != remark or len(together) + 2 + len(statement.text) > longest):
            made.append(begin + together + remark)
            together = ""
        if stored:
            made.append(begin + statement.text + end)
        elif alone:
            made += _folded(begin, statement.text, end)
        else:
            together, remark = (f"{together}; {statement.text}" if together else statement.text), end
    made += [begin + together + remark] if together else []
    return "".join(f"{line}\n" for line in made)


def _folded(begin: str, statement: str, end: str) -> list[str]:
    """Break a long launch into more lines, between its arguments: there a bracket is open."""
    opening = statement.find(">>>(") + 3 if ">>>(" in statement else statement.find("](") + 1
    head, parts = statement[: opening + 1], statement[opening + 1 :].split(", ")
    pieces = [*(f"{part}, " for part in parts[:-1]), parts[-1] + end]
    made: list[str] = []
    line = begin + head
    for at, piece in enumerate(pieces):
        if at and len(line) + len(piece.rstrip()) > _LINE:
            made.append(line.rstrip())
            line = begin + "  "
        line += piece
    return [*made, line]
