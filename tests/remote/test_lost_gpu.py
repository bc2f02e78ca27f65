"""A GPU that is lost (Xid), held by another process (exclusive mode) or divided (MIG): what a run says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orbit_remote.child import python_job
from orbit_remote.child.spec import spec_job
from orbit_remote.common import messages as c
from orbit_remote.common import python_errors
from orbit_remote.common.launch_records import OF_THE_MACHINE, CudaError
from orbit_remote.common.requests import Job, KernelDefinition
from orbit_remote.process.program import EndedProgram
from orbit_remote.recording import run_outcome, telemetry
from orbit_remote.recording.injection import RecordedRun
from orbit_remote.worker import probe
from orbit_remote.worker.actions import builds
from orbit_remote.worker.context import Shared, WorkerClient, WorkerContext

JOB = Job("r", "run", "cuda", "/k.cu", "__global__ void k() {}\n")
ENDED = EndedProgram(1, "", "", truncated=False, seconds=0.1)
LOST = CudaError(1, "runtime", "cudaDeviceSynchronize", 214, "CUDA_ERROR_ECC_UNCORRECTABLE", "k", 1)


@pytest.mark.parametrize("name", OF_THE_MACHINE)
def test_a_program_that_loses_its_gpu_is_not_its_kernels_fault(name: str) -> None:
    recorded = RecordedRun(errors=(replace(LOST, name=name),))
    verdict = run_outcome.of_program(JOB, ENDED, recorded, {"k": c.Resources("k", "k", "sm_90")})
    assert verdict.failure
    assert (verdict.outcome, verdict.failure.category, verdict.problems) == (
        "infrastructure",
        "infrastructure",
        (),
    )
    assert verdict.failure.message == (
        f"{name}: {OF_THE_MACHINE[name][0]} (cudaDeviceSynchronize); main ended with exit code 1"
    )
    assert (verdict.failure.remedy, verdict.failure.retryable) == (OF_THE_MACHINE[name][1], True)


def test_a_gpu_that_was_lost_and_ignored_is_noticed() -> None:
    """The program ended with 0, but what it computed is nothing."""
    assert run_outcome.of_program(JOB, replace(ENDED, status=0), RecordedRun(errors=(LOST,)), {}).outcome == (
        "infrastructure"
    )


class AcceleratorError(RuntimeError):
    """torch's name for what CUDA reports."""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "CUDA_ERROR_DEVICE_UNAVAILABLE"),
        ("CUDA error: uncorrectable ECC error encountered", "CUDA_ERROR_ECC_UNCORRECTABLE"),
        ("CUDA error: uncorrectable NVLink error detected during the execution", "CUDA_ERROR_NVLINK_UNCORRECTABLE"),
        ("CUDA error: system not yet initialized", "CUDA_ERROR_SYSTEM_NOT_READY"),
    ],
)  # fmt: skip
def test_what_torch_raises_for_it_is_the_machines_too(words: str, code: str) -> None:
    explained = python_errors.explain(AcceleratorError(words), "/k.py")
    assert (explained.failure.category, explained.failure.retryable, explained.code) == (
        "infrastructure",
        True,
        code,
    )
    assert explained.failure.remedy == OF_THE_MACHINE[code][1]


def test_a_process_that_died_of_it_too() -> None:
    job = replace(JOB, language="triton", path="/k.py", text="")
    assert python_job.crashed(job, -6, RecordedRun(errors=(LOST,))).outcome == "infrastructure"


def test_a_launch_spec_too() -> None:
    class Lost:
        def end(self) -> None:
            pass

        def recorded(self) -> RecordedRun:
            return RecordedRun(errors=(LOST,))

    job = replace(JOB, tool_kernel=KernelDefinition("k", "k", 0, 0, 0, 17))
    finished = spec_job._failed(job, RuntimeError("lost"), Lost())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert (finished.outcome, finished.failure and finished.failure.message) == (
        "infrastructure", "k ended with CUDA_ERROR_ECC_UNCORRECTABLE",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("exclusive", "in_spare", "freed"), [(True, False, 1), (True, True, 0), (False, False, 0)]
)
async def test_a_gpu_in_exclusive_mode_is_freed_for_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, exclusive: bool, in_spare: bool, freed: int
) -> None:
    monkeypatch.setattr(probe, "all_devices", lambda: (c.Device("H100", exclusive=exclusive),))
    shared, calls = Shared(tmp_path / "home"), list[int]()

    class Spares:
        async def free(self) -> None:
            calls.append(1)

    monkeypatch.setattr(shared, "_spares", Spares())
    context = WorkerContext(shared, WorkerClient(lambda _: None, {}), builds.build_ahead)
    async with context.gpu(JOB, in_spare=in_spare):
        assert len(calls) == freed


def test_an_instance_of_a_divided_gpu_has_its_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML names the whole GPU, on which no program runs; the driver the instance that programs get."""
    whole = c.Device(
        "NVIDIA H100 80GB HBM3", 0, "9.0", uuid="GPU-1", driver="580", multiprocessors=132, memory=80 << 30
    )
    instance = c.Device(
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 0, "9.0", multiprocessors=16, memory=10 << 30, l2_bytes=6 << 20
    )
    monkeypatch.setattr(telemetry, "devices", lambda: (whole,))
    monkeypatch.setattr(probe, "driver_devices", lambda: (instance,))
    assert probe._look_for_devices() == (replace(instance, uuid="GPU-1", driver="580"),)
