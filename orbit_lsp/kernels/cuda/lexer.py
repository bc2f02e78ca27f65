"""The lexical layer of CUDA C++: where code is, where it is not, and what its tokens are.

All patterns are possessive (`*+`, `++`): each reads its input once, whatever the input is.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

# Before Python 3.11.5 a possessive group that ends with an alternative which fails after a look-ahead takes what that
# saw (gh-100061). So the repeated class is the last alternative of each group here and in `harness_files`.
_ESCAPE = r"\\(?:\r\n|[\s\S])"
_RAW_BODY = r'[^()\\\s"]{0,16})\((?:\)(?!(?P=delimiter)")|[^)]++)*+(?:\)(?P=delimiter)")?+'
_RAW_STRING = rf'"(?<=R")(?:(?<!\wR")|(?<=\b[LuU]R")|(?<=\bu8R"))(?P<delimiter>{_RAW_BODY}'
_STRING = rf'"(?:{_ESCAPE}|[^"\\\n]++)*+"?+'
# the quote in 1'000 and in 0xAB'CD, but neither the one in u8'a' nor the one in case'a'
_SEPARATOR = r"'(?:(?<=\d')(?<!\bu8')|(?<=[a-fA-F]')(?=[0-9a-fA-F][^']))(?=[0-9a-fA-F])"
_CHARACTER = rf"'(?:{_ESCAPE}|[^'\\\n]++)++'"
_LINE_COMMENT = rf"//(?:{_ESCAPE}|[^\\\n]++)*+"
_BLOCK_COMMENT = r"/\*(?:\*(?!/)|[^*]++)*+(?:\*/)?+"
_CLOSED_LITERAL = r"\"(?:\\.|[^\"\\\n]++)*+\"|'(?:\\.|[^'\\\n]++)*+'"
_DIRECTIVE_PART: Final = re.compile(
    rf"(?:[^\n\\/\"']++|{_LINE_COMMENT}|{_BLOCK_COMMENT}|{_CLOSED_LITERAL}|{_ESCAPE}|[/\"'\\]){{1,4096}}"
)
"""Of a directive behind its `#`. All threads wait for one match: a directive of a million lines takes several."""
_SKIPPABLE = rf"{_RAW_STRING}|{_STRING}|{_SEPARATOR}|{_CHARACTER}|{_LINE_COMMENT}|{_BLOCK_COMMENT}|\#"

ITEM: Final = re.compile(rf"\(|\)|;|\{{|\}}|{_SKIPPABLE}|<(?=<<)")
"""What the structure of a file hangs on; between two items there is plain code.

