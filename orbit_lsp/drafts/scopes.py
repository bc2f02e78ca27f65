"""Where the functions of a `.cu` file are, so that what one of them names is not looked up in another.

Texts have neither comments nor strings. Found by their braces: one behind a parameter list opens a body.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_HEADER = re.compile(r"\)\s*(?:(?:const|noexcept|override|final|mutable|try|->[\s\w:<>*&]*)\s*)*$")
_DIRECTIVE = re.compile(r"^[ \t]*#[^\n]*$", re.MULTILINE)


class Body(NamedTuple):
    """From its `{` to behind its `}`, or to the text's end where that is not closed."""

    start: int
    end: int


def bodies(text: str) -> list[Body]:
    """Of the functions that stand in no other."""
    found: list[Body] = []
    depth = start = 0  # braces that are open within a function
    for brace in re.finditer(r"[{}]", text):
        if depth:
            depth += 1 if brace[0] == "{" else -1
            if not depth:
                found.append(Body(start, brace.end()))
        elif brace[0] == "{" and _HEADER.search(text, max(0, brace.start() - 300), brace.start()):
            depth, start = 1, brace.start()
    return [*found, Body(start, len(text))] if depth else found


def before(text: str, place: int) -> str:
    """What stands before a place and is in its scope: the bodies of other functions are left out, but directives."""
    kept: list[str] = []
    at = 0
    for body in bodies(text):
        if body.end <= place:
            directives = _DIRECTIVE.findall(text, body.start, body.end)
            kept += [text[at : body.start], "{;\n", *(f"{one}\n" for one in directives), "}"]
            at = body.end
    return "".join([*kept, text[at:place]])
