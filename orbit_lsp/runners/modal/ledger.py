"""Records which GPUs were rented when, over restarts and for all editors, in one SQLite file in the user's state
folder.

A row is the time of one container as one holder (an orbit-lsp process) knows it: from its beginning to its planned
end. It is written when a run begins and ends. So if an editor is killed, the row still has the idle time that Modal
bills. A row without an end is a container that is kept: it counts until somebody says that it has ended. A row that
waits is a reservation: a run that has no container yet, with the most it may cost.

Each call is one transaction that no other process can interrupt. A reservation counts as long as its holder lives,
whatever a clock says. The holder keeps a lock on a file of its own, which the system releases when the holder dies.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from orbit_lsp.state.sqlite_file import SqliteFile, UnusableFileError, is_held, lock
from orbit_lsp.state.user_folders import state_folder
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.plain_text import visible

if TYPE_CHECKING:
    import sqlite3

log = logging.getLogger("orbit.modal")

T = TypeVar("T")

_FORMAT = 2
_BUSY_S = 30.0
_HOLDER = re.compile(r"[0-9a-f]{32}")
_ROWS = 20_000
_DAY_S = 86_400
_TABLE = """
create table spans (
    id text not null, holder text not null, gpu text not null, began real not null, ends real, usd_per_s real,
    rates text not null, waits integer not null, primary key (id, holder)
)
"""
_CONTAINERS = """
select id, max(gpu), min(began), case when count(ends) = count(*) then max(ends) end, max(usd_per_s), max(rates), max(waits)
from spans
where typeof(id) || typeof(gpu) || typeof(rates) = 'texttexttext' and typeof(began) = 'real' and abs(began) < 1e11
    and typeof(ends) in ('real', 'null') and abs(coalesce(ends, 0)) < 1e11
    and typeof(usd_per_s) in ('real', 'null') and coalesce(usd_per_s, 0) between 0 and 1e3
group by id, case when waits then holder end order by min(rowid)
"""
"""Of the rows that can be one: somebody may have written into the file. A container that two editors use is one: from its first second that any of them knows to its last."""


@dataclass(frozen=True, slots=True)
class RentedTime:
    """One container's time, in seconds on the wall clock. If `ends` is None, it is kept until it is released.

    `id` is Modal's name of the container; two editors mean the same container by it. If it `waits`, it is no
    container but the most that a waiting run may cost.
    """

    id: str
    gpu: str
    began: float
    ends: float | None
    usd_per_s: float | None = None
    rates: str = ""
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Month:
    """The costs of one calendar month (UTC, as Modal bills). `spent_usd` is the cost up to now; `due_usd` is what
    present rentals will cost besides if nothing more is run. `unpriced_s` are seconds whose price is not known; they
    are in neither. `rates` says whose prices these are; `kept` are the GPUs that are kept. `damaged` is a part of
    this month's record that was set aside because it cannot be read; "" if there is none.
    """

    name: str
    gpu_s: float
    spent_usd: float
    due_usd: float
    unpriced_s: float
    rates: tuple[str, ...]
    kept: tuple[str, ...]
    damaged: str = ""


def ledger_file() -> Path:
    return state_folder() / "rented.sqlite"


def _since_boot() -> float:
    """Return the seconds of a clock that cannot be set, and that also counts while the machine sleeps."""
    if hasattr(time, "clock_gettime"):
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    return time.monotonic()


_STARTED = time.time() - _since_boot()


def clock() -> float:
    """Return the wall clock's time, as this process found the clock. Setting it later changes no cost."""
    return _STARTED + _since_boot()


def rented_gpus(now: float) -> list[RentedTime]:
    """Return the containers with a GPU that programs of this user have now."""
    return [span for span in Ledger(ledger_file).rented(now) if span.gpu and "@" not in span.id]


