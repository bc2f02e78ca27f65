"""Cuts a Python text into regions, one for each top-level statement.

A lexer that knows strings, comments, brackets and the first column finds them, so they depend only on the text. Each
is parsed on its own: a syntax error stays in its region. An open bracket or string would swallow the rest of the
file; the next line that can only begin a definition or an import ends it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from itertools import chain, islice, pairwise
from typing import NamedTuple

from orbit_lsp.kernels import piecewise
from orbit_remote.common import limits

# No possessive quantifier around a group: Python before 3.11.5 gets those wrong (gh-106052), and Debian 12 has 3.11.2.
MARK = re.compile(
    r'''
    (?: [^"'\#()\[\]{}\n\\]++ | \n (?! \f* [^\s\#)\]}] ) )*            # what changes nothing
    (?: (?P<long> """ [^"\\]*+ (?: (?: \\. | "(?!"") ) [^"\\]*+ )* """
                | \'\'\' [^'\\]*+ (?: (?: \\. | '(?!'') ) [^'\\]*+ )* \'\'\' )
      | (?P<endless> """ | \'\'\' )
      | " [^"\\\n]*+ (?: \\. [^"\\\n]*+ )* "
      | ' [^'\\\n]*+ (?: \\. [^'\\\n]*+ )* '
      | (?P<comment> \# [^\n]*+ )
      | (?P<continued> \\ \r?\n )
      | (?P<open> [(\[{] )
      | (?P<close> [)\]}] )
      | (?P<line> \n )
      | .
      | \Z )
    ''',
    re.VERBOSE | re.DOTALL,
)
_MARGIN = r"(?:[\f\ufeff]|\\\r?\n\s*+)*"
"""What a statement in the first column may have before it: a line that is only continued counts for nothing."""
_CONTINUES = re.compile(rf"{_MARGIN}(?:else|elif|except|finally)\b")
_DECORATES = re.compile(rf"{_MARGIN}@")
_DECORATED = re.compile(rf"{_MARGIN}(?:(?:def|class|async)\b|@)")
_ONLY_TOP = re.compile(  # never begins a line inside brackets
    rf"{_MARGIN}(?:(?:async[ \t]+def|def|class|import)[ \t]+[^\W\d]\w*[ \t]*[(:,.\[\r\n]|from[ \t]+[\w.]+[ \t]+import\b)"
)
_TOP = re.compile(rf"\n(?={_DECORATES.pattern}|{_ONLY_TOP.pattern})")
_FURTHEST = 1 << 12
"""Characters that a statement in the first column may have before it."""


class Split(NamedTuple):
    """The texts of the regions. Together they are the whole text, with comments and blank lines."""

    regions: list[str]
    afresh: bool
    """Another text's regions are not taken over from it. A triple-quoted string had no end, so all such strings were held
    broken that have a definition in them; or there are too many regions, and the last one is all the rest.
    """


def split(text: str, before: Split | None = None) -> Split:
    """Return the regions of `text`. Most regions of another text, `before`, are reused if they stand at either end."""
    old = before.regions if before and not before.afresh else []
    same = count = 0
    for region in old:
        if not text.startswith(region, same):
            break
        same += len(region)
        count += 1
    count = max(count - 2, 0)  # what follows says where a region ends, and the last one may have grown
    start = sum(map(len, old[:count]))
    known: dict[int, int] = {}  # where the last regions begin -> their numbers
    end = len(text)
    for number in reversed(range(len(old))):
        end -= len(old[number])
        if end < start or not text.startswith(old[number], end):
            break
        known[end] = number
    try:
        return _within_limit(text, chain(old[:count], _until_known(text, start, old, known)), afresh=False)
    except _EndlessStringError:
        starts = chain(_boundaries(text, 0, recover=True), (len(text),))
        return _within_limit(text, (text[a:b] for a, b in pairwise(starts)), afresh=True)


def _within_limit(text: str, regions: Iterator[str], *, afresh: bool) -> Split:
    most = limits.STATEMENTS.most
    taken = list(islice(regions, most))
    rest = text[sum(map(len, taken)) :] if len(taken) == most else ""
    return Split([*taken, rest], afresh=True) if rest else Split(taken, afresh=afresh)


def _until_known(text: str, start: int, old: list[str], known: dict[int, int]) -> Iterator[str]:
    """Yield the regions from `start` on. Once a known region begins, nothing after it can differ."""
    for boundary in _boundaries(text, start):
        if boundary > start:
            yield text[start:boundary]
        if boundary in known:
            yield from old[known[boundary] :]
            return
        start = boundary
    yield text[start:]


class _EndlessStringError(Exception):
    """A triple-quoted string has no end: some quote before it is the wrong way round."""


def _boundaries(text: str, start: int, *, recover: bool = False) -> Iterator[int]:
    """Yield the beginnings of regions from `start` on, itself one of them.

    `recover`: every triple-quoted string that has a definition in its first column counts as broken.
    """
    at: int | None = start
    while at is not None:
        yield at
        at = yield from _boundaries_after(text, at, recover=recover)


def _boundaries_after(text: str, start: int, *, recover: bool) -> Generator[int, None, int | None]:
    """Yield beginnings. Return where to go on after a broken string."""
    depth = 0
    decorating = _DECORATES.match(text, start) is not None
    decorators: int | None = None  # inside brackets: decorators that may belong to what follows
    for mark in MARK.finditer(text, start):
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
            broken = piecewise.search(_TOP, text, mark.start(kind), end, _FURTHEST)
            if broken or kind == "endless":
                return broken.end() if broken else None
    return None
