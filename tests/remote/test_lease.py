"""One measuring job a GPU: the order of those who wait, over processes; what they are told; what death leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from orbit_remote import PACKAGE
from orbit_remote.worker import lease
from orbit_remote.worker.lease import Leases
from tests import processes_check

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="GPUs are leased over processes on Linux")
GPU = "GPU-2f3c"

HOLDER = """
import asyncio, sys
from pathlib import Path
from orbit_remote.worker import lease

async def main():
    lease.EVERYBODYS = Path(sys.argv[1])
    def waits(other): print("waits for", other, flush=True)
    async with lease.Leases(Path(sys.argv[1])).hold("GPU-2f3c", sys.argv[2], batch=False, waits=waits):
        print("holds", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)

asyncio.run(main())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return lease.EVERYBODYS


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def tickets(folder: Path) -> list[Path]:
    return [*folder.glob(f"{GPU}.[01].*")]


def spoil(folder: Path, what: str) -> None:
    match what:
        case "link":
            folder.with_name("elsewhere").mkdir()
            folder.symlink_to("elsewhere")
        case "file":
            folder.write_text("")
        case _:
            folder.mkdir(mode=0o700)


def litter(folder: Path) -> None:
    for name in ("0.x.1", "0.00000000000000000001.1-1", "held.7-7", "1."):
        (folder / f"{GPU}.{name}").write_text("")
    os.mkfifo(folder / f"{GPU}.0.00000000000000000002.1-2")


