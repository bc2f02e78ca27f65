"""`compile_commands.json`: where a project keeps it, and its command for a file"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

from orbit_lsp.compilation import command_line, presets, projects
from orbit_lsp.compilation.command_line import Command
from orbit_remote.common import codec, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import DATABASE

NAME = "compile_commands.json"
_BUILD_FOLDERS = re.compile(
    r"build.*|_build.*|out|cmake-build-.*|builddir.*|bin|_skbuild|target|bazel-out", re.IGNORECASE
)
_MOST_FOLDERS = 64
"""Build folders of one folder that are looked into."""
_MOST_ENTRIES = 100_000
_LARGEST_ENTRY = 1 << 18
_MOST_BRACES = 64
"""Closing ones in an entry."""
_LONGEST_NAME = 4096
_GAP = re.compile(rb"[\s,]{0,65536}")
_MOST_TRIED = 200
"""Commands that are read to find one that can include a header."""


class Match(NamedTuple):
    """The command of a file, or of one `beside` it by which it is compiled too."""

    database: str
    command: Command
    beside: str = ""


@dataclass(frozen=True, slots=True)
class _Entry:
    """`raw` is its JSON: characters outside of ASCII would make it four times as long."""

    file: str
    raw: bytes

    def parse(self) -> Command:
        record: dict[str, Any] = codec.read_json(self.raw.decode("utf-8", "replace"))
        words = record.get("arguments")
        listed = tuple(map(str, cast("list[Any]", words))) if isinstance(words, list) else None
        command = str(record.get("command", "")) if listed is None else listed
        return command_line.parse(command, str(record.get("directory", "")), self.file)


@dataclass(slots=True)
class Databases:
    """The databases of a workspace, each read once as long as it stays the same file."""

    _read: dict[str, tuple[tuple[int, int], dict[str, _Entry]]] = field(
        default_factory=dict[str, "tuple[tuple[int, int], dict[str, _Entry]]"]
    )

    def find(self, path: str, root: str, setting: str = "") -> Match | None:
        """The command for `path`: its own in the nearest database that has one, the newest where several are equally
        near; else that of a file of the same folder, or of one that has the file's folder among its include folders.
        `setting` names the database, or a folder that holds it, and then no other is asked. Reads files.
        """
        levels = [[_named(setting, root)]] if setting else list(_levels(path, root))
        levels = [sorted(filter(os.path.isfile, level), key=_age) for level in levels]
        wanted = {_normal(path), _normal(os.path.realpath(path))}
        for database in (path for level in levels for path in level):
            entries = self._entries(database)
            for name in wanted & entries.keys():
                return Match(database, entries[name].parse())
        for database in (path for level in levels for path in level):
            if entry := _beside(self._entries(database), path):
                return Match(database, entry.parse(), entry.file)
        return None

    def _entries(self, database: str) -> dict[str, _Entry]:
        """Every entry by its file. Those that are no entries are passed over."""
        try:
            status = os.stat(database)
            state = status.st_mtime_ns, status.st_size
            known = self._read.get(database)
            if known is None or known[0] != state:
                self._read.pop(database, None)
                known = self._read[database] = state, _parse(regular_files.read(database, DATABASE))
                self._forget()
        except (OSError, ValueError):
            return {}
        return known[1]

    def _forget(self) -> None:
        """Keep the last ones read, together as large as a database may be: a folder may have dozens."""
        while len(self._read) > 1 and sum(size for (_, size), _ in self._read.values()) > DATABASE.most:
            del self._read[next(iter(self._read))]


def _parse(content: bytes) -> dict[str, _Entry]:
    """The first of each file's entries. Those that are no entries are passed over."""
    entries: dict[str, _Entry] = {}
    for raw, record in islice(_records(content), _MOST_ENTRIES):
        file = command_line.absolute(str(record.get("file", "")), str(record.get("directory", "")))
        if len(file) <= _LONGEST_NAME:
            entries.setdefault(_normal(file), _Entry(file, raw))
    return entries


