"""Every job and its result, kept over restarts in one SQLite file in the user's state folder. A job's row is
written before each of its phases begins. If its process is killed, the next reader of the row finds a job
without an owner, and records that orbit-lsp was killed or crashed.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import threading
import time
import uuid
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any, cast

from orbit_lsp.queue import owners
from orbit_lsp.queue.request import Refused, Request
from orbit_lsp.state.user_folders import state_folder
from orbit_remote.common import codec, limits
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass

FORMAT = 1
_BUSY_S = 10.0
RESUMED = "api"
"""The door whose waiting jobs outlive it: the next one of its kind takes them."""
_COLUMNS = (
    "id, door, state, why, outcome, summary, action, file, kernel, gpu, slot, priority, key, submitted, started, ended, "
    "owner, cancelling"
)
_TEXT, _NUMBER = (str,), (int, float, type(None))
_TYPES = (
    _TEXT, _TEXT, _TEXT, _TEXT, (str, type(None)), _TEXT, _TEXT, _TEXT, (str, type(None)), _TEXT, _TEXT, _TEXT, _TEXT,
    (int, float), _NUMBER, _NUMBER, _TEXT, (int,),
)  # fmt: skip
"""Of the columns: SQLite keeps a value of any type in each."""
_TABLES = """
create table jobs (
    number integer primary key, id text not null unique, door text not null, state text not null, why text not null default '',
    outcome text, summary text not null default '', action text not null, file text not null, kernel text, gpu text not null,
    slot text not null default '', priority text not null, key text not null, submitted real not null, started real,
    ended real, owner text not null, cancelling integer not null default 0, request blob not null, result blob
);
create index by_state on jobs (state);
create unique index by_key on jobs (door, key) where key <> '';
"""
_UNDER_WAY = "create index if not exists under_way on jobs (owner) where outcome is null"
"""Else each look at what is under way reads every job that ever ended."""


class StoreError(Exception):
    """The file of jobs cannot be used; the text is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its row has it. Times are seconds since 1970. `outcome` is None until it has ended; `slot` is where it
    runs or ran; `why` is what it waits for. `owner` is the process that has it.
    """

    id: str
    door: str
    state: c.State
    why: str
    outcome: c.Outcome | None
    summary: str
    action: str
    file: str
    kernel: str | None
    gpu: str
    slot: str
    priority: str
    key: str
    submitted: float
    started: float | None
    ended: float | None
    owner: str
    cancelling: bool = False

    @property
    def over(self) -> bool:
        return self.outcome is not None


@dataclass(frozen=True, slots=True)
class CodeLine:
    """Instructions that follow each other and are of one line, from 1, of `file`; `line` is None where none is known. `inner` names
    the lines that were inlined there (`half.h:12`), and `source` is the line's text, empty where its file cannot be read.
    """

    file: str
    line: int | None
    inner: str
    source: str
    code: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """What the compiler made of one instance of a kernel. `length` counts the instructions of SASS, and the lines of another
    level, which all stand under no line of the source.
    """

    kernel: str
    level: c.Level
    architecture: str
    length: int
    lines: tuple[CodeLine, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What a job came to. `problems` have their places in the author's file; `text` are the tables of a hover, each number
    with its source; `report` is a page for a browser, `profile` the file for Nsight Compute, both empty where there is none.
    `versus` is of a comparison: the sentence with its interval. `code` is of a request with `levels`.
    """

    finished: c.Finished
    problems: tuple[c.Problem, ...] = ()
    text: str = ""
    report: str = ""
    profile: str = ""
    versus: dict[str, Any] = field(default_factory=dict[str, Any])
    code: tuple[Code, ...] = ()


def jobs_file() -> Path:
    return state_folder() / "jobs.sqlite"


