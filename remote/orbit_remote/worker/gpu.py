"""The GPU of a job: whether there is one, its architecture, which one the program sees, and its state during the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orbit_remote.common import architectures
from orbit_remote.common import messages as c
from orbit_remote.common.launch_records import LaunchSeries
from orbit_remote.common.measurements import Telemetry
from orbit_remote.common.requests import Job
from orbit_remote.process import client_environment
from orbit_remote.recording import telemetry
from orbit_remote.worker import probe

_DEFAULT_ARCHITECTURE = "sm_90a"
_SAMPLE_NS = int(1.5e9 * telemetry.PERIOD_S)


def of(job: Job) -> c.Device | None:
    """Return the first GPU on which a job runs. Return None if this machine does not have all that the job asks for.
    Takes a moment.
    """
    devices = probe.devices(job.device, _wanted(job))
    return devices[0] if devices else None


WITHOUT = "it ran without a GPU: this machine has no NVIDIA GPU"


def run_without(job: Job, finished: c.Finished) -> c.Finished:
    """Return the end of a driver that ran without a GPU. If it failed as a program, or skipped everything, the
    missing GPU is the reason.
    """
    skipped = bool(finished.sets) and all(each.outcome == "skipped" for each in finished.sets)
    failed = bool(job.project_program) and finished.outcome == "runtime error"
    if (skipped or failed) and job.driver:
        how = "was skipped" if skipped else f"ended with exit code {finished.exit_code}"
        failure = no_gpu(job).failure
        assert failure
        failure = replace(failure, message=f"{failure.message}: {job.driver.short} {how}")
        return replace(finished, outcome="infrastructure", failure=failure, problems=())
    return replace(finished, remarks=(*finished.remarks, WITHOUT))


def _wanted(job: Job) -> int:
    """Return how many GPUs a job asks for. On a rented machine that is as in `H100:2`; all of its GPUs are the job's."""
    _, colon, count = (job.gpu or "").partition(":")
    return max(job.gpus, int(count)) if colon and count.isdecimal() else job.gpus


def dispensable(job: Job) -> bool:
    """Say whether a job that can do without a GPU may do so: it asks for none, and this machine has none."""
    return not job.gpu and not probe.all_devices()


def no_gpu(job: Job) -> c.Finished:
    have = len(probe.all_devices())
    if job.gpu and _wanted(job) > have:
        count = f"{have} GPU{'s' * (have != 1)}" if have else "no GPU"
        message = f"{job.gpu} was rented, and the machine that came has {count}"
        return c.failed(job.run, c.Failure("infrastructure", message, "run it again", retryable=True))
    if have == 0:
        message = c.NO_GPU
    elif job.gpus > 1:
        message = f"{job.gpus} GPUs are asked for, from number {job.device} on, and this machine has {have}"
    else:
        message = f"this machine has no GPU number {job.device}"
    remedy = "`orbit-lsp doctor` shows what is missing; registers, occupancy and compiler errors need no GPU"
    return c.failed(job.run, c.Failure("infrastructure", message, remedy))


def divided(device: c.Device) -> str:
    """Return a remark on the counters of a GPU that programs share at the same time: a part of it (MIG), or all of it (MPS).
    Return "" if it is not shared so.
    """
    if " MIG " in device.name:
        return "the GPU is a MIG instance: counters of what it shares with other instances are absent or include their work"
    pipes = client_environment.current().get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")  # noqa: S108 - the daemon's own default
    if (Path(pipes) / "control").exists():
        return "the GPU is shared through MPS: counters can include the work of its other programs"
    return ""


def architecture_of(device: c.Device | None) -> str:
    if device is None or device.capability is None:
        return _DEFAULT_ARCHITECTURE
    return architectures.architecture_of(device.capability)


def visible_gpu(job: Job) -> dict[str, str]:
    """Return the variables that make the job's GPU the first of its program, if it is not anyway. If the job asked
    for several GPUs, it sees only those. Numbers are NVML's.
    """
    if not job.device and job.gpus == 1:
        return {}
    numbers = ",".join(map(str, range(job.device, job.device + job.gpus)))
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": numbers}


def beyond(job: Job, series: Sequence[LaunchSeries]) -> tuple[str, ...]:
    """Return a remark on a program that ran on more GPUs than it has to itself."""
    used = {launches.launch.device for launches in series}
    if job.gpu or len(used) <= job.gpus:  # a rented machine is all the job's own
        return ()
    asked = f"unless the setting `gpu` asks for {len(used)}, as in H100:{len(used)}"
    return (f"it ran kernels on {len(used)} GPUs, of which {job.gpus} were kept free of other jobs, {asked}",)


def watched(sampler: telemetry.Sampler, series: Sequence[LaunchSeries]) -> Telemetry | None:
    """Return what NVML reported while the kernels ran, without the clocks of the idle GPU before and after."""
    timed = [launches for launches in series if launches.starts]
    if not timed:
        return None
    first = min(launches.starts[0] for launches in timed)
    last = max(max(launches.ends()) for launches in timed)
    measured = sampler.telemetry(first - _SAMPLE_NS, last + _SAMPLE_NS)
    if not measured or not measured.samples:
        return None
    ran = sum(sum(launches.durations) for launches in timed)
    busy = min(1.0, ran / (last - first + 2 * _SAMPLE_NS))
    return measured.with_launches([len(launches.durations) for launches in timed], busy)
