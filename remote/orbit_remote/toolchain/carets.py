"""Finds the columns that a compiler's caret really points at.

The CUDA front end (EDG) reads text that the host preprocessor has expanded. The line that it echoes under a message,
and so its caret, is that expanded line: `__global__` has become `__attribute__((global))`, macros are gone, comments
are a blank. The caret is brought back in two ways. If source and echo differ only in white space, characters are
counted. Otherwise both are split into tokens, and the source is read as a sequence of tokens that were copied and
macro invocations that were replaced by anything. The reading with the fewest invocations wins. If equally good
readings disagree about the token under the caret, the column is not known.

If a macro of a system header is expanded (`NULL`, `stderr`, `INFINITY`, `assert`), GCC ends the expanded line before
it and begins another one after it. So an echo may be a part of its line. Such a reading counts only if no reading of
the whole line explains the echo.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import QUOTED

_TOKEN = re.compile(
    r"""
    (?P<blank> [\s\ufeff]+ | \\\r?\n | //[^\\\n]*(?:\\(?:\r?\n)?[^\\\n]*)* | /\*.*?(?:\*/|\Z) )
    | (?:u8|[uUL])?R"(?P<fence>[^()\\\s"]{0,16})\(.*?\)(?P=fence)"
    | (?:u8|[uUL])?"[^"\\\n]*(?:\\.[^"\\\n]*)*"
    | (?:u8|[uUL])?'(?:[^'\\\n]|\\.)[^'\\\n]*(?:\\.[^'\\\n]*)*'
    | (?P<name> (?:[^\W\d]|\\[uU][0-9a-fA-F]{4,8}|\$)(?:\w|\\[uU][0-9a-fA-F]{4,8}|\$)* )
    | \.?\d(?:[eEpP][+-]|'?[\w.])*
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_OPERATOR = re.compile(r"<<<|>>>|<<=|>>=|<=>|->\*|\.\.\.|::|->|\+\+|--|<<|>>|&&|\|\||[-+*/%&|^=!<>]=|##")
_UNIVERSAL_NAME = re.compile(r"\\[uU]([0-9a-fA-F]{4,8})")
_REACH = 60  # lines that a macro invocation may span
_EFFORT = 120_000  # the most cells of the alignment; a longer line gets no column
_FAR = 1 << 40
_CUT = 1 << 20  # the cost of an echo that begins or ends within its line: more than any number of macros
_SLACK = 4000  # of cost, among the macros of a line that may have become a part of it
_INDENTED = 8  # characters of white space from which on GCC keeps the column of what follows a system's macro


@dataclass(frozen=True, slots=True)
class CaretSpan:
    """A token's place. Lines and columns count from 1, `end_column` is exclusive."""

    line: int
    column: int
    end_column: int | None


@dataclass(frozen=True, slots=True)
class CaretToken:
    text: str
    start: int
    end: int
    is_name: bool


def tokenise(text: str, start: int = 0, end: int | None = None) -> list[CaretToken]:
    """Return the tokens of C++ text without white space and comments; never fails."""
    tokens: list[CaretToken] = []
    for match in _TOKEN.finditer(text, start, len(text) if end is None else end):
        if match["blank"] is None:
            word, name = match[0], match["name"] is not None
            if name and "\\" in word:  # EDG echoes é as \U000000e9
                word = _UNIVERSAL_NAME.sub(lambda m: chr(int(m[1], 16)), word)
            tokens.append(CaretToken(word, match.start(), match.end(), name))
    return tokens


@dataclass(frozen=True, slots=True)
class _MacroCall:
    """One possible macro invocation: the tokens [start, end)."""

    start: int
    end: int

    @property
    def cost(self) -> int:
        return 1000 + self.end - self.start


class CaretSource:
    """One file's text. It is split into tokens at the first question. Text behind the limit has no place."""

    def __init__(self, text: str) -> None:
        self._whole = len(text) <= QUOTED.most
        self._text = text = text[: QUOTED.most]
        self._starts = [0, *(m.end() for m in re.finditer(r"\n", text))]
        self._tokens: list[CaretToken] | None = None
        self._offsets: list[int] = []
        self._spans: dict[tuple[int, str, int], CaretSpan | None] = {}

    def line(self, number: int) -> str:
        """Return the text of a line without its end. Return "" outside the file."""
        if not 1 <= number <= len(self._starts):
            return ""
        end = self._starts[number] if number < len(self._starts) else len(self._text)
        return self._text[self._starts[number - 1] : end].rstrip("\r\n")

    def last(self) -> CaretSpan | None:
        """Return the last token of the file."""
        tokens = self._all() if self._whole else []
        return self._span(tokens[-1]) if tokens else None

    def token_at(self, line: int, column: int) -> CaretSpan | None:
        """Return the token that covers a position, or the next one on that line, or the last before it."""
        if not 1 <= line <= len(self._starts):
            return None
        tokens = self._all()
        offset = self._starts[line - 1] + column - 1
        index = bisect_right(self._offsets, offset) - 1
        if index >= 0 and offset < tokens[index].end:
            return self._span(tokens[index])
        if index + 1 < len(tokens) and self._line_of(tokens[index + 1].start) == line:
            return self._span(tokens[index + 1])
        if index >= 0 and self._line_of(tokens[index].start) == line:
            return self._span(tokens[index])
        return None

    def named(self, line: int, name: str) -> CaretSpan | None:
        """Return the token `name` on a line, if it stands there exactly once."""
        if not 1 <= line <= len(self._starts):
            return None
        first, beyond = self._bounds(line)
        tokens = [t for t in self._all()[first:beyond] if t.text == name]
        return self._span(tokens[0]) if len(tokens) == 1 else None

    def uses(self, name: str) -> list[CaretSpan]:
        """Return every token `name` of the file. Comments and strings are left out."""
        return [self._span(t) for t in self._all() if t.text == name]

    def tokens(self) -> Sequence[CaretToken]:
        """Return the tokens of the file without comments."""
        return self._all()

    def span(self, start: int, end: int) -> CaretSpan:
        """Return the place of the characters [start, end) of one line."""
        return self._span(CaretToken(self._text[start:end], start, end, is_name=False))

    def line_of(self, offset: int) -> int:
        """Return the line of a character, from 1."""
        return self._line_of(offset)

    def locate(self, line: int, echo: str, caret: int) -> CaretSpan | None:
        """Return the token under character `caret` of the expanded line `echo`, which begins at `line`."""
        key = (line, echo, caret)
        if key not in self._spans:
            self._spans[key] = self._locate(line, echo, caret)
        return self._spans[key]

    def _locate(self, line: int, echo: str, caret: int) -> CaretSpan | None:
        text = self.line(line)
        if not text and not echo.strip():
            return None
        if "".join(text.split()) == "".join(echo.split()):
            before = len("".join(echo[:caret].split()))
            solid = [i for i, c in enumerate(text) if not c.isspace()]
            if before < len(solid):
                return self.token_at(line, solid[before] + 1)
            return self.token_at(line, len(text) + 1)
        return self._align(line, echo, caret)

    def _align(self, line: int, echo: str, caret: int) -> CaretSpan | None:
        words = tokenise(echo)
        if not words or not 1 <= line <= len(self._starts):
            return None
        under = next((i for i, w in enumerate(words) if caret < w.end), len(words) - 1)
        first, beyond = self._bounds(line)
        last_offset = self._starts[min(line + _REACH, len(self._starts)) - 1]
        reach = max(beyond, bisect_right(self._offsets, last_offset))
        tokens = self._all()[first:reach]
        if len(tokens) * len(words) > _EFFORT:
            tokens = tokens[: beyond - first]
            if len(tokens) * len(words) > _EFFORT:
                return None
        token = _read(tokens, beyond - first, words, under)
        return self._span(token) if token else None

    def _bounds(self, line: int) -> tuple[int, int]:
        """Return the indices of the first token that starts on a line and of the first after it."""
        self._all()
        end = self._starts[line] if line < len(self._starts) else len(self._text) + 1
        return bisect_right(self._offsets, self._starts[line - 1] - 1), bisect_right(self._offsets, end - 1)

    def _all(self) -> list[CaretToken]:
        if self._tokens is None:
            self._tokens = tokenise(self._text)
            self._offsets = [t.start for t in self._tokens]
        return self._tokens

    def _line_of(self, offset: int) -> int:
        return bisect_right(self._starts, offset)

    def _span(self, token: CaretToken) -> CaretSpan:
        line = self._line_of(token.start)
        start = self._starts[line - 1]
        operator = _OPERATOR.match(self._text, token.start)  # tokens are aligned by single characters
        stop = operator.end() if operator else token.end
        one_line = self._line_of(token.end - 1) == line
        bom = 1 if line == 1 and self._text.startswith("\ufeff") else 0
        return CaretSpan(line, token.start - start + 1 - bom, stop - start + 1 - bom if one_line else None)


def _read(
    tokens: Sequence[CaretToken], on_line: int, echo: Sequence[CaretToken], under: int, *, part: bool = False
) -> CaretToken | None:
    """Return the token that became `echo[under]`. Return None if the best readings do not agree.

    The first `on_line` tokens stand on the reported line. Later ones can only be the arguments of an invocation that
    begins on it. With `part` the echo may be of a part of the line.
    """
    words = [word.text for word in echo]
    calls = _calls(tokens, on_line)
    if part:  # a macro without arguments that is followed by "(" explains too much
        calls = [c for c in calls if c.end > c.start + 1 or c.end == len(tokens) or tokens[c.end].text != "("]
    begins = _begins(tokens, on_line, echo[0].start if part else None)
    front, inside = _from_the_front(tokens, on_line, words, calls, begins)
    back, rest = _from_the_end(tokens, on_line, words, calls, part=part)
    total = min((cost + back[s][0] for s, cost in begins.items()), default=_FAR)
    if total >= _FAR:
        return None if part else _read(tokens, on_line, echo, under, part=True)
    readings: set[int] = set()
    for s in range(on_line):
        if tokens[s].text == words[under] and front[s][under] + back[s + 1][under + 1] == total:
            readings.add(s)
    slack = _SLACK if part else 0
    near = [call for call in calls if inside[call][under] + rest[call][under + 1] <= total + slack]
    read = {call: _within(tokens, call, words, under) for call in near}
    arguments = {at for call, at in read.items() if at != call.start}
    if (
        part and not readings and len(arguments) == 1
    ):  # several macros on the line: the one that holds the word
        return tokens[arguments.pop()]
    readings |= {at for call, at in read.items() if inside[call][under] + rest[call][under + 1] == total}
    return tokens[readings.pop()] if len(readings) == 1 else None


def _begins(tokens: Sequence[CaretToken], on_line: int, indent: int | None) -> dict[int, int]:
    """Return the tokens with which the echo may begin, by index, and the cost of each beginning."""
    begins = {0: 0}
    for s in range(1, on_line):
        before = tokens[s - 1]
        if before.text == ")":  # the line begins inside an invocation that ends here
            begins[s] = 1000 + s
        elif indent is not None and (before.is_name or before.text in ("(", ",")):
            off = abs(tokens[s].start - tokens[0].start - indent) if indent >= _INDENTED else 0
            begins[s] = _CUT + min(off, 999)
    return begins


def _from_the_front(
    tokens: Sequence[CaretToken],
    on_line: int,
    words: Sequence[str],
    calls: Sequence[_MacroCall],
    begins: Mapping[int, int],
) -> tuple[list[list[int]], dict[_MacroCall, list[int]]]:
    """Return the least cost of reading tokens[:s] as words[:e], by s and e. Return also, by call, the least cost of
    reaching words[:e] in it.
    """
    n, m = len(tokens), len(words)
    ending: list[list[_MacroCall]] = [[] for _ in range(n + 1)]
    for call in calls:
        ending[call.end].append(call)
    front = [[_FAR] * (m + 1) for _ in range(n + 1)]
    for s, cost in begins.items():
        front[s][0] = cost
    inside: dict[_MacroCall, list[int]] = {}
    for s in range(n + 1):
        for call in ending[s]:
            best = _FAR
            absorbed: list[int] = []
            for e in range(m + 1):
                best = min(best, front[call.start][e] + call.cost)
                absorbed.append(best)
                front[s][e] = min(front[s][e], best)
            inside[call] = absorbed
        if s < on_line:
            word = tokens[s].text
            for e in range(m):
                if words[e] == word and front[s][e] < front[s + 1][e + 1]:
                    front[s + 1][e + 1] = front[s][e]
    return front, inside


def _from_the_end(
    tokens: Sequence[CaretToken],
    on_line: int,
    words: Sequence[str],
    calls: Sequence[_MacroCall],
    *,
    part: bool,
) -> tuple[list[list[int]], dict[_MacroCall, list[int]]]:
    """Return the least cost of reading tokens[s:] as words[e:], by s and e. Return also, by call, the least cost of
    what comes after words[:e] in it.
    """
    n, m = len(tokens), len(words)
    starting: list[list[_MacroCall]] = [[] for _ in range(n + 1)]
    for call in calls:
        starting[call.start].append(call)
    back = [[_FAR] * (m + 1) for _ in range(n + 1)]
    rest: dict[_MacroCall, list[int]] = {}
    for s in range(n, -1, -1):
        if s >= on_line:
            back[s][m] = 0
            continue
        word = tokens[s].text
        if part and (tokens[s].is_name or word in (")", ",")):
            back[s][m] = _CUT
        for e in range(m):
            if words[e] == word:
                back[s][e] = back[s + 1][e + 1]
        for call in starting[s]:
            best = 2 * _CUT if part else _FAR  # the echo ends within what the macro became
            after = [_FAR] * (m + 1)
            for e in range(m, -1, -1):
                if not (part and e == m and call.end < on_line):
                    best = min(best, back[call.end][e])
                after[e] = best
                back[s][e] = min(back[s][e], best + call.cost)
            rest[call] = after
    return back, rest


def _within(tokens: Sequence[CaretToken], call: _MacroCall, words: Sequence[str], under: int) -> int:
    """Return the argument that an expanded word came from, if only one can be meant, else the macro's name.

    The words before them distinguish several arguments with the same spelling, and brackets and operators, which the
    macro itself may contain.
    """
    arguments = [i for i in range(call.start + 2, call.end - 1) if tokens[i].text == words[under]]
    if len(arguments) == 1 and len(words[under]) > 1:
        return arguments[0]

    def alike(i: int) -> int:
        least = min(i - call.start - 2, under)
        return next((k for k in range(least) if tokens[i - k - 1].text != words[under - k - 1]), least)

    best = max(map(alike, arguments), default=0)
    nearest = [i for i in arguments if alike(i) == best]
    return nearest[0] if len(nearest) == 1 and best >= 2 else call.start


def _calls(tokens: Sequence[CaretToken], on_line: int) -> list[_MacroCall]:
    """Return every `NAME` and `NAME(…)` that begins on the line and could be a macro."""
    closing: dict[int, int] = {}
    opened: list[int] = []
    for i, token in enumerate(tokens):
        if token.text == "(":
            opened.append(i)
        elif token.text == ")" and opened:
            closing[opened.pop()] = i
        if i >= on_line and not opened:
            break
    calls: list[_MacroCall] = []
    for i, token in enumerate(tokens[:on_line]):
        if token.is_name:
            calls.append(_MacroCall(i, i + 1))
            if i + 1 in closing:
                calls.append(_MacroCall(i, closing[i + 1] + 1))
    return calls


def from_display(text: str, column: int) -> int | None:
    """Return the code point column of GCC's display column: tab stops are every 8, wide characters count 2."""
    shown = 1
    for index, character in enumerate(text, 1):
        if character == "\t":
            width = 8 - (shown - 1) % 8
        elif unicodedata.combining(character):
            width = 0
        else:
            width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if shown <= column < shown + width:
            return index
        shown += width
    return len(text) + 1 if column == shown else None
