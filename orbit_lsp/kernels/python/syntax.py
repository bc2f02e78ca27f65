"""The syntax tree of a Python text, by tree-sitter: made afresh, or out of the tree of an earlier text by the edit between them.

Comments and bare continuations, many in a row, are slow: from each of them tree-sitter reads ahead over all that follow, so that
40,000 of them take a minute. The parser is given blanks in their place.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, AnyStr, NamedTuple

from orbit_lsp.kernels.python.regions import MARK
from orbit_remote.common import limits

if TYPE_CHECKING:
    from tree_sitter import Language, Tree

ORBIT = re.compile(r"#+\s*orbit:")
_SLOW_LINE = re.compile(r"^[^\S\n]*+#[^\n]*+|\\\r?$", re.MULTILINE)
_IN_A_ROW = 32
_SPECS_IN_A_ROW = 200
_PIECE = 1 << 12
"""Bytes that the parser asks for at once. It keeps the interpreter to itself in between."""


class SyntaxText(NamedTuple):
    """A text that was parsed, in UTF-8. `readable` is what the parser was given: as long, line by line. `stands_for` says where an
    `# orbit:` comment begins that stands for others behind it, and what those are.
    """

    data: bytes
    readable: bytes
    stands_for: dict[int, tuple[str, ...]]
    tree: Tree


def parsed(text: str, before: SyntaxText | None = None) -> SyntaxText:
    """Parse a text. The tree is the same whether `before` is given or not: it only saves time."""
    data = text.encode()
    readable, stands_for = blanked(text) if _has_slow_lines(text) else (data, {})
    tree = _edited(before, readable) if before else None
    return SyntaxText(data, readable, stands_for, parse(readable, tree))


def parse(data: bytes, tree: Tree | None = None) -> Tree:
    """Return the tree of a text in UTF-8. `tree` is that of an earlier text, edited. While a long text is parsed, other threads go on."""
    # a parser of its own: it is not to be shared with the thread that goes on
    from tree_sitter import Parser

    def read(at: int, _: object) -> bytes:
        return data[at : at + _PIECE]

    parser = Parser(_language())
    source = data if len(data) <= limits.AT_ONCE.most else read
    return parser.parse(source, tree) if tree else parser.parse(source)


@cache
def _language() -> Language:
    """Return the grammar. Tree-sitter loads on the first Python file, not with the server."""
    import tree_sitter
    import tree_sitter_python

    return tree_sitter.Language(tree_sitter_python.language())


# -- edits -----------------------------------------------------------------------------------------


def _edited(before: SyntaxText, data: bytes) -> Tree:
    """Return the tree of `before`, told where `data` differs."""
    old = before.readable
    start = same_at_start(old, data)
    behind = same_at_end(old, data, min(len(old), len(data)) - start)
    # an edit is of whole characters
    while start and old[start : start + 1] and not _begins_character(old, start):
        start -= 1
    while behind and not _begins_character(old, len(old) - behind):
        behind -= 1
    old_end, new_end = len(old) - behind, len(data) - behind
    tree = before.tree.copy()
    tree.edit(
        start, old_end, new_end, _point(old, start), _point(old, old_end), _point(data, new_end)
    )  # fmt: skip
    return tree


def _begins_character(data: bytes, at: int) -> bool:
    return at >= len(data) or data[at] & 0xC0 != 0x80


def _point(data: bytes, at: int) -> tuple[int, int]:
    return data.count(b"\n", 0, at), at - (data.rfind(b"\n", 0, at) + 1)


def same_at_start(one: AnyStr, other: AnyStr) -> int:
    """Return with how many characters two texts begin alike."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def same_at_end(one: AnyStr, other: AnyStr, most: int) -> int:
    """Return with how many characters two texts end alike, at most `most`."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one[len(one) - middle : len(one) - low] == other[len(other) - middle : len(other) - low]:
            low = middle
        else:
            high = middle - 1
    return low


# -- slow lines ------------------------------------------------------------------------------------


def blanked(text: str) -> tuple[bytes, dict[int, tuple[str, ...]]]:
    """Return the text with blanks for lines that are only a comment or a continuation and stand behind so many of them. It is as long, byte
    for byte. Return too where each `# orbit:` comment begins that stands for such lines, and what they are.
    """
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


def _has_slow_lines(text: str) -> bool:
    """Return whether so many lines in a row may be only comments and continuations. In a string they only seem to be."""
    if text.count("#") + text.count("\\") <= _IN_A_ROW:
        return False
    count = last = 0
    for line in _SLOW_LINE.finditer(text):
        count = 1 if text[last : line.start()].strip() else count + 1
        last = line.end()
        if count > _IN_A_ROW:
            return True
    return False
