"""`compile_commands.json`: where a project keeps it, and its command for a file."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems.cmake import presets
from orbit_lsp.compilation.command_line import CompileCommand
from orbit_lsp.compilation.folders import folders_above
from orbit_lsp.kernels import SOURCE_SUFFIXES
from orbit_remote.common import codec, regular_files
from orbit_remote.common.configured import build_folders
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import DATABASE, INCLUDING

NAME = "compile_commands.json"
_MOST_ENTRIES = 100_000
_LARGEST_ENTRY = 1 << 18
_MOST_BRACES = 64
"""Closing ones in an entry."""
_LONGEST_NAME = 4096
_GAP = re.compile(rb"(?:[\s,]|//[^\n]{0,4096}(?:\n|\Z)|/\*(?s:.){0,4096}?\*/){0,65536}")
"""Between entries. Databases that people edit have comments, which clangd accepts too."""
_NO_ENTRY = re.compile(rb'(?:null|true|false|-?\d[\d.eE+-]{0,40}|"(?:[^"\\\n]|\\.){0,4096}")(?=[\s,\]/])')
_COMMENTS = re.compile(rb'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*(?s:.)*?\*/|,(?=\s*\})')
_UNITY = re.compile(r"unity_\d+_\w+\.\w+")
"""What CMake calls the files of a unity build, each of which includes several sources."""
_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]{1,4096})"', re.MULTILINE)
_MOST_TRIED = 200
"""Commands that are read to find one that can include a header, and files to find one that includes a source."""


class DatabaseMatch(NamedTuple):
    """The command of a file, or of a file `beside` it by whose command it is compiled too. `includes`: that file
    includes it.
    """

    database: str
    command: CompileCommand
    beside: str = ""
    includes: bool = False


class _Entries(NamedTuple):
    """The commands of a database by their files. `fault` says what is wrong with its text, "" for nothing."""

    by_file: dict[str, _Entry]
    fault: str = ""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A command. `raw` is its JSON as bytes: with characters outside of ASCII a string would be four times as long."""

    file: str
    raw: bytes

    def parse(self) -> CompileCommand:
        record: dict[str, Any] = codec.read_json(self.raw.decode("utf-8", "replace"))
        words = record.get("arguments")
        listed = tuple(map(str, cast("list[Any]", words))) if isinstance(words, list) else None
        command = str(record.get("command", "")) if listed is None else listed
        return command_line.parse(command, str(record.get("directory", "")), self.file)


@dataclass(slots=True)
class Databases:
    """The databases of a workspace. Each is read again only if its file has changed."""

    _read: dict[str, tuple[tuple[int, int], _Entries]] = field(
        default_factory=dict[str, "tuple[tuple[int, int], _Entries]"]
    )

    def find(self, path: str, root: str, setting: str = "") -> DatabaseMatch | None:
        """Return the command for `path`.

        It is its own in the nearest database that has one, the newest of several equally near. Otherwise it is that
        of a source that includes the file, of a file of the same folder, or of one that has the file's folder among
        its include folders. `setting` names the database, or a folder that holds it; then no other is read. Reads
        files.
        """
        databases = _databases(path, root, setting)
        wanted = {_normal(path), _normal(os.path.realpath(path))}
        for database in databases:
            entries = self._entries(database).by_file
            for name in wanted & entries.keys():
                return DatabaseMatch(database, entries[name].parse())
        for database in databases:
            if entry := _by_link(self._entries(database).by_file, path):
                return DatabaseMatch(database, entry.parse())
        for database in databases:
            if entry := _including(self._entries(database).by_file, path):
                return DatabaseMatch(database, entry.parse(), entry.file, includes=True)
        for database in databases:
            if entry := _beside(self._entries(database).by_file, path):
                return DatabaseMatch(database, entry.parse(), entry.file)
        return None

    def faults(self, path: str, root: str, setting: str = "") -> list[tuple[str, str]]:
        """Return the databases that `find` looks into and whose text is faulty, with what is wrong with each."""
        listed = ((each, self._entries(each).fault) for each in _databases(path, root, setting))
        return [(database, fault) for database, fault in listed if fault]

    def _entries(self, database: str) -> _Entries:
        try:
            status = os.stat(database)
            state = status.st_mtime_ns, status.st_size
            known = self._read.get(database)
            if known is None or known[0] != state:
                self._read.pop(database, None)
                known = self._read[database] = state, _parse(regular_files.read(database, DATABASE))
                self._forget()
        except (OSError, ValueError) as error:
            return _Entries({}, f"cannot be read ({getattr(error, 'strerror', None) or error})")
        return known[1]

    def _forget(self) -> None:
        """Keep the last ones read, together as large as a database may be: a folder may have dozens."""
        while len(self._read) > 1 and sum(size for (_, size), _ in self._read.values()) > DATABASE.most:
            del self._read[next(iter(self._read))]


def _parse(content: bytes) -> _Entries:
    """Read a database. Of each file's entries the first that has a command counts."""
    entries: dict[str, _Entry] = {}
    faults: list[str] = []
    for raw, record in islice(_records(content, faults), _MOST_ENTRIES):
        if not (record.get("command") or record.get("arguments")):
            continue
        file = command_line.absolute(str(record.get("file", "")), str(record.get("directory", "")))
        if len(file) <= _LONGEST_NAME:
            entries.setdefault(_normal(file), _Entry(file, raw))
    return _Entries(entries, next(iter(faults), ""))