class JobStore:
    """Blocking; may be used by several threads, and by several processes at the same time."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises StoreError."""
        self._lock = threading.RLock()
        try:
            self.path = path or jobs_file()
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.owners = self.path.parent / "job-owners"
            self._file = sqlite3.connect(
                self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
        except (OSError, RuntimeError, sqlite3.Error) as error:
            raise StoreError(f"the record of jobs cannot be opened: {error}") from None
        with self._writing() as file:
            version = int(file.execute("pragma user_version").fetchone()[0])
            if version > FORMAT:
                raise StoreError(
                    f"{self.path} was written by a newer orbit-lsp (format {version}, this one knows {FORMAT})"
                )
            if not version:
                for statement in filter(str.strip, _TABLES.split(";")):
                    file.execute(statement)
                file.execute(f"pragma user_version = {FORMAT}")
            file.execute(_UNDER_WAY)

    def close(self) -> None:
        with self._lock:
            self._file.close()

    # -- writing ------------------------------------------------------------------------------

    def add(self, request: Request, owner: str, door: str) -> tuple[Job, bool]:
        """The job of a request, and whether it is new: a key that was used before names the job that it made. Raises
        Refused where that was for another request, and StoreError.
        """
        packed = _packed(dataclasses.asdict(request))
        with self._writing() as file:
            if request.key:
                row = file.execute(
                    "select id, request, outcome, owner from jobs where door = ? and key = ?",
                    (door, request.key),
                ).fetchone()
                if row:
                    if _unpacked(row[1]) != codec.read_json(json.dumps(dataclasses.asdict(request))):
                        raise Refused(f"the key {request.key} was used for another request, job {row[0]}")
                    if not self._interrupted(file, row[0]):
                        return self._one(file, row[0]), False
                    # it measured nothing: the same key runs it again
                    file.execute("update jobs set key = '' where id = ?", (row[0],))
            name = _new_id()
            file.execute(
                "insert into jobs (id, door, state, action, file, kernel, gpu, priority, key, submitted, owner, request) "
                "values (?, ?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    name, door, request.action, request.path or request.name, request.kernel, request.gpu,
                    request.priority, request.key, time.time(), owner, packed,
                ),
            )  # fmt: skip
            return self._one(file, name), True

    def phase(self, job: str, state: c.State, why: str = "", slot: str | None = None) -> None:
        """The job is about to enter a state."""
        with self._writing() as file:
            file.execute(
                "update jobs set state = ?, why = ?, slot = coalesce(?, slot), "
                "started = case when ? = 'queued' then started else coalesce(started, ?) end where id = ? and outcome is null",
                (state, why, slot, state, time.time(), job),
            )

    def end(self, job: str, result: Result, summary: str) -> Job:
        """Keep how a job ended, once: of two ends the first counts."""
        packed = _packed(dataclasses.asdict(result))
        with self._writing() as file:
            file.execute(
                "update jobs set state = 'done', why = '', outcome = ?, summary = ?, ended = ?, result = ? "
                "where id = ? and outcome is null",
                (result.finished.outcome, summary, time.time(), packed, job),
            )
            return self._one(file, job)

    def cancel(self, job: str) -> None:
        """Ask the process that has a job to end it; a job without a process ends at once."""
        with self._writing() as file:
            file.execute("update jobs set cancelling = 1 where id = ? and outcome is null", (job,))
            row = file.execute("select owner from jobs where id = ? and outcome is null", (job,)).fetchone()
        if row and not owners.alive(self.owners, row[0]):
            self.end(job, Result(c.failed(job, c.Failure("cancelled", "cancelled"))), "cancelled")

    def prune(self, older_s: float, door: str | None = None) -> int:
        """Remove the jobs that ended longer ago, of one door where it is given; returns how many."""
        self.sweep()
        with self._writing() as file:
            gone = file.execute(
                "delete from jobs where outcome is not null and ended <= ? and door = coalesce(?, door)",
                (time.time() - older_s, door),
            ).rowcount
        with self._reading() as file:
            file.execute("vacuum")
        return int(gone)

    # -- what is left of processes that ended --------------------------------------------------

    def sweep(self) -> None:
        """End the jobs whose process has ended. Jobs that waited for a server wait for the next one."""
        with self._reading() as file:
            rows = file.execute("select distinct owner from jobs where outcome is null").fetchall()
        gone = [owner for (owner,) in rows if isinstance(owner, str) and not owners.alive(self.owners, owner)]
        for owner in gone:
            with self._reading() as file:
                rows = file.execute(
                    "select id, state from jobs where outcome is null and owner = ? and not (state = 'queued' and door = ?)",
                    (owner, RESUMED),
                ).fetchall()
            for job, state in rows:
                why = interrupted(str(state))
                self.end(job, Result(c.failed(job, why)), f"{why.category}: {why.message}")

    def adopt(self, owner: str, door: str) -> list[Job]:
        """The waiting jobs of processes of this door that are gone: from now on they are the owner's."""
        self.sweep()
        with self._writing() as file:
            rows = file.execute(
                "select distinct owner from jobs where outcome is null and state = 'queued' and door = ?",
                (door,),
            ).fetchall()
            for (former,) in rows:
                if former != owner and not owners.alive(self.owners, former):
                    file.execute(
                        "update jobs set owner = ? where outcome is null and state = 'queued' and door = ? and owner = ?",
                        (owner, door, former),
                    )
            return self._rows(
                file, "where outcome is null and state = 'queued' and owner = ? order by number", (owner,)
            )

    def _interrupted(self, file: sqlite3.Connection, job: str) -> bool:
        row = file.execute("select outcome, owner, state from jobs where id = ?", (job,)).fetchone()
        if row[0] is None:
            return row[2] != "queued" and not owners.alive(self.owners, row[1])
        return row[0] == "infrastructure"

    # -- reading ------------------------------------------------------------------------------

    def job(self, job: str) -> Job | None:
        """By its id or the only beginning of one."""
        with self._reading() as file:
            if not 4 <= len(job) <= 64 or not job.isascii() or not job.isalnum():
                return None
            job = job.lower()
            # not `like`: it would read every row
            rows = self._rows(file, "where id >= ? and id < ? limit 2", (job, job + "~"))
        return rows[0] if len(rows) == 1 else None

    def keyed(self, door: str, key: str) -> Job | None:
        """The job of a door that was handed in with this key."""
        with self._reading() as file:
            rows = self._rows(file, "where door = ? and key = ? and key <> ''", (door, key))
        return rows[0] if rows else None

    def jobs(
        self,
        *,
        door: str | None = None,
        most: int = 100,
        under_way: bool = False,
        ended_well: str | None = None,
    ) -> list[Job]:
        """The newest first. `ended_well` names a kernel: only its jobs that ended well."""
        self.sweep()
        with self._reading() as file:
            return self._rows(
                file,
                "where door = coalesce(?, door) and (outcome is null or not ?) and (? is null or kernel = ? and outcome = 'ok') "
                "order by number desc limit ?",
                (door, under_way, ended_well, ended_well, most),
            )

    def cancelling(self, owner: str) -> list[str]:
        with self._reading() as file:
            rows = file.execute(
                "select id from jobs where outcome is null and cancelling and owner = ?", (owner,)
            )
            return [job for (job,) in rows.fetchall()]

    def counts(self, door: str | None = None) -> dict[str, int]:
        """Jobs by outcome, and by state where they are under way."""
        with self._reading() as file:
            rows = file.execute(
                "select coalesce(outcome, state), count(*) from jobs where door = coalesce(?, door) group by 1",
                (door,),
            ).fetchall()
        return dict(sorted(rows))

    def request(self, job: str) -> Request:
        """Raises StoreError where it cannot be read."""
        with self._reading() as file:
            row = file.execute("select request from jobs where id = ?", (job,)).fetchone()
        try:
            return codec.build(Request, _unpacked(row[0]), lenient=True)
        except (TypeError, ValueError) as error:
            raise StoreError(f"the request of job {job} cannot be read: {error}") from None

    def result(self, job: str) -> dict[str, Any] | None:
        """As JSON; None where there is none yet, or none that can be read."""
        with self._reading() as file:
            row = file.execute("select result from jobs where id = ?", (job,)).fetchone()
        try:
            known: Any = _unpacked(row[0]) if row and row[0] else None
        except ValueError:
            return None
        return cast("dict[str, Any]", known) if isinstance(known, dict) else None

    # -- the file -----------------------------------------------------------------------------

    def _one(self, file: sqlite3.Connection, job: str) -> Job:
        if rows := self._rows(file, "where id = ?", (job,)):
            return rows[0]
        raise StoreError(f"the record of job {job!r:.40} cannot be read ({self.path})")

    def _rows(self, file: sqlite3.Connection, where: str, values: Sequence[Any]) -> list[Job]:
        rows = file.execute(f"select {_COLUMNS} from jobs {where}", values).fetchall()  # noqa: S608 - `where` is ours
        return [Job(*row[:-1], cancelling=bool(row[-1])) for row in rows if _is_ours(row)]

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        with self._reading() as file:
            file.execute("begin immediate")
            try:
                yield file
            except BaseException:
                with suppress(sqlite3.Error):
                    file.execute("rollback")
                raise
            file.execute("commit")

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        try:
            with self._lock:
                yield self._file
        except sqlite3.Error as error:
            raise StoreError(f"the record of jobs cannot be used: {error} ({self.path})") from None


def _is_ours(row: Sequence[Any]) -> bool:
    """Whether a row has the types that we write: another program may have been at the file."""
    return all(isinstance(value, types) for value, types in zip(row, _TYPES, strict=True))


def interrupted(state: str) -> c.Failure:
    """Why a job ended whose process ended first."""
    if state == "queued":
        text, remedy = "orbit-lsp was killed or crashed while this job waited", "submit it again"
    else:
        text = "orbit-lsp was killed or crashed while this job ran"
        remedy = "submit it again; nothing was measured"
    return c.Failure("infrastructure", text, remedy, retryable=True)


def _new_id() -> str:
    return uuid.uuid4().hex[:16]


def _packed(value: Any) -> bytes:
    return zlib.compress(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"), 1)


def _unpacked(packed: bytes) -> Any:
    """Raises ValueError."""
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, limits.JOB.most)
    except (zlib.error, TypeError) as error:
        raise ValueError(str(error)) from None
    if not unpacking.eof:
        raise ValueError(f"it is damaged, or {limits.JOB.exceeded}")
    return codec.read_json(content)
