"""Every job and its result, kept over restarts in one SQLite file in the user's state folder.

A job's row is written before each of its phases begins. If its process is killed, the next reader of the row finds a
job without an owner, and records that orbit-lsp was killed or crashed.

A process also has its own jobs in memory until their ends are written, so that they go on while the file cannot be
used.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from orbit_lsp.queue import owners
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_lsp.state.sqlite_file import SqliteFile, UnusableFileError
from orbit_lsp.state.user_folders import state_folder
from orbit_remote.common import codec, limits
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Level

if TYPE_CHECKING:
    import sqlite3

log = logging.getLogger("orbit.queue")

T = TypeVar("T")

FORMAT = 1
_BUSY_S = 2.0
"""Whoever submits a job waits that long for an answer at most."""
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
create index under_way on jobs (owner) where outcome is null;
"""
"""The last index, else each look at what is under way reads every job that ever ended."""


class StoreError(Exception):
    """The file of jobs, or a row of it, cannot be used. The text is a sentence for the user."""


class StoreUnusableError(StoreError):
    """The whole file cannot be used now. `passing`: it may become usable soon without anybody's action."""

    def __init__(self, why: UnusableFileError) -> None:
        super().__init__(f"the record of jobs cannot be used: {why}")
        self.passing = why.passing


