"""Checks whether a GPU is as it was when the server started: a known kernel's answer and time there, and the memory
in use.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from orbit_lsp.queue.job_store import Result
from orbit_lsp.queue.request import Request
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass

AGAIN_S = 60.0
"""Seconds between two checks of a GPU that is set aside."""
_SLOWER = 1.25
"""Factor over the known kernel's earlier time; medians of one GPU differ by under 2 % (docs/dev/results/measurements.md)."""
_MORE = 1 << 30
"""Bytes in use beyond those before: a prepared Python with a CUDA context comes and goes, and has up to 0.8 GB."""
KNOWN = Request(
    name="gpu_check.cu",
    text="""\
// orbit: n = 16777216; x = randn(n); y = empty(n)
// orbit: launch copies<<<(n + 255) / 256, 256>>>(y, x, n)
// orbit: expect y == x
__global__ void copies(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}
""",
)
Perform = Callable[[Request], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class GpuFigures:
    """The figures of a GPU: the known kernel's median in nanoseconds, and the most memory in use meanwhile in bytes;
    None if NVML does not say.
    """

    ns: float
    used: int | None


def suspect(finished: c.Finished) -> bool:
    """Say whether a job may have left its GPU in another state: it crashed, hung, was called suspicious, or ended as
    infrastructure.
    """
    cheated = bool(finished.judged and finished.judged.suspicious)
    return cheated or finished.outcome in ("runtime error", "timed out", "infrastructure")


async def figures(perform: Perform) -> tuple[GpuFigures | None, str]:
    """Return the figures and an empty text, or None and how the check failed."""
    finished = (await perform(KNOWN)).finished
    timing = finished.launches[0].timing if finished.launches else None
    if finished.outcome != "ok" or timing is None:
        why = finished.failure.message if finished.failure else "the kernel has no time"
        return None, f"a copy of 64 MiB ends as {finished.outcome}: {why}"
    return GpuFigures(timing.median, finished.telemetry.memory_used if finished.telemetry else None), ""


def problem(before: GpuFigures, now: GpuFigures | None, why: str) -> str:
    """Return what is wrong with the GPU, or "" if nothing is."""
    if now is None:
        return why
    if now.ns > _SLOWER * before.ns:
        return f"a copy of 64 MiB takes {now.ns / 1000:.1f} µs, and took {before.ns / 1000:.1f} µs when the server started"
    if before.used is not None and now.used is not None and now.used > before.used + _MORE:
        return f"{now.used / 2**30:.1f} GiB of its memory are in use, and {before.used / 2**30:.1f} GiB were when the server started"
    return ""
