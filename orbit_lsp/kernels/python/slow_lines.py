"""Replaces many comments and bare continuations in a row by blanks for the parser. From each of them tree-sitter
reads ahead over all that follow, so that 40,000 of them take a minute.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orbit_lsp.kernels.python.expressions import parser
from orbit_lsp.kernels.python.regions import MARK
from orbit_remote.common import limits

if TYPE_CHECKING:
    from tree_sitter import Node

ORBIT = re.compile(r"#+\s*orbit:")
_IN_A_ROW = 32
_SPECS_IN_A_ROW = 200
_PIECE = 1 << 12
"""Bytes that the parser asks for at once. It keeps the interpreter to itself in between."""


def blanked(text: str) -> tuple[bytes, dict[int, tuple[str, ...]]]:
    """Replace lines by blanks in the bytes of a text, whose length stays the same.

    The lines are those that are only a comment or a continuation, behind many others. Return also, for each `#
    orbit:` comment that stands for such lines, where it begins and which lines they are.
    """
    if text.count("#") + text.count("\\") <= _IN_A_ROW:
        return text.encode(), {}
    parts: list[bytes] = []
    size = done = 0
    last = -1  # where the lines in a row end so far
    count = specs = last_spec = 0
    stands_for: dict[int, list[str]] = {}

    def take(until: int, *, blank: bool = False) -> None:
        nonlocal size, done
        part = text[done:until].encode()
        parts.append(b" " * len(part) if blank else part)
        size, done = size + len(part), until

    for mark in MARK.finditer(text):
        kind = mark.lastgroup
        if kind not in ("comment", "continued"):
            continue
        start, end = mark.span(kind)
        if last < 0 or text[last:start].strip():  # code is between them
            count = specs = 0
            alone = not text[text.rfind("\n", 0, start) + 1 : start].strip()
            if not alone and kind == "comment":
                continue
        last = end
        count += 1
        if kind == "comment" and ORBIT.match(text, start, end):
            specs += 1
            take(start)
            if specs <= _SPECS_IN_A_ROW:
                last_spec = size
            else:
                stands_for.setdefault(last_spec, []).append(text[start:end])
                take(end, blank=True)
        elif count > _IN_A_ROW:
            take(start)
            take(start + 1 if kind == "continued" else end, blank=True)
    take(len(text))
    return b"".join(parts), {at: tuple(comments) for at, comments in stands_for.items()}


def parsed(data: bytes) -> Node:
    """Return the tree of a text. While a long text is parsed, other threads may run in between."""
    if len(data) <= limits.AT_ONCE.most:
        return parser().parse(data).root_node
    return parser().parse(lambda at, _: data[at : at + _PIECE]).root_node
