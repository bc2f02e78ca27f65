"""Finds the Python files of a project that mention a name. It keeps hashes of the words of each file in the cache,
and reads the nearest folders first.
"""

from __future__ import annotations

import heapq
import keyword
import os
import posixpath
import re
import struct
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from orbit_lsp.closure.ignores import Ignores
from orbit_lsp.closure.tree import below
from orbit_lsp.state.sqlite_file import SqliteFile, UnusableFileError
from orbit_remote.common import regular_files
from orbit_remote.common.limits import DRIVER_FILE

if TYPE_CHECKING:
    import sqlite3

_WORD = bytes(c if chr(c).isalnum() or c == 95 or c > 127 else 32 for c in range(256))
_EVERYWHERE = frozenset(
    word.encode() for word in (*keyword.kwlist, "self", "int", "len", "str", "torch", "range")
)
_NINE = ord("9")
_PROSE = re.compile(
    rb'''\#[^\n"']*+
      | """ [^"\\]*+ (?: (?: \\. | "(?!"") ) [^"\\]*+ )* """
      | \'\'\' [^'\\]*+ (?: (?: \\. | '(?!\'\') ) [^'\\]*+ )* \'\'\'''',
    re.VERBOSE | re.DOTALL,
)
"""Comments, up to a quote, and texts in three quotes have no name that leads anywhere."""
_STAMP = struct.Struct("<QQ")
"""Size and modification time, before the hashes."""
_NEVER = frozenset(("node_modules", "__pycache__", "site-packages", "dist-packages", ".git"))
_ENVIRONMENT = frozenset(("pyvenv.cfg", "conda-meta"))
_BUILT = re.compile(r"lib$|(?:lib|bdist|temp)\.")
"""What setuptools writes into a folder `build`: copies of the project."""
_DRIVING = ("test", "bench", "example", "script", "demo")
_BATCH = 500
_MOST_PROJECTS = 20
_FORMAT = 2