@dataclass(frozen=True, slots=True)
class StoredJob:
    """A job as in its row. Times are seconds since 1970. `outcome` is None until it has ended. `slot` is where it
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

    @property
    def waited_s(self) -> float | None:
        """Return the seconds until it began, or until it ended without beginning; None while it waits. For a resumed
        job they count from its first submission.
        """
        until = self.started if self.started is not None else self.ended
        return None if until is None else max(0.0, until - self.submitted)


@dataclass(frozen=True, slots=True)
class CodeLine:
    """Consecutive instructions of one line, from 1, of `file`; `line` is None if none is known. `inner` names the
    lines that were inlined there (`half.h:12`). `source` is the line's text, "" if its file cannot be read.
    """

    file: str
    line: int | None
    inner: str
    source: str
    code: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Code:
    """What the compiler made of one instance of a kernel. `length` counts the instructions of SASS, or the lines of
    another level. Those have no source lines.
    """

    kernel: str
    level: Level
    architecture: str
    length: int
    lines: tuple[CodeLine, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a job. `problems` have their places in the author's file. `text` has the tables of a hover, each
    number with its source. `report` is a page for a browser and `profile` the file for Nsight Compute; "" if there is
    none. `versus` is of a comparison: the sentence with its interval. `code` is of a request with `levels`.
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


@dataclass(frozen=True, slots=True)
class _Own:
    """A job of this process. `request` is there once it has begun, the packed `result` once it has ended. `kept` is
    true while the end waits to be written.
    """

    job: StoredJob
    request: Request | None = None
    result: bytes | None = None
    kept: bool = False


class JobStore:
    """The store of jobs. Calls block. Several threads and several processes may use it at the same time."""

    def __init__(self, path: Path | None = None) -> None:
        """Open the file. Raises StoreError, but not if the file may be usable soon."""
        try:
            self.path = path or jobs_file()
        except RuntimeError as error:
            raise StoreError(f"the record of jobs cannot be used: {error}") from None
        self.owners = self.path.parent / "job-owners"
        self._file = SqliteFile(
            lambda: self.path, "the record of jobs", FORMAT, _make, busy_s=_BUSY_S, tell=log.error
        )
        self._lock = threading.Lock()
        self._own: dict[str, _Own] = {}
        try:
            self._do(lambda _: None, writes=False)
        except StoreUnusableError as error:
            if not error.passing:
                raise

    # -- a file that cannot be used -------------------------------------------------------------

    def trouble(self) -> StoreUnusableError | None:
        """Return why nothing can be recorded now. Return None while recording works."""
        why = self._file.trouble()
        return StoreUnusableError(why) if why else None

    def write_again(self) -> bool:
        """Write what is waiting to be written. Return False if it has to wait longer."""
        with self._lock:
            kept = [job for job, own in self._own.items() if own.kept]
        if not self._file.write_again():
            return False
        for job in kept:
            self._forget(job)
        return True

    def unwritten(self) -> int:
        """Return how many jobs have ended whose ends wait to be written."""
        with self._lock:
            return sum(own.kept for own in self._own.values())

    def _do(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = True) -> T:
        """Do `work` with the file. Raises StoreUnusableError, and what `work` raises."""
        try:
            return self._file.do(work, transaction=writes, writes=writes)
        except UnusableFileError as why:
            raise StoreUnusableError(why) from None

    def _forget(self, job: str) -> None:
        with self._lock:
            self._own.pop(job, None)

    # -- writing ------------------------------------------------------------------------------

    def add(self, request: Request, owner: str, door: str) -> tuple[StoredJob, bool]:
        """Return the job of a request, and whether it is new: a key that was used before names the job that it made.
        Raises RequestRefusedError if that was for another request, and StoreError.
        """
        (added,) = self.add_all([request], owner, door)
        if isinstance(added, RequestRefusedError):
            raise added
        return added

    def add_all(
        self, wanted: Sequence[Request], owner: str, door: str
    ) -> list[tuple[StoredJob, bool] | RequestRefusedError]:
        """Do the same for several requests in one transaction. Raises StoreError if none of them could be written."""
        packed = [(request, _packed(dataclasses.asdict(request))) for request in wanted]

        def work(file: sqlite3.Connection) -> list[tuple[StoredJob, bool] | RequestRefusedError]:
            return [self._add(file, request, content, owner, door) for request, content in packed]

        if trouble := self.trouble():
            raise trouble  # at once
        added = self._do(work) if packed else []
        with self._lock:
            self._own |= {
                each[0].id: _Own(each[0])
                for each in added
                if not isinstance(each, RequestRefusedError) and each[1]
            }
        return added

    def _add(
        self, file: sqlite3.Connection, request: Request, packed: bytes, owner: str, door: str
    ) -> tuple[StoredJob, bool] | RequestRefusedError:
        if request.key:
            row = file.execute(
                "select id from jobs where door = ? and key = ? and key <> ''",
                (door, request.key),
            ).fetchone()
            if row:
                # both as they are read: a record of an earlier version lacks the newest fields
                if self._request(file, row[0]) != codec.build(Request, _unpacked(packed), lenient=True):
                    return RequestRefusedError(
                        f"the key {request.key} was used for another request, job {row[0]}"
                    )
                if not self._interrupted(file, row[0]):
                    return self._one(file, row[0]), False
                # it measured nothing, so a request with the same key runs it again
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

    def begin(self, job: str, slot: str) -> Request:
        """Record that a job begins in a place, and return its request. Raises StoreError if that cannot be recorded:
        a job that began unseen would begin again after a crash.
        """

        def work(file: sqlite3.Connection) -> Request:
            request = self._request(file, job)
            file.execute(
                "update jobs set state = 'starting', why = '', slot = ?, started = coalesce(started, ?) "
                "where id = ? and outcome is null",
                (slot, now, job),
            )
            return request

        now = time.time()
        request = self._do(work)
        with self._lock:
            if own := self._own.get(job):
                begun = replace(own.job, state="starting", why="", slot=slot, started=own.job.started or now)
                self._own[job] = replace(own, job=begun, request=request)
        return request

    def phase(self, job: str, state: c.State, why: str = "") -> None:
        """Record that a job is about to enter a state. If that is not possible now, it is recorded later."""
        with self._lock:
            if (own := self._own.get(job)) and own.result is None:
                self._own[job] = replace(own, job=replace(own.job, state=state, why=why))
        with suppress(UnusableFileError):
            self._file.keep(
                lambda file: file.execute(
                    "update jobs set state = ?, why = ? where id = ? and outcome is null", (state, why, job)
                )
            )

    def end(self, job: str, result: Result, summary: str) -> StoredJob:
        """Record how a job ended, once: of two ends the first counts. The end of this process's own job waits in
        memory while it cannot be written. Raises StoreError for another's.
        """
        packed = _packed(dataclasses.asdict(result))
        now, outcome = time.time(), result.finished.outcome
        with self._lock:
            own = self._own.get(job)
            if own and own.result is not None:
                return own.job
            if own:
                done = replace(own.job, state="done", why="", outcome=outcome, summary=summary, ended=now)
                own = self._own[job] = replace(own, job=done, result=packed)

        def work(file: sqlite3.Connection) -> StoredJob:
            changed = file.execute(
                "update jobs set state = 'done', why = '', outcome = ?, summary = ?, ended = ?, result = ? "
                "where id = ? and outcome is null",
                (outcome, summary, now, packed, job),
            ).rowcount
            if not changed and own:
                self._insert(file, own)
            return self._one(file, job)

        if own is None:
            return self._do(work)
        try:
            written = self._file.keep(work)
        except UnusableFileError:
            with self._lock:
                self._own[job] = replace(own, kept=True)
            return own.job
        self._forget(job)
        return written

    def _insert(self, file: sqlite3.Connection, own: _Own) -> None:
        """Insert a job that is over into a new file. The file that had its row is gone: removed, or damaged and set
        aside.
        """
        job = own.job
        file.execute(
            "insert or ignore into jobs (id, door, state, outcome, summary, action, file, kernel, gpu, slot, priority, key, "
            "submitted, started, ended, owner, request, result) values (?, ?, 'done', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                job.id, job.door, job.outcome, job.summary, job.action, job.file, job.kernel, job.gpu, job.slot, job.priority,
                job.key, job.submitted, job.started, job.ended, job.owner,
                _packed(dataclasses.asdict(own.request)) if own.request else b"", own.result,
            ),
        )  # fmt: skip

    def cancel(self, job: str) -> None:
        """Ask the process that has a job to end it. A job without a process ends at once."""

        def work(file: sqlite3.Connection) -> Any:
            file.execute("update jobs set cancelling = 1 where id = ? and outcome is null", (job,))
            return file.execute("select owner from jobs where id = ? and outcome is null", (job,)).fetchone()

        row = self._do(work)
        if row and not owners.alive(self.owners, row[0]):
            self.end(job, Result(c.failed(job, c.Failure("cancelled", "cancelled"))), "cancelled")

    def prune(self, older_s: float, door: str | None = None) -> int:
        """Remove the jobs that ended longer ago, only of one door if it is given. Return how many."""
        self.sweep()
        gone = self._do(
            lambda file: (
                file.execute(
                    "delete from jobs where outcome is not null and ended <= ? and door = coalesce(?, door)",
                    (time.time() - older_s, door),
                ).rowcount
            )
        )
        with suppress(StoreError):  # a full disk has no room for it; the jobs are gone all the same
            self._do(lambda file: file.execute("vacuum"), writes=False)
        return int(gone)

    # -- what is left of processes that ended --------------------------------------------------

    def sweep(self) -> None:
        """End the jobs whose process has ended. Jobs that waited for a server wait for the next one."""
        rows = self._all("select distinct owner from jobs where outcome is null")
        gone = [owner for (owner,) in rows if isinstance(owner, str) and not owners.alive(self.owners, owner)]
        for owner in gone:
            rows = self._all(
                "select id, state from jobs where outcome is null and owner = ? and not (state = 'queued' and door = ?)",
                owner,
                RESUMED,
            )
            for job, state in rows:
                why = interrupted(str(state))
                self.end(job, Result(c.failed(job, why)), f"{why.category}: {why.message}")

    def adopt(self, owner: str, door: str) -> list[StoredJob]:
        """Give the owner the waiting jobs of processes of this door that are gone."""
        self.sweep()

        def work(file: sqlite3.Connection) -> list[StoredJob]:
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

        adopted = self._do(work)
        with self._lock:
            self._own |= {job.id: _Own(job) for job in adopted if job.id not in self._own}
        return adopted

    def _interrupted(self, file: sqlite3.Connection, job: str) -> bool:
        row = file.execute("select outcome, owner, state from jobs where id = ?", (job,)).fetchone()
        if row[0] is None:
            return row[2] != "queued" and not owners.alive(self.owners, row[1])
        return row[0] == "infrastructure"

    # -- reading ------------------------------------------------------------------------------

    def owns(self, job: str) -> bool:
        """Say whether this process has the job, and its end is not written."""
        return job in self._own

    def job(self, job: str) -> StoredJob | None:
        """Return a job by its id, or by the unique beginning of its id."""
        if not 4 <= len(job) <= 64 or not job.isascii() or not job.isalnum():
            return None
        job = job.lower()
        if own := self._own.get(job):
            return own.job
        # not `like`: it would read every row
        rows = self._do(
            lambda file: self._rows(file, "where id >= ? and id < ? limit 2", (job, job + "~")), writes=False
        )
        return self._now(rows)[0] if len(rows) == 1 else None

    def keyed(self, door: str, key: str) -> StoredJob | None:
        """Return the job of a door that was handed in with this key."""
        rows = self._do(
            lambda file: self._rows(file, "where door = ? and key = ? and key <> ''", (door, key)),
            writes=False,
        )
        return self._now(rows)[0] if rows else None

    def jobs(
        self,
        *,
        door: str | None = None,
        most: int = 100,
        under_way: bool = False,
        ended_well: str | None = None,
    ) -> list[StoredJob]:
        """Return jobs, the newest first. `ended_well` names a kernel: only its jobs that ended well."""
        with suppress(StoreError):  # a file that cannot be written can still be read
            self.sweep()
        return self._now(
            self._do(
                lambda file: self._rows(
                    file,
                    "where door = coalesce(?, door) and (outcome is null or not ?) and (? is null or kernel = ? and outcome = 'ok') "
                    "order by number desc limit ?",
                    (door, under_way, ended_well, ended_well, most),
                ),
                writes=False,
            )
        )

    def cancelling(self, owner: str) -> list[str]:
        rows = self._all("select id from jobs where outcome is null and cancelling and owner = ?", owner)
        return [job for (job,) in rows]

    def counts(self, door: str | None = None) -> dict[str, int]:
        """Count the jobs by outcome, and by state if they are under way."""
        rows = self._all(
            "select coalesce(outcome, state), count(*) from jobs where door = coalesce(?, door) group by 1",
            door,
        )
        return dict(sorted(rows))

    def request(self, job: str) -> Request:
        """Return the request of a job. Raises StoreError if it cannot be read."""
        if (own := self._own.get(job)) and own.request:
            return own.request
        return self._do(lambda file: self._request(file, job), writes=False)

    def result(self, job: str) -> dict[str, Any] | None:
        """Return a result as JSON. Return None if there is none yet, or none that can be read."""
        if (own := self._own.get(job)) and own.result:
            packed: Any = own.result
        else:
            rows = self._all("select result from jobs where id = ?", job)
            packed = rows[0][0] if rows else None
        try:
            known: Any = _unpacked(packed) if packed else None
        except ValueError:
            return None
        return cast("dict[str, Any]", known) if isinstance(known, dict) else None

    # -- the file -----------------------------------------------------------------------------

    def _one(self, file: sqlite3.Connection, job: str) -> StoredJob:
        if rows := self._rows(file, "where id = ?", (job,)):
            return rows[0]
        raise StoreError(f"the record of job {job!r:.40} cannot be read ({self.path})")

    def _rows(self, file: sqlite3.Connection, where: str, values: Sequence[Any]) -> list[StoredJob]:
        rows = file.execute(f"select {_COLUMNS} from jobs {where}", values).fetchall()  # noqa: S608 - `where` is ours
        return [StoredJob(*row[:-1], cancelling=bool(row[-1])) for row in rows if _is_ours(row)]

    def _all(self, query: str, *values: Any) -> list[Any]:
        return self._do(lambda file: file.execute(query, values).fetchall(), writes=False)

    def _now(self, rows: list[StoredJob]) -> list[StoredJob]:
        """Return the jobs of rows, completed with what this process knows of them and has not written yet."""
        return [own.job if (own := self._own.get(job.id)) else job for job in rows]

    def _request(self, file: sqlite3.Connection, job: str) -> Request:
        row = file.execute("select request from jobs where id = ?", (job,)).fetchone()
        if row is None:
            raise StoreError(f"the record of job {job!r:.40} is gone ({self.path}): submit it again")
        try:
            return codec.build(Request, _unpacked(row[0]), lenient=True)
        except (TypeError, ValueError) as error:
            raise StoreError(f"the request of job {job} cannot be read: {error}") from None


def _make(file: sqlite3.Connection, version: int) -> None:
    del version  # there was none before
    for statement in filter(str.strip, _TABLES.split(";")):
        file.execute(statement)


def _is_ours(row: Sequence[Any]) -> bool:
    """Say whether a row has the types that we write: another program may have changed the file."""
    return all(isinstance(value, types) for value, types in zip(row, _TYPES, strict=True))


def interrupted(state: str) -> c.Failure:
    """Return why a job ended whose process ended first."""
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