def _records(content: bytes) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The objects of a list one by one: the JSON decoder lets no other thread run before it ends, and would make gigabytes
    of a list of a million small things. Ends at the first thing that is no object, or is a too large one.
    """
    if not (opening := re.match(rb"(?:\xef\xbb\xbf)?\s{0,1000}\[", content)):
        return
    at = opening.end()
    while True:
        while (gap := _GAP.match(content, at)) and gap.end() > at:
            at = gap.end()
        record = end = None
        for _ in range(_MOST_BRACES):
            end = content.find(b"}", end or at, at + _LARGEST_ENTRY) + 1
            if content[at : at + 1] != b"{" or not end:
                return
            with suppress(ValueError):  # a brace of a string, or of an object within
                record = codec.read_json(content[at:end].decode("utf-8", "replace"))
                break
        if record is None or end is None:
            return
        yield content[at:end], record
        at = end


def _normal(path: str) -> str:
    return os.path.normcase(os.path.normpath(path))


def _age(path: str) -> float:
    try:
        return -os.stat(path).st_mtime
    except OSError:
        return 0


def _named(setting: str, root: str) -> str:
    path = os.path.join(root, os.path.expanduser(setting))
    return os.path.join(path, NAME) if os.path.isdir(path) else path


def _levels(path: str, root: str) -> Iterator[list[str]]:
    """Where databases may lie, folder by folder from the file's up to the root."""
    for folder in projects.folders_above(path, root):
        yield [str(folder / NAME), *_below(folder), *_of_presets(folder, root)]


def candidates(path: str, root: str, setting: str = "") -> Iterator[str]:
    """Where a database of the file is, or would be once the project is configured: databases and build folders."""
    if setting:
        yield _named(setting, root)
        return
    for level in _levels(path, root):
        yield from level
    for folder in projects.folders_above(path, root):
        for built in _build_folders(folder):
            yield str(built)
            yield str(built / NAME)


def _below(folder: Path) -> Iterator[str]:
    """In build folders: `build`, `cmake-build-debug`, `out/build/x64-Release`."""
    for built in _build_folders(folder, lambda at: not (at / NAME).is_file()):
        if (built / NAME).is_file():
            yield str(built / NAME)


def _build_folders(folder: Path, goes_into: Callable[[Path], bool] = lambda _: True) -> Iterator[Path]:
    waiting = [(folder, 0)]
    looked = 0
    while waiting and looked < _MOST_FOLDERS:
        at, depth = waiting.pop(0)
        try:
            with os.scandir(at) as entries:
                names = [
                    entry.name
                    for entry in entries
                    if (depth or _BUILD_FOLDERS.fullmatch(entry.name)) and regular_files.is_folder(entry)
                ]
        except OSError:
            continue
        for name in sorted(names)[:_MOST_FOLDERS]:
            looked += 1
            yield at / name
            if depth < 2 and goes_into(at / name):
                waiting.append((at / name, depth + 1))


def _of_presets(folder: Path, root: str) -> Iterator[str]:
    """In the `binaryDir` of each of CMake's presets, where that lies in the workspace."""
    for name in presets.NAMES:
        for fields in presets.configured(folder / name):
            shown = str(fields.get("name", ""))
            values = {"sourceDir": str(folder), "presetName": shown, "sourceDirName": folder.name}
            text = re.sub(
                r"\$\{(\w+)\}",
                lambda m, values=values: values.get(m[1], m[0]),
                str(fields.get("binaryDir") or ""),
            )
            path = os.path.normpath(folder / text)
            if text and "$" not in text and Path(path).is_relative_to(root):
                yield os.path.join(path, NAME)


def _beside(entries: dict[str, _Entry], path: str) -> _Entry | None:
    """The command of a CUDA file of the same folder, else one by which the file's folder is searched for headers."""
    folder = _normal(os.path.dirname(path))
    cuda = [entry for entry in entries.values() if entry.file.lower().endswith(".cu")]
    for entry in [*cuda, *entries.values()]:
        if _normal(os.path.dirname(entry.file)) == folder:
            return entry
    tried: set[tuple[str, ...]] = set()
    for entry in cuda[:_MOST_TRIED]:
        flags = entry.parse().flags
        if flags in tried:
            continue
        tried.add(flags)
        searched = [flag[2:] for flag in flags if flag.startswith("-I")]
        if any(Path(folder).is_relative_to(searched_folder) for searched_folder in map(_normal, searched)):
            return entry
    return None