class WordIndex:
    """Knows files by their place: the path below `root` with `/`. Only one thread at a time may use it.

    It keeps a file's size, its time and 3 bytes for each word. Two words in 16 million look the same, so a caller
    reads the file to be certain.
    """

    def __init__(self, root: str, cache: Callable[[], Path] | None = None) -> None:
        self.root = os.path.abspath(root)
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = {""}
        self.complete = False
        self.changed_places: set[str] = set()
        """What was read anew or has gone since whoever remembers something of the files emptied this."""
        self._edited: dict[str, str] = {}
        self._ignores = Ignores(self.root)
        self._walk: Iterator[tuple[str, os.stat_result]] | None = None
        self._seen: set[str] = set()
        self._known: dict[str, bytes] | None = None
        self._unsaved: dict[str, bytes] = {}
        self._store = _store(cache) if cache and is_text(self.root) else None

    # -- reading ------------------------------------------------------------------------------------

    def read(self, near: str = "", within: float | None = None) -> bool:
        """Read what is new or has changed, the folders nearest to the place `near` first, for at most `within`
        seconds. Return whether all has been read. The next call goes on, or begins anew.
        """
        end = None if within is None else time.monotonic() + within
        if self._walk is None:
            self._known = self._load() if self._known is None else self._known
            self._walk, self._seen = self._found(near), set()
        for place, status in self._walk:
            self._take(place, status)
            if len(self._unsaved) >= _BATCH:
                self._save()
            if end is not None and time.monotonic() > end:
                self._save()
                return False
        gone = [place for place in self.files if place not in self._seen and place not in self._edited]
        for place in gone:
            del self.files[place]
        self.changed_places.update(gone)
        self._save(self._known.keys() - self._seen if self._known else set[str]())
        self._walk, self._known, self._seen, self.complete = None, {}, set(), True
        return True

    def edit(self, path: str, text: str | None) -> None:
        """Use `text` as the text of a file, until a call with None. The editor shows it and has not saved it."""
        place = self.place(path)
        if place is None or self._edited.get(place) == text:
            return
        self.changed_places.add(place)
        if text is None:
            del self._edited[place]
            self.files.pop(place, None)
            self.changed(path)
        else:
            self._edited[place] = text
            if place.endswith(".py"):
                self._add(place, _STAMP.pack(0, 0) + _hashes(text.encode("utf-8", "replace")))

    def changed(self, path: str, *, wanted: bool = False) -> None:
        """Read one file again that was written, made or removed. A file that is `wanted` is read even if ignore files
        exclude it.
        """
        place = self.place(path)
        if place is None or place in self._edited or not place.endswith(".py"):
            return
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            if self.files.pop(place, None) is not None:
                self.changed_places.add(place)
            return
        if wanted or place in self.files or not self._ignores.excludes(place):
            self._take(place, status)
            self._save()

    def places(self, near: str, suffixes: tuple[str, ...]) -> Iterator[str]:
        """Yield the files of the project whose names end in one of the suffixes, the folders nearest to the place
        `near` first. Reads folders.
        """
        return (place for place, _ in self._found(near, suffixes))

    def place(self, path: str) -> str | None:
        return below(os.path.abspath(path), self.root)

    def path(self, place: str) -> str:
        return os.path.join(self.root, *place.split("/"))

    def text(self, place: str) -> str:
        """Return the text of a file, empty for one that cannot be read."""
        if place in self._edited:
            return self._edited[place]
        try:
            return regular_files.read(self.path(place), DRIVER_FILE).decode("utf-8-sig", "replace")
        except (OSError, ValueError):
            return ""

    def mention(self, word: str) -> list[str]:
        """Return the files in which a word stands, and now and then another one."""
        content = word.encode()
        if not content or content in _EVERYWHERE:
            return []
        needle = crc32(content).to_bytes(4, "little")[:3]
        return [place for place, words in self.files.items() if words.find(needle, _STAMP.size) >= 0]

    # -- files --------------------------------------------------------------------------------------

    def _take(self, place: str, status: os.stat_result) -> None:
        self._seen.add(place)
        if place in self._edited:
            return
        stamp = _STAMP.pack(status.st_size, status.st_mtime_ns & (1 << 64) - 1)
        words = self.files.get(place)
        if words and words.startswith(stamp):
            return
        words = self._known.get(place) if self._known else None
        if not words or not words.startswith(stamp):
            try:
                content = regular_files.read(self.path(place), DRIVER_FILE)
            except (OSError, ValueError):
                content = b""
            words = self._unsaved[place] = stamp + _hashes(content)
        self.changed_places.add(place)
        self._add(place, words)

    def _add(self, place: str, words: bytes) -> None:
        self.files[place] = words
        folder = posixpath.dirname(place)
        while folder not in self.folders:
            self.folders.add(folder)
            folder = posixpath.dirname(folder)

    def _found(self, near: str, suffixes: tuple[str, ...] = (".py",)) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the files of the folder whose names end in one of the suffixes. Links to folders are not followed:
        they may loop.
        """
        here = posixpath.dirname(near)
        waiting: list[tuple[float, str]] = []
        listed: set[str] = set()
        for up in range(here.count("/") + 2 if here else 1):
            heapq.heappush(waiting, (min(up, 2), here))
            here = posixpath.dirname(here)
        while waiting:
            distance, folder = heapq.heappop(waiting)
            if folder in listed:
                continue
            listed.add(folder)
            try:
                with os.scandir(self.path(folder) if folder else self.root) as entries:
                    listing = sorted(entries, key=lambda entry: entry.name)
            except OSError:
                continue
            if folder and any(entry.name in _ENVIRONMENT for entry in listing):
                continue
            if posixpath.basename(folder) == "build" and any(_BUILT.match(entry.name) for entry in listing):
                continue
            prefix = f"{folder}/" if folder else ""
            for entry in listing:
                if not is_text(entry.name):
                    continue
                name, place = entry.name, prefix + entry.name
                try:
                    if name.endswith(suffixes):
                        if entry.is_file() and not self._ignores.excludes(place):
                            yield place, entry.stat()
                    elif (
                        not name.startswith(".")
                        and name not in _NEVER
                        and entry.is_dir(follow_symlinks=False)
                        and not self._ignores.excludes(place, folder=True)
                    ):
                        near_by = 0.2 if name.lower().startswith(_DRIVING) else 1.0
                        heapq.heappush(waiting, (distance + near_by, place))
                except OSError:
                    continue

    # -- the cache ----------------------------------------------------------------------------------

    def _load(self) -> dict[str, bytes]:
        if self._store is None:
            return {}

        def work(file: sqlite3.Connection) -> dict[str, bytes]:
            return dict(file.execute("select place, words from files where root = ?", (self.root,)))

        try:
            return self._store.do(work, transaction=False, writes=False)
        except UnusableFileError:
            return {}

    def _save(self, gone: set[str] | None = None) -> None:
        """Save the index. If that fails, the next process reads all files again; nothing else is lost."""
        rows = [(self.root, place, words) for place, words in self._unsaved.items()]
        self._unsaved = {}
        if self._store is None or not (rows or gone):
            return

        def work(file: sqlite3.Connection) -> None:
            file.execute("insert or replace into projects values (?, ?)", (self.root, time.time()))
            file.executemany("insert or replace into files values (?, ?, ?)", rows)
            file.executemany(
                "delete from files where root = ? and place = ?", [(self.root, each) for each in gone or ()]
            )
            old = file.execute(
                "select root from projects order by used desc limit -1 offset ?", (_MOST_PROJECTS,)
            ).fetchall()
            file.executemany("delete from files where root = ?", old)
            file.executemany("delete from projects where root = ?", old)

        try:
            self._store.do(work)
        except UnusableFileError:
            return


def is_text(name: str) -> bool:
    """Say whether a name is Unicode. Other names are for the system only, and no import can mean them."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _hashes(content: bytes) -> bytes:
    """Return the hashes of every word. Words in comments and long texts are left out, unless the text is CUDA C++."""
    if b"__global__" not in content:
        content = _PROSE.sub(b"\n", content)
    words = set(content.translate(_WORD).split()) - _EVERYWHERE
    hashed = bytearray(array("I", [crc32(word) for word in words if word[0] > _NINE]).tobytes())
    del hashed[3::4]
    return bytes(hashed)


def _store(where: Callable[[], Path]) -> SqliteFile:
    return SqliteFile(
        where, "the index of drivers", _FORMAT, _make, busy_s=1.0, tell=lambda _: None,
        first=("pragma journal_mode = wal",), settings=("pragma synchronous = off",),
    )  # fmt: skip


def _make(file: sqlite3.Connection, _: int) -> None:
    file.execute("create table projects (root text primary key, used real) without rowid")
    file.execute(
        "create table files (root text, place text, words blob, primary key (root, place)) without rowid"
    )
