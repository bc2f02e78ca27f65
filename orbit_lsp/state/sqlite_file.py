"""The SQLite files of the user's state folder: the record of jobs, the history, the record of spending.

A file is opened anew for each piece of work, so threads and other processes may use it at the same time. A damaged
file is set aside, once, and a new one is begun. If something cannot be written now, because the disk is full or
another process holds the file, it waits in memory. So no measurement is lost by a moment without a disk.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.plain_text import visible

if TYPE_CHECKING:
    import sqlite3

log = logging.getLogger("orbit.files")

T = TypeVar("T")
Work = Callable[["sqlite3.Connection"], T]

_AGAIN_S = 0.2
"""How long who writes waits for a file that could not be used the last time; who reads does not: they must not queue up."""
_PAUSE_S = 0.5
"""Between two attempts to write what waits."""
_BUSY, _LOCKED, _NOMEM, _READONLY, _IOERR, _FULL, _CANTOPEN = 5, 6, 7, 8, 10, 13, 14
"""SQLite's result codes; https://sqlite.org/rescode.html."""
_PASSING = (_BUSY, _LOCKED, _NOMEM, _IOERR, _FULL)
_HELD = "another process holds it: wait for that process, or end it"
_FREE = "free disk space"
_REMEDIES = {
    _BUSY: _HELD,
    _LOCKED: _HELD,
    _FULL: _FREE,
    _IOERR: "look at the disk: whether it is full, and whether it works",
    _READONLY: "make the file and its folder writable for you",
    _CANTOPEN: "it must be a file that you may read and write: move away what is there",
}
_OS_REMEDIES = {
    errno.ENOSPC: _FREE,
    errno.EDQUOT: _FREE,
    errno.EACCES: "make the folder writable for you",
    errno.EROFS: "make the folder writable for you",
}


class UnusableFileError(Exception):
    """A file cannot be used now. The text says why and what to do. `passing`: it may become usable soon without
    anybody's action.
    """

    def __init__(
        self, reason: str, remedy: str = "", path: Path | None = None, *, passing: bool = False
    ) -> None:
        named = f"{reason} ({path})" if path else reason
        super().__init__(visible(f"{named}; {remedy}" if remedy else named))
        self.reason, self.remedy, self.passing = visible(reason), remedy, passing


@dataclass(slots=True)
class _Behind:
    """A file that could not be used the last time. `works` is still to be written, in this order."""

    file: SqliteFile
    since: float
    why: UnusableFileError
    works: deque[Work[Any]] = field(default_factory=deque[Work[Any]])
    tried: float = float("-inf")
    writing: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class FileTrouble:
    """A file that cannot be written. `since` is seconds since 1970; `text` is a sentence."""

    path: Path
    since: float
    text: str


_behind: dict[Path, _Behind] = {}
"""What this process waits to write: it outlives the object that could not write it."""
_changing = threading.Lock()
_setting_aside = threading.Lock()


