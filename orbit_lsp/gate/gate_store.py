"""Keeps earlier gates: their verdicts by the code that was compared, and how much the pairs of each kernel differ, in
one SQLite file.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_lsp.gate.results import GateResult
from orbit_lsp.state.sqlite_file import SqliteFile, UnusableFileError
from orbit_remote.common import codec, limits, measure
from orbit_remote.common.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import sqlite3

_FORMAT = 1
_MOST_GATES = 500
_MOST_NOISES = 10_000
_LOOKED_AT = 5
"""Of the gates of a kernel, the newest say how much its pairs differ: clocks and drivers change."""
_BUSY_S = 5.0
_TABLES = (
    "create table gates (key text primary key, at real not null, body blob not null)",
    """
create table noises (
    id integer primary key, folder text not null, file text not null, kernel text not null, gpu text not null,
    deviation real not null, pair_s real not null, first_s real not null
)
""",
    "create index of_kernel on noises (folder, file, kernel, gpu, id)",
)


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a kernel's pairs. `deviation` is that of a pair's log ratio, `pair_s` is how long a pair takes,
    and `first_s` is how long comes before the first; None if that is unknown.
    """

    deviation: float
    pair_s: float | None = None
    first_s: float | None = None


class GateStore:
    """The store. Calls block. A gate runs even if nothing can be kept; each failure is reported once."""

    def __init__(self, where: Callable[[], Path], tell: Callable[[str], None]) -> None:
        self._file = SqliteFile(where, "the record of gates", _FORMAT, _make, busy_s=_BUSY_S, tell=tell)
        self._tell = tell

    def earlier(self, key: str) -> GateResult | None:
        """The last gate of the same code and question."""

        def work(file: sqlite3.Connection) -> bytes | None:
            row = file.execute("select body from gates where key = ?", (key,)).fetchone()
            return row[0] if row else None

        try:
            body = self._file.do(work, transaction=False, writes=False)
        except UnusableFileError as why:
            self._tell(f"the record of gates cannot be read: {why}")
            return None
        return _result(body) if body else None

    def every(self) -> list[GateResult]:
        """Return all gates that are kept, of any repository, the oldest first."""

        def work(file: sqlite3.Connection) -> list[tuple[bytes]]:
            return file.execute("select body from gates order by at").fetchall()

        try:
            rows = self._file.do(work, transaction=False, writes=False) or []
        except UnusableFileError as why:
            self._tell(f"the record of gates cannot be read: {why}")
            return []
        return [result for (body,) in rows if (result := _result(body))]

    def keep(self, key: str, folder: str, result: GateResult) -> None:
        body = zlib.compress(json.dumps(asdict(result), ensure_ascii=False).encode("utf-8", "replace"))
        noises = [
            (folder, kernel.file, kernel.kernel, result.gpu, kernel.noise, kernel.pair_s, kernel.first_s)
            for kernel in result.kernels
            if kernel.noise is not None and kernel.pair_s is not None and kernel.first_s is not None
        ]

        def work(file: sqlite3.Connection) -> None:
            file.execute("insert or replace into gates values (?, ?, ?)", (key, time.time(), body))
            file.executemany(
                "insert into noises (folder, file, kernel, gpu, deviation, pair_s, first_s) values (?, ?, ?, ?, ?, ?, ?)",
                noises,
            )
            file.execute(
                "delete from gates where key in (select key from gates order by at desc limit -1 offset ?)",
                (_MOST_GATES,),
            )
            file.execute(
                "delete from noises where id in (select id from noises order by id desc limit -1 offset ?)",
                (_MOST_NOISES,),
            )

        try:
            self._file.keep(work)
        except UnusableFileError as why:
            self._tell(f"the record of gates cannot be written: {why}")

    def noise(self, folder: str, file: str, kernel: str, gpu: str) -> Noise | None:
        """Return the median noise of the newest gates of a kernel on a GPU. Return None without one."""

        def work(open_file: sqlite3.Connection) -> list[tuple[float, float, float]]:
            return open_file.execute(
                "select deviation, pair_s, first_s from noises where folder = ? and file = ? and kernel = ? and gpu = ? order by id desc limit ?",
                (folder, file, kernel, gpu, _LOOKED_AT),
            ).fetchall()

        try:
            rows = self._file.do(work, transaction=False, writes=False)
        except UnusableFileError:
            return None
        return Noise(*map(measure.median, zip(*rows, strict=True))) if rows else None


def _result(body: bytes) -> GateResult | None:
    """Read a gate; None if another version wrote it."""
    try:
        packed = codec.inflate(body, limits.HISTORY_RUN)
        return codec.build(GateResult, codec.read_json(packed), lenient=True) if packed else None
    except (ValueError, RecursionError):
        return None


def _make(file: sqlite3.Connection, version: int) -> None:
    del version  # there was none before
    for table in _TABLES:
        file.execute(table)
