"""Reads source places and launch bounds from the PTX of a build."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import lru_cache
from math import prod

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Note, Place
from orbit_remote.toolchain.carets import CaretSource, CaretSpan, CaretToken

_MARK = re.compile(
    r"""^[ \t]*(?:
      \.loc[ \t]+(?P<file>\d{1,9})[ \t]+(?P<line>\d{1,9})[ \t]+\d+(?P<rest>[^\n]*)
    | \.file[ \t]+(?P<index>\d{1,9})[ \t]+"(?P<path>[^"\\\n]*(?:\\.[^"\\\n]*)*)"
    | (?:\.(?:visible|weak|extern)[ \t]+)?\.(?P<kind>entry|func)(?:[ \t]+\([^)\n]*\))?[ \t]+(?P<symbol>[\w$.]+)
    | \.(?P<bound>maxntid|reqntid)[ \t]+(?P<size>\d{1,9}(?:[ \t]*,[ \t]*\d{1,9})*)
    )""",
    re.MULTILINE | re.VERBOSE,
)
_BEGIN_ASM, _END_ASM = "// begin inline asm\n", "// end inline asm\n"
_INLINED_AT = re.compile(r"inlined_at[ \t]+(\d{1,9})[ \t]+(\d{1,9})")


_TARGET = re.compile(r"^\.target\s+sm_(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Loc:
    """A `.loc` directive. `inlined_at` is the call into which it was inlined (file number, line)."""

    offset: int
    file: int
    line: int
    inlined_at: tuple[int, int] | None


@dataclass(slots=True)
class PtxEntry:
    """A kernel. `max_threads` is `.maxntid` (`__launch_bounds__`) and `threads` is `.reqntid`, as products."""

    symbol: str
    place: Place | None = None
    max_threads: int | None = None
    threads: int | None = None


@dataclass
class Ptx:
    text: str
    entries: dict[str, PtxEntry] = field(default_factory=dict[str, PtxEntry])
    files: dict[int, str] = field(default_factory=dict[int, str])
    locs: list[Loc] = field(default_factory=list[Loc])
    bodies: list[int] = field(default_factory=list[int])

    @property
    def target(self) -> str:
        """Return the `90a` of `.target sm_90a`, or "" if there is none."""
        match = _TARGET.search(self.text, 0, 4_096)
        return match[1] if match else ""

    def at_line(self, number: int) -> tuple[Place | None, tuple[Note, ...]]:
        """Return the source line of PTX line `number` (from 1), and the calls through which it was inlined."""
        return self._before(self._end_of(number))

    def asm_line(self, number: int) -> int | None:
        """Return which line, from 0, of an `asm` statement the PTX line `number` (from 1) is. Return None for a line
        of the compiler's.
        """
        end = self._end_of(number)
        start = self.text.rfind("\n", 0, end) + 1
        begin = self.text.rfind(_BEGIN_ASM, 0, start)
        if begin < 0 or self.text.find(_END_ASM, begin, start) >= 0:
            return None
        return self.text.count("\n", begin, start) - 1

    def _end_of(self, number: int) -> int:
        end = -1
        for _ in range(number):
            end = self.text.find("\n", end + 1)
            if end < 0:
                return len(self.text)
        return end

    def use_of(self, symbol: str) -> Place | None:
        """Return the source line of the first call of an undefined function, or use of a variable."""
        declared = re.compile(r"\.(?:extern|func|global|visible|weak)\b")
        for match in re.finditer(rf"(?<![\w$]){re.escape(symbol)}(?![\w$])", self.text):
            start = self.text.rfind("\n", 0, match.start()) + 1
            if not declared.search(self.text, start, match.start()) and self.text[start] != "(":
                place, _ = self._before(match.start())
                if place:
                    return place
        return None

    def _before(self, offset: int) -> tuple[Place | None, tuple[Note, ...]]:
        index = bisect_right(self.locs, offset, key=lambda loc: loc.offset) - 1
        body = bisect_right(self.bodies, offset) - 1
        if index < 0 or body < 0 or self.locs[index].offset < self.bodies[body]:
            return None, ()
        loc = self.locs[index]
        notes: tuple[Note, ...] = ()
        if loc.inlined_at and (caller := self._place(*loc.inlined_at)):
            notes = (Note("inlined here", caller),)
        return self._place(loc.file, loc.line), notes

    def _place(self, file: int, line: int) -> Place | None:
        return Place(self.files[file], line) if file in self.files else None


def unescaped(name: str) -> str:
    """Return a file's name from a `.file` of PTX."""
    return re.sub(r"\\(.)", r"\1", with_letters(name), flags=re.DOTALL)


def with_letters(name: str) -> str:
    """Return a file's name with its letters outside of ASCII. nvcc writes their bytes in octal digits, and its
    outputs keep these.
    """
    if not re.search(r"\\[0-7]{3}", name):
        return name
    octal = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8) & 255]), os.fsencode(name))
    return octal.decode("utf-8", "surrogateescape")


