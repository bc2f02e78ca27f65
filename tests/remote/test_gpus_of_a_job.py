"""Which of this machine's GPUs a job has: seen by its program, kept free of other jobs, and named where there are too few.

NVML is a list of devices here; tests/gpu/test_two_gpus_gpu.py has the real ones.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common.launch_records import LaunchRecord, series
from orbit_remote.common.requests import Job
from orbit_remote.worker import gpu, lease, probe
from orbit_remote.worker.actions import builds
from orbit_remote.worker.context import WorkerClient, WorkerContext
from tests import processes_check

JOB = Job("r", "run", "cuda", "two.cu", "")


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = tuple(c.Device("NVIDIA H200", index, uuid=f"GPU-{index}") for index in range(2))
    monkeypatch.setattr(probe, "all_devices", lambda: devices)


@pytest.mark.parametrize(
    ("device", "gpus", "visible"), [(0, 1, None), (1, 1, "1"), (0, 2, "0,1"), (1, 3, "1,2,3")]
)
def test_a_program_sees_what_it_asked_for(device: int, gpus: int, visible: str | None) -> None:
    job = replace(JOB, device=device, gpus=gpus)
    assert gpu.visible_gpu(job).get("CUDA_VISIBLE_DEVICES") == visible


@pytest.mark.parametrize(
    ("device", "gpus", "message"),
    [
        (0, 2, None),
        (2, 1, "this machine has no GPU number 2"),
        (0, 4, "4 GPUs are asked for, from number 0 on, and this machine has 2"),
        (1, 2, "2 GPUs are asked for, from number 1 on, and this machine has 2"),
    ],
)
def test_too_few_gpus_are_a_sentence(device: int, gpus: int, message: str | None) -> None:
    job = replace(JOB, device=device, gpus=gpus)
    if message is None:
        assert gpu.of(job) == probe.all_devices()[0]
        return
    assert gpu.of(job) is None
    failure = gpu.no_gpu(job).failure
    assert failure
    assert (failure.category, failure.message) == ("infrastructure", message)


@pytest.mark.parametrize(
    ("rented", "message"),
    [
        ("H100", None),
        ("H100:2", None),
        ("H100:4", "H100:4 was rented, and the machine that came has 2 GPUs"),
        ("H100!:8", "H100!:8 was rented, and the machine that came has 2 GPUs"),
    ],
)
def test_all_gpus_that_were_rented_have_to_be_there(rented: str, message: str | None) -> None:
    job = replace(JOB, gpu=rented)
    assert (gpu.of(job) is None) == (message is not None)
    if message:
        failure = gpu.no_gpu(job).failure
        assert failure
        assert (failure.message, failure.retryable) == (message, True)


def test_a_rented_machine_without_a_gpu_is_no_matter_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "all_devices", tuple)
    failure = gpu.no_gpu(replace(JOB, gpu="H100")).failure
    assert failure
    assert (failure.message, failure.retryable) == (
        "H100 was rented, and the machine that came has no GPU",
        True,
    )


@pytest.mark.parametrize(
    ("gpus", "rented", "remarks"),
    [
        (2, None, ()),
        (1, "H100:2", ()),
        (
            1,
            None,
            ("it ran kernels on 2 GPUs, of which 1 were kept free of other jobs, unless the setting `gpu` asks for 2, as in H100:2",),
        ),
    ],
)  # fmt: skip
def test_a_program_that_runs_on_more_is_a_remark(gpus: int, rented: str | None, remarks: tuple[str]) -> None:
    launches = series(LaunchRecord("k", 1, 2, (1, 1, 1), (1, 1, 1), device=at) for at in range(2))
    assert gpu.beyond(replace(JOB, gpus=gpus, gpu=rented), launches) == remarks


async def test_a_job_of_two_gpus_waits_for_both_and_holds_both(tmp_path: Path) -> None:
    leases = lease.Leases(tmp_path)
    shared: Any = SimpleNamespace(leases=leases, home=tmp_path, cache=None, overheads=None)
    events: asyncio.Queue[c.Event] = asyncio.Queue()
    made = WorkerContext(shared, WorkerClient(events.put_nowait, os.environ), builds.build_ahead)
    async with leases.hold("GPU-1", "another job", batch=False, waits=print):
        waiting = asyncio.create_task(held(made))
        event = await asyncio.wait_for(events.get(), processes_check.LIMIT_S)
    assert await waiting == ["GPU-0", "GPU-1"]
    assert isinstance(event, c.Stage)
    assert event.why == "waits for the GPU: another job"


async def held(made: WorkerContext) -> list[str]:
    async with made.gpu(replace(JOB, gpus=2)):
        return sorted(path.name.partition(".")[0] for path in lease.EVERYBODYS.glob("*.held.*"))
