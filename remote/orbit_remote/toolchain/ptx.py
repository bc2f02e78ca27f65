"""Source lines and launch bounds from the PTX of a build."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from dataclasses import field
from math import prod

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Note, Place

_MARK = re.compile(
    r"""^[ \t]*(?:
      \.loc[ \t]+(?P<file>\d{1,9})[ \t]+(?P<line>\d{1,9})[ \t]+\d+(?P<rest>[^\n]*)
    | \.file[ \t]+(?P<index>\d{1,9})[ \t]+"(?P<path>[^"\\\n]*(?:\\.[^"\\\n]*)*)"
    | (?:\.(?:visible|weak|extern)[ \t]+)?\.(?P<kind>entry|func)(?:[ \t]+\([^)\n]*\))?[ \t]+(?P<symbol>[\w$.]+)
    | \.(?P<bound>maxntid|reqntid)[ \t]+(?P<size>\d{1,9}(?:[ \t]*,[ \t]*\d{1,9})*)
    )""",
    re.MULTILINE | re.VERBOSE,
)
_INLINED_AT = re.compile(r"inlined_at[ \t]+(\d{1,9})[ \t]+(\d{1,9})")


@dataclass(frozen=True, slots=True)
class Loc:
    """A `.loc` directive; `inlined_at` is the call it was inlined into (file number, line)."""

    offset: int
    file: int
    line: int
    inlined_at: tuple[int, int] | None


@dataclass(slots=True)
class Entry:
    """A kernel. `max_threads` is `.maxntid` (`__launch_bounds__`), `threads` `.reqntid`, as products."""

    symbol: str
    place: Place | None = None
    max_threads: int | None = None
    threads: int | None = None


@dataclass
class Ptx:
    text: str
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    files: dict[int, str] = field(default_factory=dict[int, str])
    locs: list[Loc] = field(default_factory=list[Loc])
    bodies: list[int] = field(default_factory=list[int])

    def at_line(self, number: int) -> tuple[Place | None, tuple[Note, ...]]:
        """The source line of PTX line `number` (from 1), and the calls that were inlined to get there."""
        end = -1
        for _ in range(number):
            end = self.text.find("\n", end + 1)
            if end < 0:
                end = len(self.text)
                break
        return self._before(end)

    def use_of(self, symbol: str) -> Place | None:
        """The source line of the first call of an undefined function, or use of a variable."""
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
    """A file's name from a `.file` of PTX."""
    return re.sub(r"\\(.)", r"\1", with_letters(name), flags=re.DOTALL)


def with_letters(name: str) -> str:
    """A file's name with the letters that are not of ASCII: nvcc writes their bytes in octal digits, and what it makes keeps them."""
    if not re.search(r"\\[0-7]{3}", name):
        return name
    octal = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8) & 255]), os.fsencode(name))
    return octal.decode("utf-8", "surrogateescape")


def read(text: str) -> Ptx:
    """Never raises; what is not there is absent from the result."""
    ptx = Ptx(text)
    first: dict[str, Loc] = {}
    entry: Entry | None = None
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
                entry = ptx.entries.setdefault(match["symbol"], Entry(match["symbol"]))
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