class SqliteFile:
    def __init__(
        self,
        where: Callable[[], Path],
        what: str,
        version: int,
        make: Callable[[sqlite3.Connection, int], None],
        *,
        busy_s: float,
        tell: Callable[[str], None],
        first: Sequence[str] = (),
        settings: Sequence[str] = (),
        most: int = 100_000,
    ) -> None:
        """Make a file's handle.

        `where` returns the path, and is called each time. `make` gets the version of a file, 0 for a new one, and
        gives the file the tables of `version`. `tell` gets the sentence about a damaged file. `first` are statements
        for a new file, outside of a transaction; `settings` are those for each connection. `most` is how much may
        wait to be written.
        """
        self._where, self._what, self._version, self._make = where, what, version, make
        self._tell, self._first, self._settings = tell, first, settings
        self._most = most
        self.busy_s = busy_s

    def sentence(self, since: float, why: UnusableFileError) -> str:
        """Return the sentence about the trouble, without the file's name: strangers may read it."""
        when = f"{datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC"
        end = f"; {why.remedy}" if why.remedy else ""
        return f"{self._what} cannot be written since {when}: {why.reason}{end}"

    # -- use ----------------------------------------------------------------------------------

    def do(self, work: Work[T], *, transaction: bool = True, writes: bool = True) -> T:
        """Return the result of `work`, in one transaction. Raises UnusableFileError, and what `work` raises."""
        path = self.path()
        behind = _behind.get(path)
        if behind and behind.works and not self.write_again() and writes:
            raise behind.why  # what came first is written first
        return self._do(path, work, transaction=transaction, writes=writes)

    def keep(self, work: Work[T]) -> T:
        """Do `work`, but write later what cannot be written now. Raises UnusableFileError then too."""
        try:
            return self.do(work)
        except UnusableFileError as why:
            with suppress(UnusableFileError), _changing:
                path = self.path()
                works = _behind.setdefault(path, _Behind(self, time.time(), why)).works
                works.append(work)
                if len(works) > self._most:
                    works.popleft()
                    log.error("%s: too much waits to be written, so the oldest is given up", self._what)
            raise

    def write_again(self, *, at_once: bool = False) -> bool:
        """Write what waits, or find out whether the file can be written. Return whether it can. It tries twice a
        second at most, unless `at_once`.
        """
        path = self.path()
        behind = _behind.get(path)
        if behind is None:
            return True
        with behind.writing:
            if not at_once and time.monotonic() - behind.tried < _PAUSE_S:
                return _behind.get(path) is not behind
            try:
                while behind.works:
                    work = behind.works[0]
                    try:
                        self._do(path, work, transaction=True, writes=False)
                    except UnusableFileError:
                        raise
                    except Exception:
                        log.exception("%s: something that waited cannot be written", self._what)
                    with _changing:
                        if behind.works and behind.works[0] is work:
                            behind.works.popleft()
                self._do(path, self._probe, transaction=True, writes=True)
            except UnusableFileError:
                return False
            finally:
                behind.tried = time.monotonic()
        return path not in _behind

    def trouble(self) -> UnusableFileError | None:
        """Return why the file could not be used the last time. Return None once it can be written."""
        behind = _behind.get(self.path())
        return behind.why if behind else None

    def waits(self) -> int:
        """Return how many pieces of work are still to be written."""
        behind = _behind.get(self.path())
        return len(behind.works) if behind else 0

    def path(self) -> Path:
        """Raises UnusableFileError."""
        try:
            return self._where()
        except (OSError, RuntimeError) as error:  # no home folder
            raise UnusableFileError(str(error)) from None

    # -- the file -----------------------------------------------------------------------------

    def _do(self, path: Path, work: Work[T], *, transaction: bool, writes: bool) -> T:
        import sqlite3

        for last in (False, True):
            seen = identity(path)
            try:
                done = self._once(path, work, transaction=transaction)
            except UnusableFileError as why:
                raise self._failed(path, why) from None
            except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter of a damaged schema
                if not _is_damage(error):
                    raise self._failed(path, _unusable(error, path)) from None
                if last:
                    raise self._failed(
                        path, UnusableFileError(f"it was damaged ({error})", path=path)
                    ) from None
                self.set_aside(path, error, seen)
            except OSError as error:
                remedy = _OS_REMEDIES.get(error.errno or 0, "")
                why = UnusableFileError(error.strerror or str(error), remedy, path, passing=remedy == _FREE)
                raise self._failed(path, why) from None
            else:
                if writes:
                    self._written(path)
                return done
        raise AssertionError

    def _once(self, path: Path, work: Work[T], *, transaction: bool) -> T:
        import sqlite3

        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        patience = self.busy_s
        if path in _behind:
            patience = min(_AGAIN_S, patience) if transaction else 0.0
        with closing(sqlite3.connect(path, timeout=patience, isolation_level=None)) as file:
            file.text_factory = _decoded
            version = _version(file)
            if version > self._version:
                why = (
                    f"it was written by a newer orbit-lsp (format {version}, this one knows {self._version})"
                )
                raise UnusableFileError(why, "update this orbit-lsp, or move the file away", path)
            if version < self._version:
                for statement in self._first:
                    file.execute(statement)
                file.execute("begin immediate")
                if (version := _version(file)) < self._version:  # another process may have been quicker
                    self._make(file, version)
                    file.execute(f"pragma user_version = {self._version}")
                file.execute("commit")
            for statement in self._settings:
                file.execute(statement)
            if transaction:
                file.execute("begin immediate")
            done = work(file)
            if transaction:
                file.execute("commit")
        return done

    def _probe(self, file: sqlite3.Connection) -> None:
        """A write that changes nothing."""
        file.execute(f"pragma user_version = {self._version}")

    def _failed(self, path: Path, why: UnusableFileError) -> UnusableFileError:
        with _changing:
            if behind := _behind.get(path):
                behind.why = why
            else:
                _behind[path] = _Behind(self, time.time(), why)
                log.warning("%s cannot be used: %s", self._what, why)
        return why

    def _written(self, path: Path) -> None:
        with _changing:
            if (behind := _behind.get(path)) and not behind.works:
                del _behind[path]
                log.warning("%s can be written again", self._what)

    def set_aside(self, path: Path, error: Exception, seen: tuple[int, int] | None) -> None:
        """Rename the file that was `seen`, with what SQLite keeps beside it. Raises UnusableFileError."""
        aside = path.with_suffix(f".damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.sqlite")
        try:
            with _setting_aside:  # two threads that saw the damage: the second would move the new file away
                if identity(path) != seen:  # another was first
                    return
                # before the file itself: a new one begins as soon as that is gone, with its own beside it
                for suffix in ("-wal", "-shm", "-journal"):
                    beside = path.with_name(path.name + suffix)
                    if beside.exists():
                        beside.replace(aside.with_name(aside.name + suffix))
                path.replace(aside)
        except FileNotFoundError:
            return
        except OSError as refused:
            why = f"it was damaged ({error}), and it is in the way: {refused.strerror}"
            raise self._failed(path, UnusableFileError(why, "move it away", path)) from None
        self._tell(visible(f"{self._what} was damaged ({error}); it is now {aside}, and a new one begins"))