A `<` is the first of `<<<`; a `#` may start a directive (see `directive_end`).
"""

SKIPPED_ITEM: Final = re.compile(_SKIPPABLE)
"""The same for text that the preprocessor skips, where braces count for nothing."""

TOKEN: Final = re.compile(
    rf'(?:u8|[uUL])?+R"(?P<delimiter>{_RAW_BODY}'
    r"|(?:[^\W\d]|\$)[\w$]*+|\.?+\d(?:[eEpP][+-]|'\w|[\w.])*+"
    rf"|{_STRING}|{_CHARACTER}"
    r"|->\*?+|\+\+|--|<<=|>>=|<=>|[-+*/%&|^<>=!]=|&&|\|\||::|\.\.\.|\#\#|[^\s\w\ufeff\\]|\\(?!\r?\n)"
)
"""One token; `<<` and `>>` come as two, so that `>>` can close two template argument lists."""

IDENTIFIER: Final = re.compile(r"(?:[^\W\d]|\$)[\w$]*+")  # nvcc takes a $, as gcc

LONE_RETURN: Final = re.compile(r"\r(?!\n)")
"""It ends a line, as an editor shows it."""

_COMMENT_OR_LITERAL = re.compile(rf"(?P<comment>{_LINE_COMMENT}|{_BLOCK_COMMENT})|{_CLOSED_LITERAL}")

_WORDS = re.compile(r"(?:\S++\s*+){1,8192}")
"""So many that all threads may wait for what is made of them."""
# A space is needed where its removal would join two words or make another operator of two.
_NEEDLESS_SPACE = re.compile(
    r" (?!\w(?<=\w \w)|=(?<=[-+*/%&|^<>=!] =)"
    r"|[-+&|<>:#](?<=\+ \+|- -|- >|& &|\| \||< <|> >|: :|\# \#)"
    r"|[.\d*](?<=\. .)|\.(?<=\d \.)|[*/](?<=/ .))"
)

CLOSED_LITERAL: Final = re.compile(_CLOSED_LITERAL)
_FUNCTION_LIKE = re.compile(r"\#\s*define\s+\w+\(")

Kind = int
COMMENT: Final[Kind] = 0
"""A comment, or text in a branch that the preprocessor never takes."""
LITERAL: Final[Kind] = 1
DIRECTIVE: Final[Kind] = 2
DATA: Final[Kind] = 3
"""The rest of a line that is not read."""


class CudaToken(NamedTuple):
    """A token. `start` and `end` are its place in the text that it came from (for a macro: of its invocation)."""

    text: str
    start: int
    end: int


def clean_directive(text: str) -> str:
    """Return a directive on one line, without its comments."""
    line = text.replace("\\\r\n", " ").replace("\\\n", " ")
    return (
        _COMMENT_OR_LITERAL.sub(lambda match: " " if match["comment"] else match[0], line)
        if "/" in line
        else line
    )


def directive_end(text: str, hash_at: int) -> int:
    """Return where the directive ends that starts at `hash_at`. Return -1 unless only blanks stand before it on its
    line.
    """
    position = hash_at - 1
    while position >= 0 and text[position] in " \t\f\v\ufeff":
        position -= 1
    if position >= 0 and text[position] != "\n" and not text.endswith("*/", 0, position + 1):
        return -1
    return end_of(_DIRECTIVE_PART, text, hash_at + 1)


def end_of(part: re.Pattern[str], text: str, position: int) -> int:
    """Return where the last of the consecutive parts from `position` on ends."""
    while match := part.match(text, position):
        position = match.end()
    return position


def tokenize(text: str, offset: int = 0) -> list[CudaToken]:
    """Return the tokens of `text`, with their places moved by `offset` characters."""
    return [CudaToken(m[0], m.start() + offset, m.end() + offset) for m in TOKEN.finditer(text)]


class CudaSource:
    """A text and its parts that are not plain code, in order, as they become known."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts: list[int] = []
        self._gaps: list[tuple[int, Kind]] = []

    def gap(self, start: int, end: int, kind: Kind) -> None:
        self._starts.append(start)
        self._gaps.append((end, kind))

    def forget(self) -> None:
        """Forget the known gaps. Nobody asks again about a place before the next gap."""
        self._starts.clear()
        self._gaps.clear()

    def outside(self, position: int) -> int:
        """Return `position`, or the end of the gap in which it stands."""
        index = bisect_right(self._starts, position) - 1
        return max(position, self._gaps[index][0]) if index >= 0 else position

    def gaps(self, start: int, end: int) -> Iterator[tuple[int, int, Kind]]:
        index = bisect_left(self._starts, start)
        while index < len(self._starts) and self._starts[index] < end:
            yield self._starts[index], *self._gaps[index]
            index += 1

    def code(self, start: int, end: int) -> str:
        """Return the text with blanks for what is neither code nor a literal. Every character keeps its place."""
        parts: list[str] = []
        done = start
        for begin, stop, kind in self.gaps(start, end):
            if kind != LITERAL:
                parts += (self.text[done:begin], " " * (min(stop, end) - begin))
                done = stop
        parts.append(self.text[done:end])
        return "".join(parts)

    def comments_above(self, start: int, limit: int) -> list[str]:
        """Return the comments that end before `start` with only white space between, the highest first. None
        begins before `limit`.
        """
        comments: list[str] = []
        for begin, stop, kind in reversed(list(self.gaps(limit, start))):
            if kind != COMMENT or self.text[stop:start].strip():
                break
            comments.append(self.text[begin:stop])
            start = begin
        return comments[::-1]

    def tokens(self, start: int, end: int) -> str:
        """Return a text that is equal exactly for equal token sequences."""
        text = self.text
        code: list[str] = []
        verbatim: list[str] = []
        done = start
        for begin, stop, kind in self.gaps(start, end):
            code.append(text[done:begin])
            done = stop
            if kind in (LITERAL, DATA):
                code.append('"')
                verbatim.append(text[begin:stop])
            elif kind == DIRECTIVE:
                code.append("\1")
                verbatim.append(directive_tokens(text[begin:stop]))
            else:
                code.append(" ")
        code.append(text[done:end])
        joined = _normal("".join(code))
        return "\0".join((joined, *verbatim)) if verbatim else joined


def directive_tokens(text: str) -> str:
    """Return the tokens of one directive as `CudaSource.tokens` does. `#define F(x)` and `#define F (x)` differ."""
    text = clean_directive(text)
    verbatim: list[str] = []
    if '"' in text or "'" in text:
        verbatim = CLOSED_LITERAL.findall(text)
        text = CLOSED_LITERAL.sub('"', text)
    if _FUNCTION_LIKE.match(text):
        text = "\2" + text
    return "\0".join((_normal(text), *verbatim))


def _normal(code: str) -> str:
    if "\\" in code:
        code = code.replace("\\\r\n", " ").replace("\\\n", " ")
    parts = [" ".join(words[0].split()) for words in _WORDS.finditer(code.replace("\ufeff", " "))]
    # a space counts by the characters beside it, so each part is read with the first of the next
    return "".join(
        _NEEDLESS_SPACE.sub("", f"{part} {following[:1]}")[: -1 if following else None]
        for part, following in pairwise([*parts, ""])
    )
