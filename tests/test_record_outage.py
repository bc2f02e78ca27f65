"""While the record of jobs cannot be written or read: nothing is lost, doubled or stuck, and whoever asks is told.

The engine is made up, as in test_queue.py; the file, its locks and a disk without room are SQLite's own.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.agents import drop_folder
from orbit_lsp.agents.drop_folder import DropFolder
from orbit_lsp.queue import job_store, pool
from orbit_lsp.queue.job_queue import JobQueue
from orbit_lsp.queue.job_store import JobStore, Result, StoreError, StoreUnusableError
from orbit_lsp.queue.owners import Owner
from orbit_lsp.queue.request import Request
from orbit_lsp.queue.slot_engine import Stage
from orbit_lsp.state import sqlite_file
from tests.test_queue import WAIT_S, asks, over, queue

HELD = "another process holds it: wait for that process, or end it"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_store, "_BUSY_S", 0.3)


# -- outages ----------------------------------------------------------------------------------------


@contextmanager
def held(path: Path) -> Generator[None]:
    with closing(sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)) as file:
        file.execute("begin exclusive")
        yield


@contextmanager
def refusing(path: Path) -> Generator[None]:
    """The disk takes nothing more from this process."""
    del path
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def in_the_way(path: Path) -> Generator[None]:
    """A folder has its name."""
    aside = path.with_name("moved")
    path.rename(aside)
    while not path.is_dir():
        try:
            path.mkdir()
        except FileExistsError:  # the queue has just looked, and made a new file
            path.unlink(missing_ok=True)
    yield
    path.rmdir()
    aside.rename(path)


OUTAGES = {
    "held by another": held,
    "a disk that takes nothing": refusing,
    "a folder in its place": in_the_way,
}


def rows(path: Path) -> dict[str, str]:
    """As whoever reads the file finds them."""
    store = JobStore(path)
    store._file.busy_s = WAIT_S
    return {job.file.removesuffix(".cu"): job.outcome or job.state for job in store.jobs()}


@pytest.mark.parametrize("name", OUTAGES)
async def test_a_queue_outlives_an_outage(tmp_path: Path, name: str) -> None:
    path = tmp_path / "jobs.sqlite"
    async with queue(tmp_path) as (jobs, shown):
        running = await jobs.submit(asks("waits"))
        await shown.until_begun("waits")
        waiting = [await jobs.submit(asks(each)) for each in ("second", "third", "unwanted")]
        with OUTAGES[name](path):
            shown.gate("waits").set()
            assert await over(jobs, running) == ["waits: ok"]
            assert (jobs.store.result(running.id) or {})["finished"]["outcome"] == "ok"
            with pytest.raises(StoreUnusableError, match=r"^the record of jobs cannot be used: "):
                await jobs.submit(asks("late"))
            assert (await jobs.cancel(waiting[2].id) or running).outcome == "cancelled"
            assert [trouble.path for trouble in jobs.troubles()] == [path]
            async with asyncio.timeout(WAIT_S):
                while jobs.at("local:0"):
                    await jobs.change().wait()
            assert [jobs.position(job.id) for job in waiting] == [0, 1, None]
        assert await over(jobs, *waiting) == ["second: ok", "third: ok", "unwanted: cancelled"]
        assert await over(jobs, await jobs.submit(asks("late"))) == ["late: ok"]
        assert jobs.troubles() == []
        assert (jobs.store.unwritten(), jobs.store.owns(running.id)) == (0, False)
    assert rows(path) == {"waits": "ok", "second": "ok", "third": "ok", "unwanted": "cancelled", "late": "ok"}
    assert shown.begun == [f"local:0 {each}" for each in ("waits", "second", "third", "late")]


async def test_a_job_that_is_about_to_begin_can_be_cancelled(tmp_path: Path) -> None:
    async with queue(tmp_path) as (jobs, shown):
        begin, asked = jobs.store.begin, asyncio.Event()
        loop, let = asyncio.get_running_loop(), asyncio.Event()

        def late(job: str, slot: str) -> Request:
            loop.call_soon_threadsafe(asked.set)
            asyncio.run_coroutine_threadsafe(let.wait(), loop).result(WAIT_S)
            return begin(job, slot)

        jobs.store.begin = late
        job = await jobs.submit(asks("k"))
        await asked.wait()
        cancelling = asyncio.create_task(jobs.cancel(job.id))
        await asyncio.sleep(0)
        let.set()
        assert (await cancelling or job).outcome == "cancelled"
        assert shown.begun == []


async def test_what_waits_to_be_written_is_written_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    async with queue(tmp_path) as (jobs, shown):
        job = await jobs.submit(asks("waits"))
        await shown.until_begun("waits")
        outage, again, loop = held(path), jobs.store.write_again, asyncio.get_running_loop()
        outage.__enter__()
        shown.gate("waits").set()
        assert await over(jobs, job) == ["waits: ok"]

        def ends_the_outage() -> bool:
            if not (written := again()) and jobs._closing and not ended:
                ended.append(None)
                loop.call_soon_threadsafe(outage.__exit__, None, None, None)
            return written

        ended: list[None] = []
        jobs.store.write_again = ends_the_outage
    assert (rows(path), len(ended)) == ({"waits": "ok"}, 1)


async def test_a_server_that_starts_in_an_outage_takes_what_waits_after_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    store = JobStore(path)
    store.add(asks("left"), "1-0123456789ab", "api")
    with held(path):
        began = queue(tmp_path, door="api")
        jobs, shown = await began.__aenter__()
        assert jobs.troubles()
        assert jobs.waiting() == 0
    await shown.until_begun("left")
    [job] = store.jobs()
    assert await over(jobs, job) == ["left: ok"]
    await began.__aexit__(None, None, None)


async def test_a_record_that_is_damaged_while_jobs_run_is_set_aside(tmp_path: Path) -> None:
    """Those that run are in the new one; of those that waited nobody knows any more what they were."""
    path = tmp_path / "jobs.sqlite"
    async with queue(tmp_path) as (jobs, shown):
        running, waiting = await jobs.submit(asks("waits")), await jobs.submit(asks("second"))
        await shown.until_begun("waits")
        damaged = tmp_path / "damaged"
        damaged.write_bytes(b"no database at all, " * 400)
        damaged.replace(path)
        shown.gate("waits").set()
        assert await over(jobs, running, waiting) == ["waits: ok", "second: infrastructure"]
        assert await over(jobs, await jobs.submit(asks("next"))) == ["next: ok"]
        assert jobs.store.request(running.id).text == asks("waits").text
    assert rows(path) == {"waits": "ok", "second": "infrastructure", "next": "ok"}
    assert len(list(tmp_path.glob("jobs.damaged-*.sqlite"))) == 1  # noqa: ASYNC240


async def test_a_place_whose_engine_fails_takes_no_job_and_says_so(tmp_path: Path) -> None:
    class Broken:
        async def ready(self) -> str:
            raise RuntimeError("no driver")

        async def prepare(self, job: str, request: Request) -> None: ...
        async def perform(self, job: str, request: Request, stage: Stage) -> Result:
            raise AssertionError

        async def close(self) -> None: ...

    jobs = JobQueue(JobStore(tmp_path / "jobs.sqlite"), pool.parse("local:0"), lambda _: Broken(), "test")
    await jobs.start()
    job = await jobs.submit(asks("k"))
    assert await over(jobs, job) == ["k: infrastructure"]
    summary = "infrastructure: local:0 takes no more jobs: it cannot be used: RuntimeError: no driver"
    assert [job.summary for job in jobs.store.jobs()] == [summary]
    assert [place["aside"] for place in jobs.places()] == ["it cannot be used: RuntimeError: no driver"]
    await jobs.close()


async def test_who_is_cancelled_while_submitting_leaves_no_job_behind(tmp_path: Path) -> None:
    async with queue(tmp_path) as (jobs, shown):
        await jobs.submit(asks("waits"))
        await shown.until_begun("waits")
        submitting = asyncio.create_task(jobs.submit(asks("k")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        submitting.cancel()
        await asyncio.wait([submitting])
        async with asyncio.timeout(WAIT_S):
            while "cancelled" not in rows(tmp_path / "jobs.sqlite").values():
                await jobs.change().wait()
        assert rows(tmp_path / "jobs.sqlite") == {"waits": "running", "k": "cancelled"}


# -- the drop folder --------------------------------------------------------------------------------


async def test_a_file_stays_where_it_was_dropped_until_its_job_can_be_recorded(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "k.cu").write_text("__global__ void k() {}\n")
    told: asyncio.Queue[str] = asyncio.Queue()
    looked = asyncio.Event()

    async def looks() -> AsyncGenerator[None]:
        for number in itertools.count():
            if number == 4:
                looked.set()
            await asyncio.sleep(0)
            yield

    async with queue(tmp_path) as (jobs, _), asyncio.timeout(WAIT_S):
        watched = DropFolder(jobs, tmp_path / "in", tmp_path / "out", told.put_nowait)
        with held(tmp_path / "jobs.sqlite"):
            with pytest.raises(StoreError):
                await jobs.submit(asks("other"))
            following = asyncio.create_task(watched.follow(looks(), 3600))
            await looked.wait()
            assert (tmp_path / "in" / "k.cu").exists()
        lines = [await told.get() for _ in range(3)]
        following.cancel()
        await asyncio.wait([following])
        await watched.close()
    assert lines[0].startswith(
        "files are not taken now: the record of jobs cannot be used: database is locked"
    )
    assert [line.partition(": ")[0] for line in lines[1:]] == ["k.cu", "k.cu"]
    assert (tmp_path / "out" / "k_result.json").exists()


async def test_a_result_that_cannot_be_written_is_written_later(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "k.cu").write_text("__global__ void k() {}\n")
    told: asyncio.Queue[str] = asyncio.Queue()

    async def looks() -> AsyncGenerator[None]:
        while True:
            await asyncio.sleep(0)
            yield

    async with queue(tmp_path) as (jobs, _), asyncio.timeout(WAIT_S):
        watched = DropFolder(jobs, tmp_path / "in", tmp_path / "out", told.put_nowait)
        write, tries = watched._write, itertools.count()

        def refuses_twice(name: str, content: dict[str, Any]) -> None:
            if next(tries) < 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            write(name, content)

        watched._write = refuses_twice
        drop_folder._AGAIN_S, before = 0.01, drop_folder._AGAIN_S
        following = asyncio.create_task(watched.follow(looks(), 3600))
        for _ in range(2):
            await told.get()
        drop_folder._AGAIN_S = before
        following.cancel()
        await asyncio.wait([following])
        await watched.close()
    assert (watched.outcomes, next(tries)) == (["ok"], 3)
    assert (tmp_path / "out" / "k_result.json").exists()


# -- the file ---------------------------------------------------------------------------------------


def a_file(path: Path) -> sqlite_file.SqliteFile:
    def make(file: sqlite3.Connection, version: int) -> None:
        assert version == 0
        file.execute("create table words (word)")

    return sqlite_file.SqliteFile(lambda: path, "the list", 1, make, busy_s=0.05, tell=print)


def insert(word: str) -> Callable[[sqlite3.Connection], object]:
    return lambda file: file.execute("insert into words values (?)", (word,))


def words(file: sqlite_file.SqliteFile) -> list[str]:
    return [word for (word,) in file.do(lambda opened: opened.execute("select word from words").fetchall())]


def test_what_waits_is_written_in_its_order(tmp_path: Path) -> None:
    file = a_file(tmp_path / "x.sqlite")
    file.do(insert("a"))
    with held(tmp_path / "x.sqlite"):
        for word in "bc":
            with pytest.raises(
                sqlite_file.UnusableFileError, match=f"^database is locked .*x.sqlite.; {HELD}$"
            ):
                file.keep(insert(word))
        assert (file.waits(), file.write_again(at_once=True)) == (2, False)
    assert file.write_again(at_once=True)
    file.do(insert("d"))
    assert (words(file), file.waits(), file.trouble()) == (["a", "b", "c", "d"], 0, None)


def test_a_disk_that_is_full_is_a_sentence_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def limited(*given: Any, **named: Any) -> sqlite3.Connection:
        file = connect(*given, **named)
        file.execute("pragma max_page_count = 1")
        return file

    file = a_file(tmp_path / "x.sqlite")
    file.do(insert("a"))
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", limited)
        with pytest.raises(sqlite_file.UnusableFileError) as why:
            file.keep(insert("b" * 9_000))
    assert str(why.value) == f"database or disk is full ({tmp_path / 'x.sqlite'}); free disk space"
    [trouble] = sqlite_file.troubles(tmp_path)
    assert trouble.text.endswith(" UTC: database or disk is full; free disk space")
    assert trouble.text.startswith("the list cannot be written since 20")
    sqlite_file.write_again()
    assert sqlite_file.troubles(tmp_path) == []
    assert words(file) == ["a", "b" * 9_000]


NAMES = ["a b", "100%41", "a#b", "a?mode=ro", "ü 日本", "~", os.fsdecode(b"\xff\xfe")]


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_may_have_any_name_and_a_relative_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    try:
        (tmp_path / name).mkdir()
    except (OSError, UnicodeEncodeError):
        pytest.skip("not on this file system")
    monkeypatch.chdir(tmp_path)
    owner = Owner(Path(name))
    command = [sys.executable, "-c", ALIVE, name, owner.id]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"True\n"
    monkeypatch.chdir("/")
    owner.close()
    assert subprocess.run(command, capture_output=True, check=True, cwd=tmp_path).stdout == b"False\n"
    assert list((tmp_path / name).iterdir()) == []


ALIVE = """
import sys
from pathlib import Path
from orbit_lsp.queue import owners
print(owners.alive(Path(sys.argv[1]), sys.argv[2]))
"""


def test_a_lock_that_cannot_be_looked_at_is_not_taken_for_one_that_was_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner(tmp_path)
    owner.close()
    (tmp_path / owner.id).write_bytes(b"")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    del monkeypatch
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        held_still = sqlite_file.is_held(tmp_path / owner.id)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert held_still
    assert not sqlite_file.is_held(tmp_path / owner.id)
