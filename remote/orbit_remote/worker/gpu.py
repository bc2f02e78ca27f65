"""The GPU of a job: whether there is one, its architecture, which one the program sees, and its state during the run."""

from __future__ import annotations

from collections.abc import Sequence

from orbit_remote.common import architectures
from orbit_remote.common import messages as c
from orbit_remote.common.launch_records import LaunchSeries
from orbit_remote.recording import telemetry

_DEFAULT_ARCHITECTURE = "sm_90a"
_SAMPLE_NS = int(1.5e9 * telemetry.PERIOD_S)


def no_gpu(job: c.Job) -> c.Finished:
    return c.failed(
        job.run,
        c.Failure(
            "infrastructure",
            "there is no NVIDIA GPU in this machine to run it on"
            if job.device == 0
            else f"this machine has no GPU number {job.device}",
            "`orbit-lsp doctor` shows what is missing; static figures and compile errors need no GPU",
        ),
    )


def architecture_of(device: c.Device | None) -> str:
    if device is None or device.capability is None:
        return _DEFAULT_ARCHITECTURE
    return architectures.architecture_of(device.capability)


def visible_gpu(job: c.Job) -> dict[str, str]:
    """What makes the job's GPU the first of its program, where it is not anyway; numbers are NVML's."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(job.device)} if job.device else {}


def watched(sampler: telemetry.Sampler, series: Sequence[LaunchSeries]) -> c.Telemetry | None:
    """What NVML said while the kernels ran: clocks of the idle GPU before and after would be others."""
    timed = [launches for launches in series if launches.starts]
    if not timed:
        return None
    first, last = min(launches.starts[0] for launches in timed), max(max(launches.ends) for launches in timed)
    found = sampler.telemetry(first - _SAMPLE_NS, last + _SAMPLE_NS)
    return found if found and found.samples else None
