"""Reads the `task.yml` of a GPU MODE (popcorn) problem: its tests, its benchmarks, and where its files lie.

It is read without PyYAML, which the Python with the user's torch need not have. Both sides read it: the author's to
know which files a job needs, the GPU's to know what to run. The published problems
(github.com/gpu-mode/reference-kernels; ten of 41 were looked at) write their lists in one way: a mapping in braces
after each dash, as JSON does or nearly so. Block mappings are read too. Other syntax of YAML is refused where it
stands, so that nothing is misread; other keys of the file are skipped unread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Final

from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass

Value = int | float | bool | str | None | list["Value"]

SUBMISSION: Final = "@SUBMISSION@"
"""Stands in `files` for the file that is handed in."""

_LISTS: Final = ("tests", "benchmarks", "files")


class TaskError(Exception):
    """A task.yml is wrong: what, and on which line (from 1)."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True)
class Task:
    """A task. `files` has where each file lies, relative to the folder of task.yml, by the name under which it is
    imported.
    """

    tests: tuple[dict[str, Value], ...] = ()
    benchmarks: tuple[dict[str, Value], ...] = ()
    files: dict[str, str] = field(default_factory=dict[str, str])
    language: str = "py"
    ranking_by: str = "last"
    several_gpus: bool = False


def of_file(path: Path) -> Task:
    """Read the task of a file. Raises TaskError, OSError, and ValueError if the file is not UTF-8."""
    return read(regular_files.read(path, limits.TASK).decode())


def read(text: str) -> Task:
    """Raises TaskError."""
    if len(text) > limits.TASK.most:
        raise TaskError(1, f"task.yml is larger than {limits.TASK.size}")
    lists: dict[str, tuple[dict[str, Value], ...]] = {}
    words: dict[str, Value] = {}
    for key, line, rest, block in _sections(text):
        if key in lists or key in words:
            raise TaskError(line, f"task.yml has the key '{key}' twice")
        if key in _LISTS:
            lists[key] = tuple(_items(key, line, rest, block))
        elif key in ("lang", "multi_gpu", "ranking_by"):
            words[key] = _Flow(rest, line).alone()
    files: dict[str, str] = {}
    for entry in lists.get("files", ()):
        name, source = entry.get("name"), entry.get("source")
        if isinstance(name, str) and isinstance(source, str):
            files[name] = source
    return Task(
        lists.get("tests", ()),
        lists.get("benchmarks", ()),
        files,
        str(words.get("lang", "py")),
        str(words.get("ranking_by", "last")),
        words.get("multi_gpu") is True,
    )


_KEY = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([A-Za-z_][\w.-]*))\s*:(?=\s|$)""")


def _sections(text: str) -> Iterator[tuple[str, int, str, list[tuple[int, str]]]]:
    """Yield the top-level keys: (key, line, what follows it on the line, the lines below that belong to it)."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.strip() or line.startswith("#") or line.strip() in ("---", "..."):
            continue
        match = _KEY.match(line)
        if match is None:
            raise TaskError(
                at,
                f"a line of task.yml must begin with a key or belong to the key above it; this one does not: {line[:60]}",
            )
        number = at
        block: list[tuple[int, str]] = []
        # a list may begin in the first column, as the key that it belongs to
        while at < len(lines) and (not lines[at].strip() or lines[at][0] in " \t#" or lines[at][:1] == "-"):
            if lines[at].startswith("---"):
                break
            block.append((at + 1, lines[at]))
            at += 1
        yield next(filter(None, match.groups()), ""), number, line[match.end() :].strip(), block


def _items(key: str, line: int, rest: str, block: list[tuple[int, str]]) -> Iterator[dict[str, Value]]:
    """Yield the mappings of a list, in braces or as a block after each dash."""
    if rest and not rest.startswith("#"):
        if _Flow(rest, line).alone() == []:
            return
        raise TaskError(line, f"'{key}' must be a list with a dash before each entry")
    kept = [(number, text) for number, text in block if text.strip() and not text.lstrip().startswith("#")]
    at = 0
    while at < len(kept):
        number, text = kept[at]
        if "\t" in text[: len(text) - len(text.lstrip())]:
            raise TaskError(number, "task.yml is indented with a tab, which YAML does not allow")
        indent = len(text) - len(text.lstrip())
        if not re.match(r"-(\s|$)", text.lstrip()):
            raise TaskError(
                number, f"an entry of '{key}' begins with a dash; this does not: {text.strip()[:60]}"
            )
        body = [(number, " " * (indent + 1) + text.lstrip()[1:])]
        at += 1
        while at < len(kept) and len(kept[at][1]) - len(kept[at][1].lstrip()) > indent:
            body.append(kept[at])
            at += 1
        yield _entry(key, body)


