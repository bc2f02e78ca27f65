"""Jobs that fill a disk are ended before it is full: with real processes, and limits that are small."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from orbit_remote.common import content_store
from orbit_remote.common.requests import Job
from orbit_remote.process import disk_space, process_groups, program
from orbit_remote.process.disk_space import Most, Room
from orbit_remote.worker import prefork
from orbit_remote.worker.actions import cuda_action, python_action
from orbit_remote.worker.context import Shared, WorkerClient, WorkerContext
from tests import cheats
from tests.processes_check import is_alive

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="what processes have written is known on Linux"
)

WRITES = """
import os, time
print(os.getpid(), flush=True)
def main():
    for number in range(400):  # 25 MiB at most: where nothing ends it, the time limit does
        with open(f"{number}.bin", "wb") as file:
            file.write(bytes(1 << 16))
        time.sleep(0.01)
    time.sleep(600)
if __name__ == "__main__":
    main()
"""


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[WorkerContext]:
    """A worker's, whose children have no torch, and so begin in a moment."""
    (tmp_path / "torch.py").write_text("raise ImportError\n")
    (tmp_path / "temporary").mkdir()
    environment = program.environment(os.environ)
    environment |= {"PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path / "temporary")}

    async def nothing(_job: Job, _context: WorkerContext) -> None: ...

    shared = Shared(tmp_path / "home")
    yield WorkerContext(shared, WorkerClient(lambda _: None, environment), nothing)
    await shared.close()


def job_of(context: WorkerContext, text: str = WRITES) -> Job:
    """One that the queue has given a folder."""
    folder = context.home / "jobs" / "1"
    folder.mkdir(parents=True)
    path = folder / "kernels.py"
    path.write_text(text)
    return Job("1", "run", "triton", str(path), text, batch=True, run_timeout_s=20.0)


@pytest.mark.parametrize(
    ("most", "words"),
    [
        (Most(1 << 20, 10_000, 0), "it was ended because it wrote more than 0.000977 GiB to its folder"),
        (Most(1 << 30, 20, 0), "it was ended because it wrote more than 20 files to its folder"),
    ],
    ids=["bytes", "files"],
)
async def test_a_candidate_that_fills_its_folder_is_ended(
    context: WorkerContext, monkeypatch: pytest.MonkeyPatch, most: Most, words: str
) -> None:
    monkeypatch.setattr(disk_space, "MOST", most)
    finished = await python_action.follow(job_of(context), context, None)
    assert finished.failure
    assert finished.outcome == "runtime error"
    assert finished.failure.message.startswith(words)
    assert finished.failure.remedy == "write less, or delete what the job no longer needs"
    assert not is_alive(int(finished.stdout))


@pytest.mark.slow
async def test_a_program_that_fills_its_folder_is_ended(
    context: WorkerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_space, "MOST", Most(1 << 20, 10_000, 0))
    job = job_of(context)
    ended, _, _ = await cuda_action.run_recorded(
        job, context, (sys.executable, job.path), {}, context.home / "scratch"
    )
    assert ended.failure
    assert "wrote more than" in ended.failure.message


class Usage(NamedTuple):
    free: int


@pytest.mark.parametrize(
    ("before", "after", "written", "outcome"),
    [
        (100, 3, 97, None),
        (100, 1.5, 60, "runtime error"),
        (100, 1.5, 2, "infrastructure"),
        (4, 1.1, 3, None),  # less was free than the limit leaves room for: a quarter stays
        (4, 0.9, 3, "runtime error"),
    ],
)
def test_a_job_is_ended_before_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: float, after: float, written: float, outcome: str | None
) -> None:  # fmt: skip
    free = [before, after]

    def usage(_: Path) -> Usage:
        return Usage(int(free[0] * (1 << 30)))

    monkeypatch.setattr(shutil, "disk_usage", usage)
    room = Room(None, [tmp_path])
    free.pop(0)
    failure = room.failure(lambda: int(written * (1 << 30)))
    assert (failure.category if failure else None) == outcome
    if failure:
        assert failure.message.startswith(f"it was ended because only {after} GiB are free on the disk of ")
        assert failure.remedy


def test_a_job_that_removes_its_folder_is_watched_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    own.mkdir()
    room = Room(own, [tmp_path])
    alone = Room(own, [])
    own.rmdir()
    assert room.failure(lambda: 0) is None

    def full(_: Path) -> Usage:
        return Usage(0)

    monkeypatch.setattr(shutil, "disk_usage", full)
    assert room.failure(lambda: 0)
    assert alone.failure(lambda: 0) is None


def test_what_a_process_and_its_ended_children_have_written_is_known(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            if (other := os.fork()) == 0:
                (tmp_path / "other").write_bytes(bytes(1 << 20))
                os._exit(0)
            os.waitpid(other, 0)
            (tmp_path / "own").write_bytes(bytes(1 << 20))
            assert process_groups.written(os.getpid()) >= 2 << 20
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def deep(tmp_path: Path) -> Generator[Path]:
    """A folder deeper than a path may be long, and than Python's functions call themselves."""
    folder, back = tmp_path / "deep", os.open(".", os.O_RDONLY)
    folder.mkdir()
    os.chdir(folder)
    for _ in range(1500):
        Path("a-folder").mkdir()
        os.chdir("a-folder")
    Path().chmod(0)
    os.chdir(back)
    os.close(back)
    yield folder
    content_store.remove(folder)


def test_a_folder_is_removed_whatever_a_candidate_made_of_it(deep: Path) -> None:
    assert Room(deep, []).failure(lambda: 0) is None
    content_store.remove(deep)
    assert not deep.exists()


async def test_nothing_of_a_judge_stays(context: WorkerContext, tmp_path: Path) -> None:
    job = cheats.job_of(tmp_path, textwrap.dedent(cheats.HONEST.text("cpu")), limit_s=20.0)
    seen: list[Path] = []
    made = prefork.judges_folder

    def noted(temporary: str | None) -> Path:
        seen.append(made(temporary))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefork, "judges_folder", noted)
        await python_action.follow(job, context, None)
    [folder] = seen
    assert folder.parent == tmp_path / "temporary"
    assert not folder.exists()
