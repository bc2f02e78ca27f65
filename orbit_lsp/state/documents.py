"""The text of one open file, edited as the protocol edits it.

pygls' own document splits lines wherever Python does (form feeds, U+2028 …), which the protocol does not, and
rebuilds the whole text on each change. This one only knows the protocol's three line ends. Columns here are Unicode
code points; `to_client` and `from_client` convert to and from the units that the client chose.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import field
from itertools import islice
from sys import maxsize
from typing import Literal, NamedTuple

from orbit_remote.common import limits
from orbit_remote.common.lazy_dataclass import dataclass

Encoding = Literal["utf-8", "utf-16", "utf-32"]

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_ENDS_OF_PYTHON = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Where `splitlines`, which takes a quarter of the time, splits too."""
_REMEMBERED_EDITS = 10_000
_MANY = 16
"""Changes of one message, as of *Replace All*, from which on the text is made once behind them all."""
_AT_ONCE = 1 << 16
"""Characters that one call splits or encodes: a whole text would keep the interpreter from other threads."""


class TextChange(NamedTuple):
    """One content change as the client sent it. If `start` is None it replaces the whole text."""

    start: tuple[int, int] | None
    end: tuple[int, int] | None
    text: str


class TooLongError(Exception):
    """A text is longer than an open file may be, or would become so. The exception's text is a sentence's end that
    names the limit.
    """


class _LineEdit(NamedTuple):
    version: int
    start: int
    old_end: int
    new_end: int


def split_lines(text: str) -> list[str]:
    """Return the lines with their ends. After a final line end there is one more, empty line, as in the protocol."""
    lines: list[str] = []
    start = 0
    while start < len(text):
        end = _line_end(text, start + _AT_ONCE)
        lines += _split(text[start:end])
        start = end
    if not lines or lines[-1][-1] in "\r\n":
        lines.append("")
    return lines


def _split(text: str) -> list[str]:
    rare = any(character in text for character in _ENDS_OF_PYTHON)
    return _LINE.findall(text) if rare else text.splitlines(keepends=True)


def _line_end(text: str, position: int) -> int:
    """Return the place behind the first line end from `position` on."""
    end = text.find("\n", position) + 1 or len(text)
    alone = text.find("\r", position, end - 1)
    return end if alone < 0 or text[alone + 1] == "\n" else alone + 1


def check_length(text: str) -> None:
    """Raises TooLongError."""
    ends = text.count("\n") + text.count("\r") - text.count("\r\n")
    _check(len(text), ends + 1)


def _check(characters: int, lines: int) -> None:
    for limit, size in ((limits.OPENED, characters), (limits.OPENED_LINES, lines)):
        if size > limit.most:
            raise TooLongError(limit.exceeded)


def to_client(line: str, column: int, encoding: Encoding) -> int:
    """Return the units of the client's encoding before code point `column` of `line`."""
    if encoding == "utf-32" or line.isascii():
        return min(column, len(line))
    head = line[:column]
    if encoding == "utf-8":
        return len(head.encode("utf-8", "surrogatepass"))
    return len(head.encode("utf-16-le", "surrogatepass")) // 2


def from_client(line: str, units: int, encoding: Encoding) -> int:
    """Return the code points of `line` before the client's offset `units`, at most the line without its end."""
    body = line.rstrip("\r\n")
    if encoding == "utf-32" or body.isascii():
        return min(units, len(body))
    # no loop over its characters, and each is encoded a few times at most: a line may have millions
    last = min(units, len(body))
    for start in range(0, last, _AT_ONCE):
        piece = body[start : min(start + _AT_ONCE, last)]
        if (whole := to_client(piece, len(piece), encoding)) >= units:
            columns = range(len(piece))
            return start + bisect_left(columns, units, key=lambda column: to_client(piece, column, encoding))
        units -= whole
    return last