class Ledger:
    """The record of rentals. Calls block; each opens the file anew, so threads and other editors may use it at the
    same time.
    """

    def __init__(self, where: Callable[[], Path]) -> None:
        """Make a ledger. `where` returns the file, and is called each time; a RuntimeError of it becomes a complaint
        too.
        """
        self._file = SqliteFile(
            where, "the record of what GPUs cost", _FORMAT, _make, busy_s=_BUSY_S, tell=self._set_aside
        )
        self._where = where
        self._complaints: list[str] = []
        self._holder = secrets.token_hex(16)
        self._alive: sqlite3.Connection | None = None

    def reserve(
        self, spans: Sequence[RentedTime], limit: float | None, now: float
    ) -> tuple[Month, bool] | None:
        """Add all these waiting runs, if they and the month stay within `limit` dollars (None: in any case).

        Return the month without them, and whether they were added; None if nothing can be kept. A run without a price
        fits no limit. Nothing fits a limit while a part of the month's record is damaged.
        """

        def work(file: sqlite3.Connection) -> tuple[Month, bool]:
            self._declare_alive()
            self._forget_dead(file)
            month = self._month(file, now)
            prices = [
                span.usd_per_s * ((span.ends or now) - span.began)
                for span in spans
                if span.usd_per_s is not None
            ]
            known = len(prices) == len(spans) and not month.damaged
            fits = known and month.spent_usd + month.due_usd + sum(prices) <= (limit or 0)
            if limit is None or fits:
                for span in spans:
                    self._write(file, replace(span, waits=True))
            return month, limit is None or fits

        return self._do(work, None)

    def put(self, span: RentedTime, instead: str | None = None) -> None:
        """Add or renew a container's row, in place of the reservation `instead`. A renewed row never gets a later
        beginning.
        """

        def work(file: sqlite3.Connection) -> None:
            file.execute("delete from spans where id = ? and holder = ?", (instead, self._holder))
            self._write(file, span)

        self._keep(work)

    def release(self, identity: str) -> None:
        """A run waits no more, and has no container."""

        def work(file: sqlite3.Connection) -> None:
            file.execute("delete from spans where id = ? and holder = ? and waits", (identity, self._holder))

        self._keep(work)

    def end(self, identity: str | None, at: float) -> None:
        """Record that a container has ended. None: every one has, because the app was stopped."""

        def work(file: sqlite3.Connection) -> None:
            file.execute(
                "update spans set ends = ? where id = coalesce(?, id) and not waits and coalesce(ends, ?) >= ?",
                (at, identity, at, at),
            )

        self._keep(work)

    def month(self, now: float) -> Month | None:
        """Return the calendar month that contains `now`. Return None if it cannot be read."""

        def work(file: sqlite3.Connection) -> Month:
            self._forget_dead(file)
            return self._month(file, now)

        return self._do(work, None)

    def rented(self, now: float) -> list[RentedTime]:
        """Return the containers that have not ended, as far as is known."""
        rows = self._do(_containers, [])
        return [row for row in rows if not row.waits and (row.ends is None or row.ends > now)]

    def close(self) -> None:
        """Close the ledger: nothing of this process waits any more."""
        with suppress(UnusableFileError):
            self._file.write_again(at_once=True)
        if self._alive is not None:
            self._do(
                lambda file: file.execute("delete from spans where holder = ? and waits", (self._holder,)),
                None,
            )
            self._alive.close()
            self._alive = None
            with suppress(OSError, RuntimeError):
                self._lock_file(self._holder).unlink(missing_ok=True)

    def complaints(self) -> list[str]:
        """Return what went wrong since the last call, a sentence each."""
        complained, self._complaints = self._complaints, []
        return complained

    # -- holders: called within a transaction, so one at a time ---------------------------------

    def _lock_file(self, holder: str) -> Path:
        return self._where().with_suffix(f".{holder}.lock")

    def _declare_alive(self) -> None:
        """Lock a file until `close`, or until this process ends."""
        if self._alive is None:
            for left in self._where().parent.glob(self._lock_file("*").name):
                self._dead(left.suffixes[-2][1:])
            self._alive = lock(self._lock_file(self._holder))

    def _forget_dead(self, file: sqlite3.Connection) -> None:
        for (holder,) in file.execute("select distinct holder from spans where waits").fetchall():
            if holder != self._holder and self._dead(holder):
                file.execute("delete from spans where holder = ? and waits", (holder,))

    def _dead(self, holder: object) -> bool:
        if not isinstance(holder, str) or not _HOLDER.fullmatch(holder):
            return True  # no process of ours: somebody wrote into the file
        path = self._lock_file(holder)
        if is_held(path):
            return False
        path.unlink(missing_ok=True)
        return True

    # -- the file -----------------------------------------------------------------------------

    def _month(self, file: sqlite3.Connection, now: float) -> Month:
        names = self._where().with_suffix(f".damaged-{datetime.fromtimestamp(now, UTC):%Y%m}*.sqlite").name
        damaged = sorted(self._where().parent.glob(names))
        return replace(_month(_containers(file), now), damaged=str(damaged[-1]) if damaged else "")

    def _write(self, file: sqlite3.Connection, span: RentedTime) -> None:
        file.execute(
            "insert into spans values (?, ?, ?, ?, ?, ?, ?, ?) on conflict (id, holder) do update set "
            "began = min(began, excluded.began), ends = excluded.ends, "
            "usd_per_s = coalesce(excluded.usd_per_s, usd_per_s), rates = excluded.rates",
            (span.id, self._holder, span.gpu, span.began, span.ends, span.usd_per_s, span.rates, span.waits),
        )

    def _do(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Do `work` in one transaction. A failure becomes a complaint: renting goes on even if its costs cannot be
        kept.
        """
        try:
            return self._file.do(work)
        except (OSError, UnusableFileError) as why:  # the former of a holder's lock
            self._cannot(why)
            return otherwise

    def _keep(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Do `work`, but write later what cannot be written now: money was spent."""

        def within_bounds(file: sqlite3.Connection) -> None:
            work(file)
            file.execute(
                "delete from spans where rowid <= (select max(rowid) from spans) - ? and ends is not null and not waits",
                (_ROWS,),
            )

        try:
            self._file.keep(within_bounds)
        except UnusableFileError as why:
            self._cannot(why)

    def _cannot(self, why: Exception) -> None:
        self._complain(f"the costs of rented GPUs cannot be recorded: {why}")

    def _set_aside(self, text: str) -> None:
        self._complain(
            f"{text}. Each run of this month asks before it may exceed a budget, until that file is deleted"
        )

    def _complain(self, text: str) -> None:
        text = visible(text)
        log.warning("%s", text)
        self._complaints.append(text)


def _make(file: sqlite3.Connection, version: int) -> None:
    file.execute(_TABLE)
    if version:
        file.execute(
            "insert into spans select id, '', gpu, began, ends, usd_per_s, coalesce(rates, ''), 0 "
            "from rented where expires is null order by rowid"
        )
        file.execute("drop table rented")


def _containers(file: sqlite3.Connection) -> list[RentedTime]:
    return [RentedTime(*row[:6], waits=bool(row[6])) for row in file.execute(_CONTAINERS)]


def _true_times(times: Sequence[float], now: float) -> list[float]:
    """Return when rows really began, although the clocks that wrote them may have been wrong. `times` are in the
    order of writing.

    The longest run of times that agrees with that order and is not in the future is believed, to a day. Any other
    time came from a clock that was set wrong: it becomes the next believed one, or `now` after the last.
    """
    days = [int(time // _DAY_S) for time in times]
    ends: list[int] = []  # the last day of the best run of each length,
    at: list[int] = []  # and its index
    before: list[int] = []
    for index, day in enumerate(days):
        length = bisect_right(ends, day) if day <= now // _DAY_S + 1 else 0
        before.append(at[length - 1] if length else -1)
        if day <= now // _DAY_S + 1:
            ends[length : length + 1], at[length : length + 1] = [day], [index]
    believed: set[int] = set()
    index = at[-1] if at else -1
    while index >= 0:
        believed.add(index)
        index = before[index]
    durations = list(times)
    later = now
    for index in reversed(range(len(days))):
        if index in believed:
            later = times[index]
        elif abs(days[index] - later // _DAY_S) > 1:
            durations[index] = later
    return durations


def _month(rows: Sequence[RentedTime], now: float) -> Month:
    day = datetime.fromtimestamp(now, UTC)
    begins = datetime(day.year, day.month, 1, tzinfo=UTC).timestamp()
    after = datetime(day.year + day.month // 12, day.month % 12 + 1, 1, tzinfo=UTC).timestamp()
    gpu_s = spent = due = unpriced = 0.0
    rates: set[str] = set()
    kept: set[str] = set()
    waiting = [replace(row, began=now, ends=now + (row.ends or 0) - row.began) for row in rows if row.waits]
    containers = [row for row in rows if not row.waits]
    times = _true_times([row.began for row in containers], now)
    for row, began in (*zip(containers, times, strict=True), *((row, now) for row in waiting)):
        moved = began - row.began
        ends = now if row.ends is None else min(row.ends + moved, after)
        first = max(began, begins)
        whole = max(0.0, ends - first)
        past = 0.0 if row.waits else max(0.0, min(ends, now) - first)
        if row.ends is None:
            kept.add(row.gpu)
        if not whole:
            continue
        gpu_s += past if row.gpu else 0.0
        if row.usd_per_s is None:
            unpriced += past
            continue
        spent += past * row.usd_per_s
        due += (whole - past) * row.usd_per_s
        rates.add(row.rates)
    return Month(f"{day:%B %Y}", gpu_s, spent, due, unpriced, tuple(sorted(rates)), tuple(sorted(kept)))
