"""The runs of kernels and their times, kept over restarts and for all editors in one SQLite file in the user's state
folder.

A row is one run or one profile of one kernel, with its whole result and the text that ran. So it can be shown, and
that version can run again. Each text is kept once. The oldest rows are deleted when the file grows beyond its limit.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from orbit_lsp.state.results import renamed
from orbit_lsp.state.sqlite_file import SqliteFile, UnusableFileError
from orbit_remote.common import codec, limits
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Finished, Launches, content_hash
from orbit_remote.common.plain_text import visible
from orbit_remote.common.requests import Driver, Through

if TYPE_CHECKING:
    import sqlite3

log = logging.getLogger("orbit.history")

T = TypeVar("T")
Action = Literal["run", "profile"]

FORMAT = 1
"""Of the file; one of a higher number was written by a newer orbit-lsp and is left to it."""
MOST_RUNS = 200
"""Of one kernel."""
_BUSY_S = 5.0
_RECENT = 80
"""Rows whose content is kept as it was read: each run of a kernel is compared with the ones before it."""
_OUTPUT = 2_000
"""Characters of what the program printed that are kept."""
_AT_ONCE = 500
"""Rows that are given up at a time when the file is too large."""
_TABLES = (
    """
create table runs (
    id integer primary key, at real not null, path text not null, kernel text not null, action text not null,
    digest text not null, inputs text not null, text text, said blob not null
)
""",
    "create index of_kernel on runs (path, kernel, id)",
    "create index of_text on runs (text)",
    "create table texts (hash text primary key, body blob not null)",
)


@dataclass(frozen=True, slots=True)
class StoredResult:
    """What a run or a profile reported about one kernel; `asked` is the name of the kernel that was clicked.
    See `session.Result` and `session.Profiled`.
    """

    finished: Finished
    launches: tuple[Launches, ...] = ()
    files: dict[str, str] | None = None
    through: Through = "program"
    asked: str | None = None
    lines: str = ""
    elements: tuple[str, ...] = ()
    detail: Literal["click", "full", "imported"] = "click"
    driver: Driver | None = None


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One row. `text` is the hash of the file's text as it ran; None if that text is not kept. `id` is 0 for a row
    that is not written yet.
    """

    at: float
    path: str
    kernel: str
    action: Action
    digest: str
    inputs: str
    result: StoredResult
    text: str | None = None
    id: int = 0


