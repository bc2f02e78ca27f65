"""Cuts a statement into tokens, each with its place. Names are ASCII: look-alike letters are faults."""

from __future__ import annotations

import re
from typing import Final, Literal

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.comment_scanner import SpecStatement
from orbit_remote.spec.syntax_tree import Language, SpecError, SpecSpan

MOST_TOKENS: Final = 800
LONGEST_WORD: Final = 400

Kind = Literal["name", "number", "string", "operator", "end"]


@dataclass(frozen=True, slots=True)
class SpecToken:
    kind: Kind
    text: str
    span: SpecSpan


_NUMBER_CPP = (
    r"0[xX][\da-fA-F']+[\w]*|0[bB][01']+\w*|(?:\d[\d']*)?\.\d[\d']*(?:[eE][+-]?\d+)?\w*|"
    r"\d[\d']*\.?(?:[eE][+-]?\d+)?\w*"
)
_NUMBER_PYTHON = (
    r"0[xX][\da-fA-F_]+\w*|0[bB][01_]+\w*|0[oO][0-7_]+\w*|(?:\d[\d_]*)?\.\d[\d_]*(?:[eE][+-]?\d+)?\w*|"
    r"\d[\d_]*\.?(?:[eE][+-]?\d+)?\w*"
)
_TOKEN = {
    "cuda": re.compile(
        rf"(?P<number>{_NUMBER_CPP})|(?P<name>[A-Za-z_$][\w$]*)|(?P<string>\"(?:[^\"\\]|\\.)*\")|"
        r"(?P<operator><<<|>>>|<<|>>|<=|>=|==|!=|&&|\|\||::|[-+*/%@<>=!~&|^?:.,(){}\[\]])",
        re.ASCII,
    ),
    "triton": re.compile(
        rf"(?P<number>{_NUMBER_PYTHON})|(?P<name>[A-Za-z_]\w*)|"
        r"(?P<string>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|"
        r"(?P<operator>\*\*|//|<<|>>|<=|>=|==|!=|:=|[-+*/%@<>=~&|^:.,(){}\[\]])",
        re.ASCII,
    ),
}


def tokens(statement: SpecStatement, language: Language) -> list[SpecToken]:
    """Return all tokens and an `end`. Raises SpecError at a character that begins no token."""
    read: list[SpecToken] = []
    for piece in statement.pieces:
        text, at = piece.text, 0
        while at < len(text):
            if text[at] in " \t\f\v":
                at += 1
                continue
            match = _TOKEN[language].match(text, at)
            if not match:
                raise _no_token(text, at, piece.line, piece.column)
            span = SpecSpan(piece.line, piece.column + at, piece.line, piece.column + match.end())
            if len(match[0]) > LONGEST_WORD:
                raise SpecError(span, f"This is longer than {LONGEST_WORD} characters.")
            kind: Kind = match.lastgroup or "end"  # pyright: ignore[reportAssignmentType]
            read.append(SpecToken(kind, match[0], span))
            if len(read) > MOST_TOKENS:
                raise SpecError(span, f"A statement has at most {MOST_TOKENS} tokens; give its parts names.")
            at = match.end()
    last = statement.span
    read.append(
        SpecToken("end", "", SpecSpan(last.end_line, last.end_column, last.end_line, last.end_column))
    )
    return read


def _no_token(text: str, at: int, line: int, column: int) -> SpecError:
    character = text[at]
    span = SpecSpan(line, column + at, line, column + at + 1)
    if character in "\"'":
        return SpecError(
            SpecSpan(line, column + at, line, column + len(text)), "This string is never closed."
        )
    if not character.isascii() or not character.isprintable():
        return SpecError(span, f"{character!a} (U+{ord(character):04X}) has no meaning here.")
    return SpecError(span, f"'{character}' has no meaning here.")
