"""Tests of a project on a real GPU: the lease from the first context on, and the launches of ranks and forks"""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Driver, DriverStart, Job
from orbit_remote.process import program
from orbit_remote.worker import probe
from orbit_remote.worker.actions import builds, python_action
from orbit_remote.worker.context import Shared, WorkerClient, WorkerContext
from tests import processes_check

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]
KERNEL = """import torch, triton
import triton.language as tl

@triton.jit
def twice(x, BLOCK: tl.constexpr):
    at = x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(at, tl.load(at) + tl.load(at))

def launch(blocks=8):
    twice[(blocks,)](torch.ones(blocks * 128, device="cuda"), BLOCK=128)
    torch.cuda.synchronize()
"""
TESTS = """import os
import torch.multiprocessing
from k import launch

def rank(number):
    launch(number + 1)

def test_here():
    launch()

def test_spawned():
    torch.multiprocessing.spawn(rank, nprocs=2)

def test_forked():
    torch.multiprocessing.start_processes(rank, nprocs=2, start_method="fork")

def test_profiled():
    with torch.profiler.profile():
        launch()
"""


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "k.py").write_text(KERNEL)
        (folder / "conftest.py").touch()
        (folder / "test_k.py").write_text(TESTS)
        self.events: list[c.Event] = []
        self.shared = Shared(folder / "home")
        environment = program.environment(os.environ) | {"TRITON_CACHE_DIR": str(folder / "triton")}
        client = WorkerClient(self.events.append, environment, tuple(environment))
        self.context = WorkerContext(self.shared, client, builds.build_ahead)

    async def run(self, test: str, **fields: float) -> c.Finished:
        driver = Driver("pytest", "test_k.py", test)
        job = Job(
            "r1", "run", "triton", str(self.folder / "k.py"), KERNEL, directory=str(self.folder), start=DriverStart(driver)
        )  # fmt: skip
        return await python_action.run_python(replace(job, **fields), self.context)

    async def close(self) -> None:
        await self.context.close()
        await self.shared.close()


async def test_the_gpu_is_taken_when_a_test_opens_it(tmp_path: Path) -> None:
    project = Project(tmp_path)
    assert (await project.run("test_here")).outcome == "ok"
    device = probe.all_devices()[0]
    began, limit_s = asyncio.get_running_loop().time(), 3.0
    async with project.shared.leases.hold(device.uuid or "gpu-0", "another", batch=False, waits=print):
        running = asyncio.create_task(project.run("test_here", run_timeout_s=limit_s))
        await asyncio.sleep(limit_s + 1)  # longer than it may run
        assert not running.done()
    async with asyncio.timeout(processes_check.LIMIT_S):
        finished = await running
    assert asyncio.get_running_loop().time() - began > limit_s
    assert (finished.outcome, [each.name for each in finished.launches if each.place]) == ("ok", ["twice"])
    waited = [event.why for event in project.events if isinstance(event, c.Stage) and event.state == "queued"]
    assert waited == ["waits for the GPU: another"]
    await project.close()


async def test_what_other_processes_launch_is_theirs(tmp_path: Path) -> None:
    project = Project(tmp_path)
    place = c.Place(str(tmp_path / "k.py"), 5)
    for test in ("test_spawned", "test_forked"):
        finished = await project.run(test)
        assert finished.outcome == "ok", finished.stdout
        launched = [(each.grid, each.place) for each in finished.launches if each.name == "twice"]
        assert sorted(launched, key=str) == [((1, 1, 1), place), ((2, 1, 1), place)]
        [each] = finished.sets
        assert each.launches["twice"] == 2
    profiled = await project.run("test_profiled")
    assert profiled.outcome == "ok", profiled.stdout
    assert "the program started a profiler of its own: later launches were not recorded" in profiled.remarks
    await project.close()