def _records(content: bytes, faults: list[str]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the objects of a list one by one.

    The JSON decoder lets no other thread run before it ends, and would make gigabytes of a list of a million small
    things. Other elements of the list are skipped. It ends where the text is no JSON, or an object is too large; then
    `faults` gets a sentence.
    """
    start = re.match(rb"(?:\xef\xbb\xbf)?", content)
    at = _behind_gap(content, start.end() if start else 0)
    if content[at : at + 1] != b"[":
        faults.append("is not a list of commands" if content.strip() else "is empty")
        return
    at += 1
    while True:
        at = _behind_gap(content, at)
        if other := _NO_ENTRY.match(content, at):
            at = other.end()
            continue
        if content[at : at + 1] == b"]":
            return
        record = end = None
        raw = b""
        for _ in range(_MOST_BRACES):
            end = content.find(b"}", end or at, at + _LARGEST_ENTRY) + 1
            if content[at : at + 1] != b"{" or not end:
                break
            raw = content[at:end]
            if (record := _object(raw)) is None and (b"//" in raw or b"/*" in raw or b"," in raw[-64:]):
                raw = _COMMENTS.sub(lambda match: match[1] or b"", raw)
                record = _object(raw)
            if record is not None:
                break
        if record is None or not end:
            faults.append(
                f"is not read from line {content.count(10, 0, at) + 1} on: its JSON breaks off there, or an entry is too large"
            )
            return
        yield raw, record
        at = end


def _object(raw: bytes) -> dict[str, Any] | None:
    """Parse an object. Return None if the text ends at a brace inside of a string, or of an inner object."""
    try:
        return codec.read_json(raw.decode("utf-8", "replace"))
    except ValueError:
        return None


def _behind_gap(content: bytes, at: int) -> int:
    while (gap := _GAP.match(content, at)) and gap.end() > at:
        at = gap.end()
    return at


def _databases(path: str, root: str, setting: str) -> list[str]:
    """Return the existing databases, the nearest first, and the newest first among equally near ones."""
    levels = [[_named(setting, root)]] if setting else list(_levels(path, root))
    return [each for level in levels for each in sorted(filter(os.path.isfile, level), key=_age)]


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
    """Yield where databases may lie, folder by folder from the file's up to the root."""
    for folder in folders_above(path, root):
        yield [str(folder / NAME), *_below(folder), *_of_presets(folder, root)]


def candidates(path: str, root: str, setting: str = "") -> Iterator[str]:
    """Yield where a database of the file is, or would be once the project is configured: databases and build folders."""
    if setting:
        yield _named(setting, root)
        return
    for level in _levels(path, root):
        yield from level
    for folder in folders_above(path, root):
        for built in build_folders.inside(str(folder)):
            yield built
            yield os.path.join(built, NAME)


def _below(folder: Path) -> Iterator[str]:
    """Yield the databases in build folders: `build`, `cmake-build-debug`, `out/build/x64-Release`."""
    for built in build_folders.inside(str(folder), lambda at: not os.path.isfile(os.path.join(at, NAME))):
        if os.path.isfile(file := os.path.join(built, NAME)):
            yield file


def _of_presets(folder: Path, root: str) -> Iterator[str]:
    """Yield the databases in the `binaryDir` of each of CMake's presets, if that lies in the workspace."""
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


def _by_link(entries: dict[str, _Entry], path: str) -> _Entry | None:
    """Return the entry of the same file by another path: one of the two leads through a link."""
    name = os.path.basename(path)
    same_name = (entry for entry in entries.values() if os.path.basename(entry.file) == name)
    for entry in islice(same_name, _MOST_TRIED):
        with suppress(OSError, ValueError):
            if os.path.samefile(entry.file, path):
                return entry
    return None


def _including(entries: dict[str, _Entry], path: str) -> _Entry | None:
    """Return the entry of a source that includes this one: a file of a unity build, or one that its author put
    together.
    """
    if not path.lower().endswith(SOURCE_SUFFIXES):
        return None
    name = os.path.basename(path).encode("utf-8", "surrogateescape")
    sources = [entry for entry in entries.values() if entry.file.lower().endswith(SOURCE_SUFFIXES)]
    sources.sort(key=lambda entry: not _UNITY.fullmatch(os.path.basename(entry.file)))
    for entry in sources[:_MOST_TRIED]:
        with suppress(OSError, ValueError):
            text = regular_files.read(entry.file, INCLUDING).removeprefix(codecs.BOM_UTF8)
            for include in _INCLUDE.findall(text) if name in text else ():
                place = os.path.join(os.path.dirname(entry.file), include.decode("utf-8", "surrogateescape"))
                if os.path.exists(place) and os.path.samefile(place, path):
                    return entry
    return None


def _beside(entries: dict[str, _Entry], path: str) -> _Entry | None:
    """Return the command of a CUDA file of the same folder, else one that searches the file's folder for headers."""
    folder = _normal(os.path.dirname(path))
    cuda = [entry for entry in entries.values() if entry.file.lower().endswith(SOURCE_SUFFIXES)]
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
