"""A Python text cut into regions, each a top-level statement: what an edit touches is a region or two.

Regions are found by a lexer that knows strings, comments, brackets and the first column, so that they
depend on nothing but the text. Each is parsed on its own: a syntax error stays in its region.
Where an open bracket or string would swallow the rest of the file, the next line that can only
begin a definition or an import ends it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple


class Change(NamedTuple):
    """Characters [start, old_end) of the text before became [start, new_end)."""

    start: int
    old_end: int
    new_end: int


_MARK = re.compile(
    r'''
    (?: [^"'\#()\[\]{}\n\\]++ | \n (?! \f* [^\s\#)\]}] ) )*+           # what changes nothing
    (?: (?P<long> """ [^"\\]*+ (?: (?: \\. | "(?!"") ) [^"\\]*+ )*+ """
                | \'\'\' [^'\\]*+ (?: (?: \\. | '(?!'') ) [^'\\]*+ )*+ \'\'\' )
      | (?P<endless> """ | \'\'\' )
      | " [^"\\\n]*+ (?: \\. [^"\\\n]*+ )*+ "
      | ' [^'\\\n]*+ (?: \\. [^'\\\n]*+ )*+ '
      | \# [^\n]*+
      | \\ \r?\n
      | (?P<open> [(\[{] )
      | (?P<close> [)\]}] )
      | (?P<line> \n )
      | .
      | \Z )
    ''',
    re.VERBOSE | re.DOTALL,
)
_MARGIN = r"(?:[\f\ufeff]|\\\r?\n\s*+)*+"
"""What a statement in the first column may have before it: a line that is only continued counts for nothing."""
_CONTINUES = re.compile(rf"{_MARGIN}(?:else|elif|except|finally)\b")
_DECORATES = re.compile(rf"{_MARGIN}@")
_DECORATED = re.compile(rf"{_MARGIN}(?:(?:def|class|async)\b|@)")
_ONLY_TOP = re.compile(  # never begins a line inside brackets
    rf"{_MARGIN}(?:(?:async[ \t]+def|def|class|import)[ \t]+[^\W\d]\w*[ \t]*[(:,.\[\r\n]|from[ \t]+[\w.]+[ \t]+import\b)"
)
_TOP = re.compile(rf"\n(?={_DECORATES.pattern}|{_ONLY_TOP.pattern})")


class Split(NamedTuple):
    """Where regions begin, in order."""

    starts: list[int]
    recovered: bool
    """A triple-quoted string had no end, so all such strings were held broken that have a definition in them."""


def split(text: str) -> Split:
    """The regions of `text`; the first begins at 0, comments and blank lines included."""
    try:
        return Split(list(_boundaries(text, 0)), recovered=False)
    except _EndlessStringError:
        return Split(list(_boundaries(text, 0, recover=True)), recovered=True)


def resplit(old: Split, text: str, change: Change) -> tuple[int, Split, int]:
    """Follow a change: (regions kept before it, the new ones, first old region kept after it).

    `old` are the regions of the text before, `text` is the text after. Lexing goes on until it
    meets a beginning that was one before, too: from there on nothing can differ. What was cut to
    recover says nothing of a text whose strings end, so then all of it is cut anew.
    """
    starts, recovered = old
    if recovered:
        return 0, split(text), len(starts)
    # an edit at a region's beginning may join it to the one above
    first = max(bisect_right(starts, change.start) - 3, 0)
    try:
        found, after = _until_known(starts, first, text, change, recover=False)
    except _EndlessStringError:
        recovered = True
        found, after = _until_known(starts, first, text, change, recover=True)
    return first, Split(found, recovered), after


def _until_known(
    starts: Sequence[int], first: int, text: str, change: Change, *, recover: bool
) -> tuple[list[int], int]:
    found: list[int] = []
    by = change.new_end - change.old_end
    for boundary in _boundaries(text, starts[first], recover=recover):
        if boundary >= change.new_end:
            old = bisect_left(starts, boundary - by)
            if old < len(starts) and starts[old] == boundary - by:
                return found, old
        found.append(boundary)
    return found, len(starts)


class _EndlessStringError(Exception):
    """A triple-quoted string has no end: some quote before it is the wrong way round."""


def _boundaries(text: str, start: int, *, recover: bool = False) -> Iterator[int]:
    """The beginnings of regions from `start`, itself one of them, on.

    To `recover` is to hold every triple-quoted string broken that has a definition in its first
    column.
    """
    at: int | None = start
    while at is not None:
        yield at
        at = yield from _boundaries_after(text, at, recover=recover)


def _boundaries_after(text: str, start: int, *, recover: bool) -> Generator[int, None, int | None]:
    """Returns where to go on after a broken string."""
    depth = 0
    decorating = _DECORATES.match(text, start) is not None
    decorators: int | None = None  # inside brackets: decorators that may belong to what follows
    for mark in _MARK.finditer(text, start):
        kind = mark.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth -= depth > 0
        elif kind == "line":
            here = mark.end()
            decorates = _DECORATES.match(text, here) is not None
            if depth:
                if _ONLY_TOP.match(text, here):
                    yield here if decorators is None else decorators
                    depth, decorating, decorators = 0, False, None
                elif not decorates:
                    decorators = None
                elif decorators is None:
                    decorators = here
                continue
            if not (_CONTINUES.match(text, here) or (decorating and _DECORATED.match(text, here))):
                yield here
            decorating, decorators = decorates, None
        elif kind == "endless" or (kind == "long" and recover):
            if not recover:
                raise _EndlessStringError
            end = mark.end() if kind == "long" else len(text)
            broken = _TOP.search(text, mark.start(kind), end)
            if broken or kind == "endless":
                return broken.end() if broken else None
    return None
