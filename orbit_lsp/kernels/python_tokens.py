"""Python text -> its tokens, in pieces. What two texts must share to count as the same code.

Comments, blank lines, spacing inside a line and line breaks inside brackets leave no trace; the
nesting of indentation does, its width does not. Tolerant: every text has tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

CUT = "\0"
"""Stands where a piece begins or ends; the caller's text holds no other NUL."""

_TOKEN = re.compile(
    r"""
      (?: \r?\n [ \t\f\r]* )+                                       # line ends, then the indentation
    | [^\W\d]\w* (?!["'\w])                                         # a word that is no string's prefix
    | \.[^\W\d]\w*                                                  # an attribute
    | [rRbBuUfFtT]{0,2}
      (?: \"\"\" [^"\\]* (?: (?: \\. | "(?!"") ) [^"\\]* )* \"\"\"
        | '''    [^'\\]* (?: (?: \\. | '(?!'') ) [^'\\]* )* '''
        | "      [^"\\\n]* (?: \\. [^"\\\n]* )* "
        | '      [^'\\\n]* (?: \\. [^'\\\n]* )* ' )
    | \#[^\n]*
    | \\\r?\n                                                       # a line that continues
    | \w+
    | [^\w\s]
    | \0
    """,
    re.VERBOSE | re.DOTALL,
)
_TAB = 8


def pieces(text: str, cuts: Sequence[bool] = ()) -> list[list[str]]:
    """The tokens of `text`, cut at each `CUT`.

    `cuts` says of each, in order, whether a piece begins there (or the innermost one ends). Piece 0
    is what stands outside all others; the rest come in the order of their beginnings. A line's
    first token is preceded by its depth as `"\\n2"`; an attribute is one token, `".name"`.
    """
    result: list[list[str]] = [[]]
    open_pieces = [result[0]]
    piece = result[0]
    cut = 0
    brackets = 0
    indents: list[int] = []
    line_start: str | None = "\n"
    dot = False
    for token in _TOKEN.findall(text):
        first = token[0]
        if first in "\n\r":
            if not brackets:
                line_start = token
            continue
        if first == "#" or (first == "\\" and len(token) > 1):
            continue
        if first == CUT:
            if cuts[cut]:
                piece = []
                result.append(piece)
                open_pieces.append(piece)
            else:
                open_pieces.pop()
                piece = open_pieces[-1]
            cut += 1
            continue
        if line_start is not None:
            if dot:
                piece.append(".")
                dot = False
            width = _width(line_start)
            while indents and width < indents[-1]:
                indents.pop()
            if not indents or width > indents[-1]:
                indents.append(width)
            piece.append(f"\n{len(indents)}")
            line_start = None
        if dot:  # `. name` is the same as `.name`
            dot = False
            token = "." + token  # noqa: PLW2901 - the rest of the loop means the whole token
        elif token == ".":
            dot = True
            continue
        elif first in "([{":
            brackets += 1
        elif first in ")]}" and brackets:
            brackets -= 1
        piece.append(token)
    if dot:
        piece.append(".")
    return result


def _width(line_start: str) -> int:
    indentation = line_start[line_start.rindex("\n") + 1 :].rpartition("\f")[2].rstrip("\r")
    return len(indentation.expandtabs(_TAB)) if "\t" in indentation else len(indentation)
