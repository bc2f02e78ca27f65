"""What was rented and when, over restarts and over editors: one SQLite file in the user's state folder.

A row is the time of one container: from when it began to when it is due to end. It is written when a run
begins and ends, so an editor that is killed leaves the idle time in it that Modal bills all the same. A
row without an end is a container that is kept: it counts until somebody says that it has ended.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import sqlite3

log = logging.getLogger("orbit.modal")

T = TypeVar("T")

_FORMAT = 1
_BUSY_S = 2.0
_KEPT_S = 400 * 86_400
_ROWS = 20_000
_TABLE = """
create table if not exists rented (
    id text primary key, gpu text not null, began real not null, ends real, usd_per_s real, rates text,
    expires real
)
"""


@dataclass(frozen=True, slots=True)
class Span:
    """One container's time, in seconds on the wall clock. `ends` None: kept until it is released.

    `id` is Modal's name of the container, by which two editors mean the same one. With `expires` it is
    not a container but what a run that waits for one may cost: it counts as rented until then.
    """

    id: str
    gpu: str
    began: float
    ends: float | None
    usd_per_s: float | None = None
    rates: str = ""
    expires: float | None = None


@dataclass(frozen=True, slots=True)
class Month:
    """What one calendar month (UTC, as Modal bills) has come to. `spent_usd` is up to now, `due_usd` what
    is rented now will cost besides if nothing more is run. `unpriced_s` are seconds whose price is not
    known: they are in neither. `rates` are whose prices these are; `kept` the GPUs that are kept.
    """

    name: str
    gpu_s: float
    spent_usd: float
    due_usd: float
    unpriced_s: float
    rates: tuple[str, ...]
    kept: tuple[str, ...]


def state_folder() -> Path:
    """The user's state folder of this platform (XDG on Linux)."""
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library/Application Support")
    else:
        base = os.environ.get("XDG_STATE_HOME", "")
        if not os.path.isabs(base):  # noqa: PTH117 - the XDG specification: such a value is ignored
            base = str(Path.home() / ".local/state")
    return Path(base) / "orbit-lsp"


def ledger_file() -> Path:
    return state_folder() / "rented.sqlite"


class Ledger:
    """Blocking; each call opens the file anew, so threads and other editors may use it at the same time."""

    def __init__(self, where: Callable[[], Path]) -> None:
        """`where` names the file, and is asked at each call; RuntimeError of it is a complaint too."""
        self._where = where
        self._complaints: list[str] = []

    def put(self, span: Span, instead: str | None = None) -> None:
        """Add or renew a row, in place of the row `instead`. A container's row never begins later than it
        did: another editor may have seen it before.
        """
        row = (span.id, span.gpu, span.began, span.ends, span.usd_per_s, span.rates, span.expires)

        def work(file: sqlite3.Connection) -> None:
            file.execute("delete from rented where id = ?", (instead,))
            file.execute(
                "insert into rented values (?, ?, ?, ?, ?, ?, ?) on conflict (id) do update set "
                "began = min(began, excluded.began), ends = excluded.ends, "
                "usd_per_s = coalesce(excluded.usd_per_s, usd_per_s), rates = excluded.rates",
                row,
            )

        self._do(work, None)

    def end(self, identity: str, at: float) -> None:
        """A container has ended, or a run that waited has."""

        def work(file: sqlite3.Connection) -> None:
            file.execute("delete from rented where id = ? and expires is not null", (identity,))
            file.execute(
                "update rented set ends = ? where id = ? and coalesce(ends, ?) >= ?", (at, identity, at, at)
            )

        self._do(work, None)

    def end_all(self, at: float) -> None:
        """Every container of ours has ended: the app was stopped."""

        def work(file: sqlite3.Connection) -> None:
            file.execute(
                "update rented set ends = ? where expires is null and coalesce(ends, ?) >= ?", (at, at, at)
            )

        self._do(work, None)

    def month(self, now: float) -> Month:
        """The calendar month that holds `now`."""

        def work(file: sqlite3.Connection) -> list[Span]:
            rows = file.execute(
                "select id, gpu, began, ends, usd_per_s, coalesce(rates, ''), expires from rented "
                "where coalesce(expires, ?) >= ?",
                (now, now),
            )
            return [Span(*row) for row in rows]

        nothing: list[Span] = []
        return _month(self._do(work, nothing), now)

    def complaints(self) -> list[str]:
        """What went wrong since it was last asked, a sentence each."""
        said, self._complaints = self._complaints, []
        return said

    def _do(self, work: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """`work` in one transaction. What fails becomes a complaint: renting goes on where its costs cannot
        be kept. A damaged file is set aside, once, and a new one begun.
        """
        import sqlite3

        for damaged in (False, True):
            try:
                return self._once(work)
            except (OSError, RuntimeError, sqlite3.OperationalError) as error:  # locked, full, no home folder
                self._complain(f"what rented GPUs cost cannot be kept: {error}")
                break
            except sqlite3.DatabaseError as error:
                if damaged or not self._set_aside(error):
                    break
        return otherwise

    def _once(self, work: Callable[[sqlite3.Connection], T]) -> T:
        import sqlite3

        path = self._where()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=_BUSY_S)) as file, file:
            if file.execute("pragma user_version").fetchone()[0] == 0:
                file.execute(_TABLE)
                file.execute(f"pragma user_version = {_FORMAT}")
            done = work(file)
            file.execute(
                "delete from rented where began < (select max(began) from rented) - ? "
                "or rowid <= (select max(rowid) from rented) - ?",
                (_KEPT_S, _ROWS),
            )
        return done

    def _set_aside(self, error: sqlite3.DatabaseError) -> bool:
        path = self._where()
        aside = path.with_suffix(f".damaged-{datetime.now(UTC):%Y%m%dT%H%M%S}")
        try:
            path.replace(aside)
        except FileNotFoundError:  # another editor was first
            return True
        except OSError as refused:
            self._complain(f"the record of what GPUs cost, {path}, is damaged and in the way: {refused}")
            return False
        self._complain(
            f"the record of what GPUs cost was damaged ({error}); it is now {aside}, and a new one begins"
        )
        return True

    def _complain(self, text: str) -> None:
        log.warning("%s", text)
        self._complaints.append(text)


def _month(rows: list[Span], now: float) -> Month:
    day = datetime.fromtimestamp(now, UTC)
    begins = datetime(day.year, day.month, 1, tzinfo=UTC).timestamp()
    after = datetime(day.year + day.month // 12, day.month % 12 + 1, 1, tzinfo=UTC).timestamp()
    gpu_s = spent = due = unpriced = 0.0
    rates: set[str] = set()
    kept: set[str] = set()
    for row in rows:
        ends = now if row.ends is None else min(row.ends, after)
        first = max(row.began, begins)
        whole = max(0.0, ends - first)
        past = 0.0 if row.expires is not None else max(0.0, min(ends, now) - first)
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