def _entry(key: str, body: list[tuple[int, str]]) -> dict[str, Value]:
    number, first = body[0]
    if first.strip().startswith("{"):
        return _Flow("\n".join(text for _, text in body), number).mapping()
    entry: dict[str, Value] = {}
    rows = [(line, text) for line, text in body if text.strip()]
    if not rows:
        raise TaskError(number, f"an entry of '{key}' is empty")
    indent = len(rows[0][1]) - len(rows[0][1].lstrip())
    for line, text in rows:
        name = _KEY.match(text.strip())
        if name is None or len(text) - len(text.lstrip()) != indent:
            raise TaskError(
                line,
                f"an entry of '{key}' must be `name: value` lines; this line is not: {text.strip()[:60]}",
            )
        word = next(filter(None, name.groups()), "")
        if word in entry:
            raise TaskError(line, f"this entry of '{key}' has '{word}' twice")
        entry[word] = _Flow(text.strip()[name.end() :], line).alone()
    return entry


_NUMBER = re.compile(r"[-+]?(?:0x[0-9a-fA-F]+|0|[1-9]\d*)$")
_FLOAT = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+)(?:[eE][-+]\d+)?$")
_UNSURE = re.compile(
    r"(?:[-+]?[\d.][\d_.:eExXoObB+-]*|y|n|yes|no|on|off|[-+]?\.(?:inf|nan)|=|<<)$", re.IGNORECASE
)
"""What is a number, a date, a truth value or a word by the reader's version of YAML: `1e5`, `010`, `1_000`, `1:30`, `yes`."""
_PLAIN = re.compile(r"[^\s,\[\]{}#&*!|>'\"%@`:][^,\[\]{}#\n]*")
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "/": "/"}


class _Flow:
    """A cursor over a value as YAML writes it on one line: scalars, lists, one level of mapping."""

    def __init__(self, text: str, line: int) -> None:
        self._text = text
        self._at = 0
        self._line = line

    def mapping(self) -> dict[str, Value]:
        self._skip()
        self._at += 1  # the caller has seen the brace
        entry: dict[str, Value] = {}
        while not self._taken("}"):
            name = self._name()
            if name in entry:
                raise self._wrong(f"this entry has '{name}' twice")
            entry[name] = self._value(0)
            if not self._taken(","):
                if not self._taken("}"):
                    raise self._wrong("a comma or a closing brace is missing")
                break
        self._end()
        return entry

    def alone(self) -> Value:
        value = self._value(0)
        self._end()
        return value

    def _name(self) -> str:
        self._skip()
        if self._peek() in ('"', "'"):
            name = self._quoted()
            if not self._taken(":"):
                raise self._wrong("a name is followed by a colon")
            return name
        match = re.compile(r"([A-Za-z_][\w.-]*)\s*:(?=\s)").match(self._text, self._at)
        if match is None:
            raise self._wrong("a name and a colon are missing")
        self._at = match.end()
        return match[1]

    def _value(self, depth: int) -> Value:
        self._skip()
        head = self._peek()
        if head == "[":
            if depth > 8:
                raise self._wrong("lists are nested too deep")
            return self._list(depth)
        if head in ('"', "'"):
            return self._quoted()
        match = _PLAIN.match(self._text, self._at)
        if match is None:
            if head in ("", ",", "}", "]"):
                return None
            raise self._wrong(
                f"YAML's '{head}' is not supported in a test: write a number, a word, a text or a list"
            )
        self._at = match.end()
        return self._scalar(match[0].strip())

    def _list(self, depth: int) -> list[Value]:
        self._at += 1
        values: list[Value] = []
        while not self._taken("]"):
            values.append(self._value(depth + 1))
            if not self._taken(","):
                if not self._taken("]"):
                    raise self._wrong("a comma or a closing bracket is missing")
                break
        return values

    def _quoted(self) -> str:
        quote = self._text[self._at]
        characters: list[str] = []
        self._at += 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == "\n":
                break
            self._at += 1
            if char == quote:
                if quote == "'" and self._peek() == "'":
                    self._at += 1
                    characters.append("'")
                    continue
                return "".join(characters)
            if char == "\\" and quote == '"':
                escape = self._peek()
                if escape not in _ESCAPES:
                    raise self._wrong(f"the escape \\{escape} is not read")
                char = _ESCAPES[escape]
                self._at += 1
            characters.append(char)
        raise self._wrong("a text has no closing quote")

    def _scalar(self, word: str) -> Value:
        lower = word.lower()
        if lower in ("true", "false") and word in (lower, lower.title(), lower.upper()):
            return lower == "true"
        if word in ("~", "null", "Null", "NULL"):
            return None
        if _NUMBER.match(word):
            return int(word, 0)
        if _FLOAT.match(word):
            return float(word)
        if _UNSURE.match(word) or ": " in word or word.endswith(":"):
            raise self._wrong(
                f"readers of YAML differ over {word}: write it in quotes, or a number like 1.0e+5 or 100000"
            )
        return word

    def _skip(self) -> None:
        """Skip white space and comments."""
        match = re.compile(r"(?:\s|(?<!\S)#[^\n]*)*").match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _taken(self, char: str) -> bool:
        self._skip()
        if self._peek() != char:
            return False
        self._at += 1
        return True

    def _end(self) -> None:
        self._skip()
        if self._at < len(self._text):
            raise self._wrong(f"this is left over: {self._text[self._at :].splitlines()[0][:60]}")

    def _wrong(self, message: str) -> TaskError:
        return TaskError(self._line + self._text.count("\n", 0, self._at), f"task.yml: {message}")
