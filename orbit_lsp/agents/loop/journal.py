"""The journal of a loop. Every step is written down before it begins and after it has ended. So a loop that was
killed goes on where it was, and does nothing twice.

`journal.jsonl` is the loop's only memory: iterations, counts and the best version are read from it. A lock of SQLite,
the same on every platform, keeps a second loop out. `heartbeat.json` tells others the present state.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import time
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from orbit_lsp.runners.modal.ledger import clock
from orbit_lsp.state.sqlite_file import lock
from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import content_hash

State = Literal["begin", "end"]
FILE, HEARTBEAT, _LOCK = "journal.jsonl", "heartbeat.json", "lock"


class JournalError(Exception):
    """The folder of a loop cannot be used; the text is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A line of the journal. `iteration` is 0 if it belongs to none. `at` is seconds since 1970."""

    step: str
    state: State
    iteration: int
    at: float
    data: dict[str, Any] = field(default_factory=dict[str, Any])


class Journal:
    def __init__(self, folder: Path, *, fresh: bool = False) -> None:
        """Take the folder and read what it has, or with `fresh` empty it. Raises JournalError and OSError."""
        if fresh and folder.is_dir() and any(folder.iterdir()) and not (folder / FILE).is_file():
            raise JournalError(f"{folder} is not the folder of a loop, so --fresh-start does not empty it")
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():  # a loop writes to its own folder alone, whoever made the links in it
            if path.is_symlink():
                raise JournalError(f"{path} is a link, which is not allowed in a loop's folder; remove it")
        self.folder = folder
        self._lock = _locked(folder)
        try:
            if fresh:
                _empty(folder)
            if not (folder / ".gitignore").exists():
                regular_files.replace(folder / ".gitignore", b"*\n")
            self.entries = _read(folder / FILE)
        except BaseException:
            self._lock.close()
            raise

    def close(self) -> None:
        self._lock.close()

    def write(self, step: str, state: State, iteration: int = 0, data: dict[str, Any] | None = None) -> None:
        """Add a line, which is on the disk when this returns. Raises OSError."""
        entry = JournalEntry(step, state, iteration, clock(), data or {})
        record = {"step": step, "state": state, "iteration": iteration, "at": entry.at, "data": entry.data}
        line = _line(record | {"check": _check(record)})
        descriptor = os.open(self.folder / FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            before = os.fstat(descriptor).st_size
            if os.write(descriptor, line) != len(line):
                os.ftruncate(descriptor, before)  # half a line would damage the next one
                raise OSError(errno.ENOSPC, "the disk is full; free space", str(self.folder / FILE))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self.entries.append(entry)

    def ended(self, step: str, iteration: int = 0) -> dict[str, Any] | None:
        """Return the result of a step. Return None if it has not ended."""
        return next(
            (it.data for it in self.entries if (it.step, it.state, it.iteration) == (step, "end", iteration)),
            None,
        )

    def has_begun(self, step: str, iteration: int = 0) -> bool:
        return any((it.step, it.iteration) == (step, iteration) for it in self.entries)

    def ends(self, step: str) -> list[JournalEntry]:
        return [entry for entry in self.entries if (entry.step, entry.state) == (step, "end")]

    def active_s(self) -> float:
        """Return how many seconds the loop has worked before, without the times between its processes."""
        total, began, last = 0.0, 0.0, 0.0
        for entry in self.entries:
            if entry.step == "session":
                total += max(0.0, last - began)
                began = entry.at
            last = entry.at if began else 0.0
        return total + max(0.0, clock() - began)

    def beat(self, values: dict[str, Any]) -> None:
        """Say what goes on now. Raises OSError."""
        record = {"pid": os.getpid(), "at": time.time(), **values}
        regular_files.replace(self.folder / HEARTBEAT, json.dumps(record, indent=2).encode() + b"\n")


def _locked(folder: Path) -> sqlite3.Connection:
    """Lock the folder until the connection is closed or this process ends, however it ends."""
    try:
        return lock(folder / _LOCK)
    except sqlite3.Error as error:
        if "locked" not in str(error):
            raise JournalError(f"{folder / _LOCK} cannot be locked: {error}") from None
        raise JournalError(
            f"another loop is at work in {folder}{_who(folder)}; end it, or choose another --state"
        ) from None


def _empty(folder: Path) -> None:
    """Empty the folder. The journal is removed last: without it nobody would take this for the folder of a loop."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == FILE):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif not path.name.startswith(_LOCK):
            path.unlink()


def _who(folder: Path) -> str:
    try:
        known = codec.read_json(regular_files.read(folder / HEARTBEAT, limits.STATE))
        return f" (process {int(known['pid'])}, last seen {max(0.0, time.time() - float(known['at'])):.0f} s ago)"
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return ""


def _read(path: Path) -> list[JournalEntry]:
    """Read the journal. A last line that was being written when its process was killed is cut off; nothing happened
    after it.
    """
    try:
        content = regular_files.read(path, limits.LOOP_JOURNAL)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}; --fresh-start begins anew") from None
    *lines, rest = content.split(b"\n")
    if rest:
        os.truncate(path, len(content) - len(rest))
    entries: list[JournalEntry] = []
    for number, line in enumerate(lines, 1):
        try:
            record = codec.read_json(line)
            whole = record.pop("check") == _check(record)
            entry = JournalEntry(**record) if whole else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            entry = None
        if entry is None:
            raise JournalError(f"line {number} of {path} is damaged; --fresh-start begins anew")
        entries.append(entry)
    return entries


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=True).encode() + b"\n"


def _check(record: dict[str, Any]) -> str:
    """Return a checksum of a line. A line that somebody has edited does not have the right one."""
    return content_hash(_line(record))[:16]