class HistoryStore:
    """The file of the history. Calls block; each opens the file anew, so threads and other editors may use it at the
    same time.
    """

    def __init__(self, where: Callable[[], Path], most_bytes: int = 256 << 20) -> None:
        """Make a store. `where` returns the file, and is called each time; a RuntimeError of it becomes a complaint
        too.
        """
        self._where = where
        self._file = SqliteFile(
            where, "the history of kernels", FORMAT, _make, busy_s=_BUSY_S, tell=self._complain, most=MOST_RUNS,
            first=("pragma auto_vacuum = incremental", "pragma journal_mode = wal"),
            settings=("pragma synchronous = normal",),
        )  # fmt: skip
        self._most = most_bytes
        self._complaints: list[str] = []

    def keep(self, entry: HistoryEntry, text: str | None) -> int | None:
        """Add a run and return the number of its row. `text` is the text that ran, None if that is not of this file."""
        body = (text or "").encode("utf-8", "surrogatepass")
        name = content_hash(body) if text is not None and len(body) <= limits.HISTORY_TEXT.most else None
        row = (
            entry.at, entry.path, entry.kernel, entry.action, entry.digest, entry.inputs, name, _packed(entry.result),
        )  # fmt: skip

        def work(file: sqlite3.Connection) -> int | None:
            if name:
                file.execute("insert or ignore into texts values (?, ?)", (name, zlib.compress(body)))
            added = file.execute(
                "insert into runs (at, path, kernel, action, digest, inputs, text, said) values (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            ).lastrowid
            file.execute(
                "delete from runs where id in (select id from runs where path = ? and kernel = ? "
                "order by id desc limit -1 offset ?)",
                (entry.path, entry.kernel, MOST_RUNS),
            )
            _drop_texts(file)
            return added

        try:
            added = self._file.keep(work)
            self._file.do(self._shrink, transaction=False)
        except UnusableFileError as why:
            self._cannot(why)
            return None
        return added

    def write_again(self) -> None:
        """Write what could not be written before, if that is possible now."""
        with suppress(UnusableFileError):
            self._file.write_again(at_once=True)

    def stamp(self) -> tuple[tuple[int, int, int], ...]:
        """Return a value that differs once anybody has written to the file. It looks at the disk twice."""
        stamps: list[tuple[int, int, int]] = []
        with suppress(UnusableFileError):
            path = self._file.path()
            for file in (path, path.with_name(path.name + "-wal")):
                with suppress(OSError):
                    status = file.stat()
                    stamps.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(stamps)

    def since(self, number: int) -> tuple[int, dict[int, str]]:
        """Return the number of the last row, and the paths of the rows after row `number`, by their numbers."""

        def work(file: sqlite3.Connection) -> tuple[int, dict[int, str]]:
            last = int(file.execute("select coalesce(max(id), 0) from runs").fetchone()[0])
            rows = file.execute("select id, path from runs where id > ?", (number,)).fetchall()
            return last, {key: path for key, path in rows if isinstance(path, str)}

        return self._read(work, (0, {}))

    def entries(self, path: str, kernel: str | None = None, most: int = MOST_RUNS) -> list[HistoryEntry]:
        """Return the newest `most` runs of a file's kernels, or of one of them, the oldest first. Paths that lead to
        the same file count too.
        """

        def work(file: sqlite3.Connection) -> list[tuple[Any, ...]]:
            names = _names(file, path)
            return file.execute(
                "select id, at, path, kernel, action, digest, inputs, text, said from runs "
                "where path in (select value from json_each(?)) and kernel = coalesce(?, kernel) order by id desc limit ?",
                (names, kernel, most),
            ).fetchall()

        nothing: list[tuple[Any, ...]] = []
        stored: list[HistoryEntry] = []
        damaged: list[int] = []
        why = ""
        for row in self._read(work, nothing):
            try:
                stored.append(_entry(row))
            except _DamagedError as error:
                damaged.append(row[0])
                why = str(error)
            except ValueError as error:  # of another version of the contract, which may read it again
                why = str(error).partition("\n")[0]
        if why:
            log.warning(
                "runs of %s in the history were left out, %d of them for good: %s",
                path,
                len(damaged),
                visible(why),
            )
        if damaged:
            with suppress(UnusableFileError):
                self._file.do(
                    lambda file: file.execute(
                        "delete from runs where id in (select value from json_each(?))", [json.dumps(damaged)]
                    )
                )
        return sorted(stored, key=lambda entry: (entry.at, entry.id))

    def kernels(self, path: str) -> list[str]:
        """Return the kernels of a file that have a history. The one that ran last is first."""

        def work(file: sqlite3.Connection) -> list[str]:
            names = _names(file, path)
            rows = file.execute(
                "select kernel from runs where path in (select value from json_each(?)) group by kernel order by max(id) desc",
                (names,),
            )
            return [row[0] for row in rows if isinstance(row[0], str)]

        nothing: list[str] = []
        return self._read(work, nothing)

    def text(self, name: str) -> str | None:
        """Return the text with this hash, or None if it was deleted."""

        def work(file: sqlite3.Connection) -> bytes | None:
            row = file.execute("select body from texts where hash = ?", (name,)).fetchone()
            return row[0] if row else None

        body = self._read(work, None)
        try:
            return _unpacked(body, limits.HISTORY_TEXT).decode("utf-8", "surrogatepass") if body else None
        except ValueError as error:
            log.warning("text %s cannot be read: %s", name, error)
            return None

    def moved_from(self, path: str, digests: Mapping[str, str]) -> str | None:
        """Return a file that was run with one of these kernels (same name and digest) and is gone now. Return None
        without one.
        """

        def work(file: sqlite3.Connection) -> list[tuple[str, str, str]]:
            return file.execute(
                "select path, kernel, digest from runs where kernel in (select value from json_each(?)) and path <> ? "
                "and typeof(path) = 'text' group by path, kernel, digest order by max(id) desc",
                (json.dumps(list(digests)), path),
            ).fetchall()

        nothing: list[tuple[str, str, str]] = []
        for old, kernel, digest in self._read(work, nothing):
            if digests.get(kernel) == digest and "\0" not in old and not os.path.lexists(old):
                return old
        return None

    def rename(self, old: str, new: str) -> None:
        """Record that a file or a folder has another path now: its runs and what they say of it move too."""
        within = old.rstrip("/\\")

        def work(file: sqlite3.Connection) -> None:
            rows = file.execute(
                "select id, path, said from runs where path in (select value from json_each(?)) "
                "or substr(path, 1, ?) in (?, ?)",
                (_names(file, old), len(within) + 1, within + "/", within + "\\"),
            ).fetchall()
            for number, path, packed in rows:
                name = new.rstrip("/\\") + path[len(within) :] if path.startswith(within) else new
                result = _of_another_path(packed, path, name)
                file.execute("update runs set path = ?, said = ? where id = ?", (name, result, number))

        if self._exists():
            try:
                self._file.keep(work)
            except UnusableFileError as why:
                self._cannot(why)

    def complaints(self) -> list[str]:
        """Return what went wrong since the last call, a sentence each."""
        complained, self._complaints = self._complaints, []
        return complained

    # -- the file -----------------------------------------------------------------------------

    def _read(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Do a reading `work` on the file, or return `otherwise`. It makes no file, and needs none that can be
        written. A failure becomes a complaint.
        """
        if not self._exists():
            return otherwise
        try:
            return self._file.do(work, transaction=False, writes=False)
        except UnusableFileError as why:
            self._cannot(why)
            return otherwise

    def _exists(self) -> bool:
        try:
            return self._file.path().exists()
        except UnusableFileError as why:
            self._cannot(why)
        except OSError as error:
            self._complain(f"the history of kernels cannot be read: {error}")
        return False

    def _cannot(self, why: UnusableFileError) -> None:
        """Complain and go on: kernels also run where no history can be kept."""
        self._complain(f"the history of kernels cannot be kept: {why}")

    def _shrink(self, file: sqlite3.Connection) -> None:
        """Give up the oldest rows of all kernels until the file is within its bound."""
        while _bytes(file) > self._most:
            file.execute("begin immediate")
            gone = file.execute(
                "delete from runs where id in (select id from runs where id < (select max(id) from runs) "
                "order by id limit ?)",
                (_AT_ONCE,),
            ).rowcount
            _drop_texts(file)
            file.execute("commit")
            file.execute("pragma incremental_vacuum").fetchall()
            if not gone:
                break

    def _complain(self, text: str) -> None:
        text = visible(text)
        log.warning("%s", text)
        self._complaints.append(text)


def _make(file: sqlite3.Connection, version: int) -> None:
    del version  # there was none before
    for table in _TABLES:
        file.execute(table)


def _names(file: sqlite3.Connection, path: str) -> str:
    """Return the path, and the paths in the history that lead to the same file through links of folders, as a JSON
    array.
    """
    real, name = os.path.realpath(path), f"%/{Path(path).name}"
    rows = file.execute(
        "select distinct path from runs where path like ? and path <> ? and typeof(path) = 'text'",
        (name, path),
    )
    same = [other for (other,) in rows if "\0" not in other and os.path.realpath(other) == real]
    return json.dumps([path, *same])


def _bytes(file: sqlite3.Connection) -> int:
    """Return the size of the file without the pages that are free to be used again."""
    pages, free, size = (
        int(file.execute(f"pragma {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def _drop_texts(file: sqlite3.Connection) -> None:
    file.execute("delete from texts where hash not in (select text from runs where text is not null)")


def _packed(result: StoredResult) -> bytes:
    finished = replace(
        result.finished,
        stdout=result.finished.stdout[-_OUTPUT:],
        stderr=result.finished.stderr[-_OUTPUT:],
        report="",
    )
    return zlib.compress(
        json.dumps(asdict(replace(result, finished=finished)), ensure_ascii=False).encode("utf-8", "replace")
    )


def _of_another_path(packed: Any, old: str, new: str) -> Any:
    """Replace the old path in a packed result by the new one. A result that cannot be read stays as it is: whoever
    reads it reports that.
    """
    try:
        result = renamed(codec.read_json(_unpacked(packed, limits.HISTORY_RUN)), {old: new})
    except (ValueError, RecursionError):
        return packed
    return zlib.compress(json.dumps(result, ensure_ascii=False).encode("utf-8", "replace"))


class _DamagedError(ValueError):
    """A row that no version can read."""


def _unpacked(packed: Any, limit: limits.Limit) -> bytes:
    """Unpack a row. Raises _DamagedError also if it would unpack to too much: a row of some KB may unpack to more
    than the memory.
    """
    if not isinstance(packed, bytes):
        raise _DamagedError("a packed value is not one")
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, limit.most)
    except zlib.error as error:
        raise _DamagedError(str(error)) from None
    if not unpacking.eof:
        raise _DamagedError(f"it is damaged, or {limit.exceeded}")
    return content


@functools.lru_cache(maxsize=_RECENT)
def _entry(row: tuple[Any, ...]) -> HistoryEntry:
    """Return the entry of a row. Raises _DamagedError, and ValueError if another version wrote it."""
    number, at, path, kernel, action, digest, inputs, text, packed = row
    words = (path, kernel, digest, inputs, "" if text is None else text)
    if not (isinstance(at, float) and abs(at) < 1e11 and all(isinstance(word, str) for word in words)):
        raise _DamagedError("a value is of another type")
    if action not in ("run", "profile"):
        raise _DamagedError("its action is neither a run nor a profile")
    try:
        content = codec.read_json(_unpacked(packed, limits.HISTORY_RUN))
    except ValueError as error:
        raise _DamagedError(str(error)) from None
    return HistoryEntry(
        at,
        path,
        kernel,
        action,
        digest,
        inputs,
        codec.build(StoredResult, content, lenient=True),
        text,
        number,
    )
