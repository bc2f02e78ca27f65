"""Returns the tokens of a Python text in pieces: what two texts must share to count as the same code.

Comments, blank lines, spacing inside a line and line breaks inside brackets do not count. The nesting of indentation
counts, its width does not. It accepts every text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

CUT = "\0"
"""Stands where a piece begins or ends; the caller's text holds no other NUL."""

_TOKEN = re.compile(
    r"""
      (?: \r?\n [ \t\f\r]* )+                                       # line ends, then the indentation
    | [^\W\d]\w* (?!["'\w])                                         # a word that is no string's prefix
    | \.[^\W\d]\w*                                                  # an attribute
    | [rRbBuUfFtT]{0,2}
      (?: \"\"\" [^"\\\0]*+ (?: (?: \\[^\0] | "(?!"") ) [^"\\\0]*+ )* \"\"\"
        | \'\'\' [^'\\\0]*+ (?: (?: \\[^\0] | '(?!'') ) [^'\\\0]*+ )* \'\'\'
        | "      [^"\\\n\0]*+ (?: \\[^\0] [^"\\\n\0]*+ )* "
        | '      [^'\\\n\0]*+ (?: \\[^\0] [^'\\\n\0]*+ )* ' )
    | \#[^\n\0]*
    | \\\r?\n                                                       # a line that continues
    | \w+
    | [^\w\s]
    | \0
    """,
    re.VERBOSE | re.DOTALL,
)
_TAB = 8


def pieces(text: str, cuts: Sequence[bool] = ()) -> list[list[str]]:
    r"""Return the tokens of `text`, cut at each `CUT`.

    `cuts` says of each, in order, whether a piece begins there (or the innermost one ends). Piece 0 is what stands
    outside all others; the others follow in the order of their beginnings. A line's first token is preceded by its
    depth as `"\n2"`. An attribute is one token, `".name"`.
    """
    piece: list[str] = []
    result = [piece]
    around: list[list[str]] = []
    following_cuts = iter(cuts)
    brackets = 0
    indents: list[int] = []
    pending = "\n"  # a line start or a lone dot that the next token belongs to
    for token in _TOKEN.findall(text):
        kind = _KINDS.get(token[0])
        if kind is None and not pending:
            piece.append(token)
            continue
        if kind == "line":
            if not brackets and pending != ".":
                pending = token
            continue
        if kind == "comment" or (kind == "backslash" and len(token) > 1):
            continue
        if kind == "cut":
            if next(following_cuts):
                around.append(piece)
                piece = []
                result.append(piece)
            else:
                piece = around.pop()
            continue
        if pending == ".":  # `. name` is the same as `.name`
            piece.append("." + token)
            pending = ""
        else:
            if pending:
                width = _width(pending)
                while indents and width < indents[-1]:
                    indents.pop()
                if not indents or width > indents[-1]:
                    indents.append(width)
                piece.append(_DEPTHS[min(len(indents), len(_DEPTHS) - 1)])
                pending = ""
            if token == ".":  # noqa: S105 - a token of Python
                pending = "."
                continue
            piece.append(token)
        if kind == "open":
            brackets += 1
        elif kind == "close" and brackets:
            brackets -= 1
    return result


_KINDS = {
    "\n": "line",
    "\r": "line",
    "#": "comment",
    "\\": "backslash",
    CUT: "cut",
    "(": "open",
    "[": "open",
    "{": "open",
    ")": "close",
    "]": "close",
    "}": "close",
    ".": "dot",
}
_DEPTHS = [f"\n{depth}" for depth in range(200)]


@lru_cache(maxsize=256)
def _width(line_start: str) -> int:
    """Return the width of the indentation after the last line end. A form feed starts it anew, as in CPython."""
    indentation = re.split(r"[\n\f]", line_start)[-1].rstrip("\r")
    return len(indentation.expandtabs(_TAB))