class Jobs:
    """Jobs of one worker, in the order in which they had the GPU; each has it until `end`."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self.log: list[str] = []
        self.changed = asyncio.Condition()
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def submit(self, name: str, *, batch: bool = False) -> None:
        """Until it has the GPU, or is told for whom it waits."""
        self._ends[name] = asyncio.Event()
        before = len(self.log)
        self._tasks[name] = asyncio.create_task(self._work(name, batch))
        await self.until(before + 1)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(processes_check.LIMIT_S), self.changed:
            await self.changed.wait_for(lambda: len(self.log) >= count)

    async def measures(self, name: str) -> None:
        async with asyncio.timeout(processes_check.LIMIT_S), self.changed:
            await self.changed.wait_for(lambda: f"{name} measures" in self.log)

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self._tasks[name]

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.wait([self._tasks[name]])

    async def _work(self, name: str, batch: bool) -> None:
        def waits(other: str) -> None:
            self._say(f"{name} waits for {other}")

        async with self._leases.hold(GPU, name, batch=batch, waits=waits):
            self._say(f"{name} measures")
            await self._ends[name].wait()

    def _say(self, text: str) -> None:
        self.log.append(text)

        async def tell() -> None:
            async with self.changed:
                self.changed.notify_all()

        self._told = asyncio.ensure_future(tell())


async def test_first_come_first_served_and_a_click_before_a_batch(folder: Path) -> None:
    jobs = Jobs(Leases(folder))
    await jobs.submit("a")
    await jobs.submit("batch", batch=True)
    await jobs.submit("b")
    await jobs.submit("c")
    jobs.log.clear()
    for name, following in (("a", "b"), ("b", "c"), ("c", "batch")):
        await jobs.end(name)
        await jobs.measures(following)
    await jobs.end("batch")
    assert [line for line in jobs.log if "measures" in line] == ["b measures", "c measures", "batch measures"]


async def test_who_waits_is_told_for_whom_and_can_be_cancelled(folder: Path) -> None:
    jobs = Jobs(Leases(folder))
    await jobs.submit("softmax.cu in Neovim")
    await jobs.submit("saxpy.cu")
    await jobs.cancel("saxpy.cu")
    await jobs.end("softmax.cu in Neovim")
    await jobs.submit("next")
    await jobs.end("next")
    assert jobs.log == [
        "softmax.cu in Neovim measures",
        "saxpy.cu waits for softmax.cu in Neovim",
        "next measures",
    ]
    assert names(folder) == [f"{GPU}.lock"]


async def test_another_gpu_is_not_waited_for(folder: Path) -> None:
    leases = Leases(folder)
    async with AsyncExitStack() as held:
        for gpu in (GPU, "GPU-other"):
            await held.enter_async_context(leases.hold(gpu, "k", batch=False, waits=pytest.fail))


async def start(folder: Path, name: str) -> asyncio.subprocess.Process:
    pipe = subprocess.PIPE
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, folder, name, stdin=pipe, stdout=pipe, env=environment
    )


async def line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout
    return (await process.stdout.readline()).decode().strip()


async def test_another_process_waits_and_a_killed_holder_gives_the_gpu_back(folder: Path) -> None:
    first = await start(folder, "softmax.cu in Neovim")
    assert await line(first) == "holds"
    second = await start(folder, "saxpy.cu in Helix")
    assert await line(second) == "waits for softmax.cu in Neovim"
    first.send_signal(signal.SIGKILL)
    messages = [await line(second)]
    if messages[0] != "holds":  # it looked between the two
        messages.append(await line(second))
    assert messages[-1] == "holds"
    assert second.stdin
    second.stdin.write(b"\n")
    assert await second.wait() == 0
    assert names(folder) == [f"{GPU}.lock"]
    await first.wait()


@pytest.mark.parametrize("what", ["link", "file", "nobody else's"])
async def test_a_shared_folder_that_is_none_is_replaced_by_ones_own(
    folder: Path, tmp_path: Path, what: str
) -> None:
    spoil(folder, what)
    own = tmp_path / "own"
    async with Leases(own).hold(GPU, "k", batch=False, waits=pytest.fail):
        assert f"{GPU}.lock" in names(own)


LOCKS: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to a file": lambda lock: lock.symlink_to("/etc/passwd"),
    "a link to nothing": lambda lock: lock.symlink_to("gone"),
    "a socket": lambda lock: socket.socket(socket.AF_UNIX).bind(str(lock)),
    "a flood of tickets": lambda lock: [
        lock.with_name(f"{GPU}.0.{number:020d}.{number}-1").touch() for number in range(lease._MOST_NAMES)
    ],
    "a flood of other names": lambda lock: [
        lock.with_name(str(number)).touch() for number in range(lease._MOST_NAMES)
    ],
}


def occupied(folder: Path, put: Callable[[Path], object]) -> None:
    folder.mkdir()
    folder.chmod(0o1777)
    put(folder / f"{GPU}.lock")


@pytest.mark.parametrize("what", LOCKS)
async def test_what_others_put_where_the_lock_is_stops_no_job(
    folder: Path, tmp_path: Path, what: str
) -> None:
    occupied(folder, LOCKS[what])
    async with Leases(tmp_path / "own").hold(GPU, "k", batch=False, waits=pytest.fail):
        assert f"{GPU}.lock" in names(tmp_path / "own")


async def test_a_name_in_the_shared_folder_that_is_no_ticket_is_passed_over(folder: Path) -> None:
    leases = Leases(folder)
    async with leases.hold(GPU, "k", batch=False, waits=pytest.fail):
        pass
    litter(folder)
    async with leases.hold(GPU, "k", batch=False, waits=pytest.fail):
        pass


async def test_a_ticket_that_somebody_removes_is_drawn_again(folder: Path) -> None:
    """As the owner of the shared folder may: no job fails for it, and each keeps its place."""
    jobs = Jobs(Leases(folder))
    await jobs.submit("a.cu")
    await jobs.submit("b.cu")
    await jobs.submit("c.cu")
    for path in tickets(folder):
        path.unlink()
    async with asyncio.timeout(processes_check.LIMIT_S):
        while len(tickets(folder)) < 2:  # noqa: ASYNC110 - nobody tells that a file has come
            await asyncio.sleep(0)
    await jobs.end("a.cu")
    await jobs.end("b.cu")
    await jobs.end("c.cu")
    assert [line for line in jobs.log if line.endswith("measures")] == [
        "a.cu measures", "b.cu measures", "c.cu measures",
    ]  # fmt: skip


async def test_a_ticket_that_is_removed_at_each_step_stops_nobody(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def removed(path: Path, target: Path) -> Path:
        if path.parent == folder:
            path.unlink(missing_ok=True)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", removed)
    own = folder.with_name("own")
    async with Leases(own).hold(GPU, "a.cu", batch=False, waits=print):
        assert [path.name.partition(".held.")[0] for path in own.iterdir() if ".held." in path.name] == [GPU]


@pytest.mark.parametrize("what", ["nothing", "remove", "replace"])
async def test_a_lock_that_was_taken_away_is_noticed_at_the_end(folder: Path, what: str) -> None:
    noticed: list[bool] = []
    lock = folder / f"{GPU}.lock"
    async with Leases(folder).hold(GPU, "a.cu", batch=False, waits=print, lost=lambda: noticed.append(True)):
        if what != "nothing":
            lock.unlink()
        if what == "replace":
            lock.write_text("")
    assert noticed == ([] if what == "nothing" else [True])