def write_again() -> None:
    """Write what waits in this process, for every file."""
    for behind in list(_behind.values()):
        with suppress(UnusableFileError):
            behind.file.write_again()


def troubles(folder: Path) -> list[FileTrouble]:
    """Return the files of a folder that this process cannot write now."""
    return [
        FileTrouble(path, behind.since, behind.file.sentence(behind.since, behind.why))
        for path, behind in list(_behind.items())
        if path.parent == folder
    ]


# -- locks ------------------------------------------------------------------------------------------


def lock(path: Path) -> sqlite3.Connection:
    """Lock a file for one process, in the same way on every platform, until the connection is closed or the process
    ends, however it ends. Raises sqlite3.Error. `is_held` says whether another process has the lock.
    """
    return _locked(path, "rwc")


def is_held(path: Path) -> bool:
    """Say whether a process holds this lock, or may hold it: a lock that cannot be examined does not count as
    released.
    """
    import sqlite3

    try:
        _locked(path, "rw").close()
    except sqlite3.OperationalError:
        return os.path.lexists(path)  # else it was removed meanwhile
    except sqlite3.DatabaseError:  # somebody wrote into it
        return False
    return False


def _locked(path: Path, mode: str) -> sqlite3.Connection:
    import sqlite3

    # the name of a file in a URI is absolute
    file = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        file.execute("begin exclusive")
    except sqlite3.Error:
        file.close()
        raise
    return file


# -- errors -----------------------------------------------------------------------------------------


def _unusable(error: sqlite3.Error | UnicodeDecodeError, path: Path) -> UnusableFileError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return UnusableFileError(str(error), _REMEDIES.get(code, ""), path, passing=code in _PASSING)


def _is_damage(error: sqlite3.Error | UnicodeDecodeError) -> bool:
    """Say whether an error is of the file's content."""
    import sqlite3

    text = str(error)
    return not isinstance(error, sqlite3.OperationalError) or (
        text.startswith(("no such", "malformed")) or "already exists" in text or "has no column" in text
    )


def identity(path: Path) -> tuple[int, int] | None:
    """Return which file a name leads to. Return None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _version(file: sqlite3.Connection) -> int:
    return int(file.execute("pragma user_version").fetchone()[0])