def read(text: str) -> Ptx:
    """Read a PTX text. Never raises; what is missing is absent from the result."""
    ptx = Ptx(text)
    first: dict[str, Loc] = {}
    entry: PtxEntry | None = None
    for match in _MARK.finditer(text):
        if match["line"]:
            inlined = _INLINED_AT.search(match["rest"])
            at = (int(inlined[1]), int(inlined[2])) if inlined else None
            loc = Loc(match.start(), int(match["file"]), int(match["line"]), at)
            ptx.locs.append(loc)
            if entry and at is None:
                first.setdefault(entry.symbol, loc)
        elif match["index"]:
            ptx.files[int(match["index"])] = unescaped(match["path"])
        elif match["kind"]:
            ptx.bodies.append(match.start())
            entry = None
            if match["kind"] == "entry":
                entry = ptx.entries.setdefault(match["symbol"], PtxEntry(match["symbol"]))
        elif entry:
            threads = prod(int(n) for n in match["size"].split(","))
            if match["bound"] == "maxntid":
                entry.max_threads = threads
            else:
                entry.threads = threads
    for symbol, loc in first.items():
        if loc.file in ptx.files:
            ptx.entries[symbol].place = Place(ptx.files[loc.file], loc.line)
    return ptx


# -- inside an `asm` statement ------------------------------------------------------------------------
# The compiler gives its instructions the line of the last operand. But the template and what became of it have the same lines.

_ASM = frozenset(("asm", "__asm", "__asm__"))
_QUALIFIERS = frozenset(("volatile", "__volatile__", "__volatile", "goto", "inline", "__inline__"))
_LITERAL = re.compile(r"(?:u8|[uUL])?(?P<raw>R)?\"")
_ESCAPE = re.compile(r"\\(?:\r?\n|x[0-9a-fA-F]+|[0-7]{1,3}|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Statement:
    """Lines of an `asm` statement's template, each a text with the offset of each of its characters. They are
    `counted` if the whole template is written in the statement: a macro in it may have lines of its own.
    """

    keyword: CaretToken
    lines: tuple[tuple[str, tuple[int, ...]], ...]
    counted: bool


def asm_place(source: CaretSource, line: int, number: int, words: Sequence[str]) -> CaretSpan | None:
    """Return where the template's line `number` (from 0) is written, in the `asm` statement that covers `line` of the
    source. It is the place of the first of `words` there, or else of the line's first word, or else of the keyword
    `asm`.
    """
    statements = [each for first, last, each in _statements(source) if first <= line <= last]
    patterns = [re.compile(rf"(?<![\w.]){re.escape(word)}(?!\w)" if word[0] != "." else rf"{re.escape(word)}(?!\w)") for word in words if word]  # fmt: skip
    for statement in statements:
        if statement.counted and number < len(statement.lines):
            for pattern in patterns:
                if span := _found(source, statement.lines[number], pattern):
                    return span
    for statement in statements:
        for pattern in patterns:
            within = [span for each in statement.lines if (span := _found(source, each, pattern))]
            if len(within) == 1:
                return within[0]
    if len(statements) != 1:
        return None
    (statement,) = statements
    if statement.counted and number < len(statement.lines):
        first = _found(source, statement.lines[number], re.compile(r"[^\s{}]\S*"))
        if first:
            return first
    return source.span(statement.keyword.start, statement.keyword.end)


def _found(
    source: CaretSource, line: tuple[str, tuple[int, ...]], pattern: re.Pattern[str]
) -> CaretSpan | None:
    text, offsets = line
    match = pattern.search(text)
    return source.span(offsets[match.start()], offsets[match.end() - 1] + 1) if match else None


@lru_cache(maxsize=8)
def _statements(source: CaretSource) -> list[tuple[int, int, _Statement]]:
    """Return the `asm` statements of a file that are in no other, with their first line and their last."""
    tokens = source.tokens()
    statements: list[tuple[int, int, _Statement]] = []
    at = 0
    while at < len(tokens):
        keyword = tokens[at]
        at += 1
        if keyword.text not in _ASM:
            continue
        while at < len(tokens) and tokens[at].text in _QUALIFIERS:
            at += 1
        if at == len(tokens) or tokens[at].text != "(":
            continue
        begin, depth = at + 1, 0
        while at < len(tokens):
            depth += (tokens[at].text == "(") - (tokens[at].text == ")")
            if depth == 0:
                lines = source.line_of(keyword.start), source.line_of(tokens[at].start)
                statements.append((*lines, _statement(keyword, tokens[begin:at])))
                break
            at += 1
    return statements


def _statement(keyword: CaretToken, tokens: Sequence[CaretToken]) -> _Statement:
    """Return an `asm` statement's template: the literals up to the first `:`."""
    lines: list[tuple[list[str], list[int]]] = [([], [])]
    counted = True
    for token in tokens:
        if token.text == ":":
            break
        literal = _LITERAL.match(token.text)
        if literal is None:
            counted = False
            continue
        for character, offset in _characters(token, literal):
            if character == "\n":
                lines.append(([], []))
            else:
                lines[-1][0].append(character)
                lines[-1][1].append(offset)
    return _Statement(keyword, tuple(("".join(text), tuple(at)) for text, at in lines), counted)


def _characters(token: CaretToken, literal: re.Match[str]) -> Iterator[tuple[str, int]]:
    """Yield the characters that a literal stands for, with the offsets where they are written."""
    text = token.text
    at, end = literal.end(), len(text) - 1
    if literal["raw"]:
        fence = text.index("(", at)
        end -= fence - at + 1
        at = fence + 1
    while at < end:
        escape = None if literal["raw"] else _ESCAPE.match(text, at, end)
        if escape is None:
            yield text[at], token.start + at
            at += 1
            continue
        written = escape[0][1:]
        if written not in ("\n", "\r\n"):  # a line that goes on
            yield {"n": "\n", "t": "\t", "r": " "}.get(written, written[-1]), token.start + at
        at = escape.end()