@dataclass(slots=True)
class Document:
    uri: str
    path: str
    version: int
    text: str
    language_id: str = ""
    """What the client calls its language; its path decides where that says one."""
    _lines: list[str] | None = None
    _split: tuple[str, list[str]] | None = None  # a text and its lines, which a thread may write
    _edits: list[_LineEdit] = field(default_factory=list[_LineEdit])
    _forgotten: int = -1  # edits up to this version are no longer remembered

    @property
    def lines(self) -> list[str]:
        """Return the lines with their ends. For a long text a thread makes them (`split`), together with its scan."""
        if self._lines is None:
            text, lines = self._split or ("", [])
            self._lines = lines if text is self.text and lines else split_lines(self.text)
            self._split = None
        return self._lines

    @property
    def is_split(self) -> bool:
        """Say whether `lines` cost nothing."""
        made = self._split
        return self._lines is not None or (made is not None and made[0] is self.text)

    def split(self) -> None:
        """Make the lines, in any thread."""
        text = self.text
        if not self.is_split:
            self._split = text, split_lines(text)

    def apply(self, version: int, changes: list[TextChange], encoding: Encoding) -> None:
        """Apply the changes in order, each to the text that the one before it left. Raises TooLongError."""
        many = len(changes) > _MANY
        size = len(self.text)
        for change in changes:
            check_length(change.text)
            if change.start is None or change.end is None:
                self._remember(_LineEdit(version, 0, maxsize, 0))
                self.text, self._lines, size = change.text, None, len(change.text)
            else:
                size += self._replace(version, change, encoding, whole=not many)
                _check(size, len(self.lines))
        if many and self._lines is not None:
            self.text = "".join(self._lines)
        self.version = version

    def line(self, number: int) -> str:
        return self.lines[number] if 0 <= number < len(self.lines) else ""

    def line_since(self, version: int, line: int) -> int | None:
        """Return where `line` of an older version is now. Return None if it has been edited since."""
        if version < self._forgotten:
            return None
        for edit in self._edits:
            if edit.version <= version or line < edit.start:
                continue
            if line < edit.old_end:
                return None
            line += edit.new_end - edit.old_end
        return line

    def _place(self, position: tuple[int, int], encoding: Encoding) -> tuple[int, int]:
        """Return line and column of a client's position, clamped to the text."""
        number = min(max(position[0], 0), len(self.lines) - 1)
        line = self.lines[number]
        return number, len(line) if position[0] > number else from_client(line, max(position[1], 0), encoding)

    def _offset(self, number: int, column: int) -> int:
        if 2 * number < len(self.lines):
            return sum(map(len, islice(self.lines, number))) + column
        after = sum(map(len, islice(self.lines, number, None)))  # of a million lines half are counted at most
        return len(self.text) - after + column

    def _replace(self, version: int, change: TextChange, encoding: Encoding, *, whole: bool) -> int:
        """Apply a change. Return by how many characters the text has grown. Unless the text is made as a `whole`,
        only its lines are changed.
        """
        text = change.text
        places = [self._place(position, encoding) for position in {change.start, change.end} if position]
        (first, first_column), (last, last_column) = min(places), max(places)
        begin = self._offset(first, first_column) if whole else 0
        finish = begin if first == last or not whole else self._offset(last, last_column)
        if first == last:
            finish += last_column - first_column
        changed = (first, last + 1)
        head, tail = self.lines[first][:first_column], self.lines[last][last_column:]
        if first and self.lines[first - 1].endswith("\r"):  # a \n may now complete it
            first -= 1
            head = self.lines[first] + head
        if last + 1 < len(self.lines) and (tail or text or head).endswith("\r"):
            last += 1
            tail += self.lines[last]
        one_line = changed == (first, last + 1) and "\n" not in text and "\r" not in text
        made = f"{head}{text}{tail}"  # `+` would copy a line of megabytes twice
        fresh = [made] if one_line else split_lines(made)
        if last + 1 < len(self.lines) and not fresh[-1]:
            fresh.pop()  # its line end is there: the next line is its own
        before, old = len(self.lines), sum(map(len, self.lines[first : last + 1]))
        self.lines[first : last + 1] = fresh
        self._remember(_LineEdit(version, changed[0], changed[1], changed[1] + len(self.lines) - before))
        if whole:
            self.text = "".join((self.text[:begin], text, self.text[finish:]))
        return len(made) - old

    def _remember(self, edit: _LineEdit) -> None:
        self._edits.append(edit)
        if len(self._edits) > _REMEMBERED_EDITS:
            self._forgotten = self._edits[_REMEMBERED_EDITS // 2].version
            del self._edits[: _REMEMBERED_EDITS // 2]
