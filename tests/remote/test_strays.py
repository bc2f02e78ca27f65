"""Programs that leave daemons behind: nothing of a run outlives it, and nothing of another run is touched.

The program is host code in a `.cu` file, built by the real nvcc; the worker is a process of the test's,
because running one through the real worker needs a GPU.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from orbit_lsp.runners import local
from orbit_remote import PACKAGE
from orbit_remote.process import process_groups
from tests.processes_check import command, ended

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a process outside its group is found on Linux only"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc"),
    pytest.mark.usefixtures("real_starts"),
]

PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
int main(int, char** arguments) {
    int ends[2];
    char pid[32] = {};
    pipe(ends);
    if (fork() == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        setsid();
        write(ends[1], pid, snprintf(pid, sizeof pid, "%d", getpid()));
        sleep(600);
    }
    read(ends[0], pid, sizeof pid);
    puts(pid);
    fflush(stdout);
    sleep(atoi(arguments[1]));
}
"""

WORKER = """
import asyncio, os, sys
from orbit_remote.process import process_groups, program

async def run(seconds):
    await program.run(
        [sys.argv[1], seconds], cwd="/", env={}, stdin="", timeout_s=600, started=lambda pid, alive: None,
        output=lambda stream, text: print("daemon", text.strip(), flush=True),
    )

async def main():
    process_groups.adopt()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        match line.split():
            case ["run", seconds]:
                task = asyncio.create_task(run(seconds))
            case ["cancel"]:
                task.cancel()
                await asyncio.wait([task])
                print("over", flush=True)
            case ["wait"]:
                await task
                print("over", flush=True)
            case ["helper"]:
                helper = await asyncio.to_thread(__import__("subprocess").Popen, ["sleep", "600"])
                other = await process_groups.start(["sleep", "600"], stdout=None, stderr=None)
                print(helper.pid, other.pid, flush=True)
    os._exit(0)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    source = folder / "daemon.cu"
    source.write_text(PROGRAM)
    subprocess.run(["nvcc", "-o", folder / "daemon", source], check=True, capture_output=True)
    return folder / "daemon"


class Worker:
    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        self.process = process
        self.mark = mark

    async def ask(self, order: str) -> list[str]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(order.encode() + b"\n")
        return (await self.process.stdout.readline()).decode().split()

    async def run(self, seconds: int) -> int:
        """Start the program; its daemon's pid."""
        return int((await self.ask(f"run {seconds}"))[1])


@pytest.fixture
async def worker(program: Path, tmp_path: Path) -> AsyncIterator[Worker]:
    mark = str(tmp_path)  # of no other test, which may run beside this one
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WORKER, program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(PACKAGE.parent), process_groups.MARK: mark},
    )  # fmt: skip
    yield Worker(process, mark)
    if process.returncode is None:
        process.kill()
    await process.wait()


async def test_a_child_can_be_interrupted_whatever_this_process_ignores() -> None:
    """As where a shell has started the suite, or an editor, in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = await process_groups.start(["grep", "-E", "SigIgn|SigBlk", "/proc/self/status"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert child.stdout
    masks = dict(line.split() for line in (await child.stdout.read()).decode().splitlines())
    await process_groups.finish(child)
    interrupts = 1 << signal.SIGINT - 1 | 1 << signal.SIGQUIT - 1
    assert {name: int(mask, 16) & interrupts for name, mask in masks.items()} == {"SigBlk:": 0, "SigIgn:": 0}


@pytest.mark.slow
async def test_a_daemon_ends_with_its_run(worker: Worker) -> None:
    daemon = await worker.run(0)
    assert await worker.ask("wait") == ["over"]
    assert not psutil.pid_exists(daemon)


@pytest.mark.slow
async def test_a_daemon_ends_when_its_run_is_cancelled(worker: Worker) -> None:
    daemon = await worker.run(600)
    assert await worker.ask("cancel") == ["over"]
    assert not psutil.pid_exists(daemon)


async def test_another_run_and_the_workers_own_processes_live_on(worker: Worker) -> None:
    helper, other = map(int, await worker.ask("helper"))
    theirs = await worker.run(600)
    daemon = await worker.run(600)
    assert await worker.ask("cancel") == ["over"]
    assert not psutil.pid_exists(daemon)
    assert all(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in (theirs, helper, other))
    psutil.Process(helper).kill()
    process_groups.end_marked(worker.mark)  # the run that was left


async def test_the_server_ends_what_a_killed_worker_left(worker: Worker) -> None:
    daemon = await worker.run(600)
    worker.process.kill()
    await worker.process.wait()
    assert psutil.pid_exists(daemon)
    process_groups.end_marked("of another worker")
    assert psutil.pid_exists(daemon)
    process_groups.end_marked(worker.mark)
    await ended(daemon)


async def test_the_runner_looks_after_a_killed_worker(tmp_path: Path, program: Path) -> None:
    """The real worker, killed; the program is started by the test, as that worker would have."""
    runner = local.LocalRunner(local.LocalOptions(cache=str(tmp_path)))
    await runner.machine()
    [worker] = [child for child in psutil.Process().children() if str(tmp_path) in command(child.pid)]
    mark = {process_groups.MARK: worker.environ()[process_groups.MARK]}
    leader = await asyncio.create_subprocess_exec(program, "600", env=mark, stdout=subprocess.PIPE)
    assert leader.stdout
    daemon = int(await leader.stdout.readline())
    worker.kill()
    assert await leader.wait() == -signal.SIGKILL
    await ended(daemon)
    await runner.close()
