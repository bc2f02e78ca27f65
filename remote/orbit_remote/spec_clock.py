"""What recording adds to the time of a launch, measured where it is used.

A kernel of one thread waits and tells how long, by the GPU's own clock (`%globaltimer`, nanoseconds);
its record is longer by what recording adds. On an H100 (driver 580, CUPTI 13.0) that is 2.5 to 3.1 µs for
serial records, the same for every kernel that was looked at (docs/measurements.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from pathlib import Path
from statistics import median
from typing import Any, Final

from orbit_remote.recorder import Native, Recorder
from orbit_remote.spec_timing import Clock

_SOURCE: Final = r"""
extern "C" __global__ void orbit_clock(unsigned long long* length, unsigned long long wanted) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin)::"memory");
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
  } while (now - begin < wanted);
  *length = now - begin;
}
"""
_LAUNCHES: Final = 15
_LENGTH_NS: Final = 20_000


def clock(torch: Any, recorder: Recorder, cache: Path | None) -> tuple[Clock, str]:
    """The clock of this process, and a remark where it is not the best one. Switches to serial records."""
    if not isinstance(recorder, Native):
        return Clock(None), "launches cannot be recorded here, so times are those of CUDA events"
    if not recorder.record("serial"):
        return Clock(None), "CUPTI has no serial records here, so times are those of CUDA events"
    try:
        share = _share(torch, recorder, cache)
    except Exception as error:  # noqa: BLE001 - whatever cuda.core raises: times are still times
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        return Clock(recorder), f"times contain what recording adds, about 3 µs: {why[:200]}"
    return Clock(recorder, share), ""


def _share(torch: Any, recorder: Native, cache: Path | None) -> float:
    core: Any = importlib.import_module("cuda.core")
    device = core.Device(torch.cuda.current_device())
    device.set_current()
    kernel = core.ObjectCode.from_cubin(_code(core, device.arch, cache)).get_kernel("orbit_clock")
    stream = device.create_stream(Stream(torch))
    config = core.LaunchConfig(grid=1, block=1)
    lengths = torch.zeros(_LAUNCHES, dtype=torch.int64, device="cuda")
    recorder.fresh()
    for at in range(_LAUNCHES):
        place = int(lengths.data_ptr()) + 8 * at
        core.launch(stream, config, kernel, place, ctypes.c_uint64(_LENGTH_NS))
    torch.cuda.synchronize()
    records = [one for one in recorder.fresh() if one.symbol == "orbit_clock" and one.timed]
    if len(records) != _LAUNCHES:
        raise RuntimeError("not every launch of the clock's own kernel was recorded")
    records.sort(key=lambda one: one.start_ns)
    own = lengths.tolist()
    # the first one loads code
    return median(one.duration_ns - length for one, length in list(zip(records, own, strict=True))[1:])


def _code(core: Any, arch: str, cache: Path | None) -> bytes:
    """The kernel for this architecture; compiling it takes 70 ms once."""
    kept = cache / f"clock-{arch}.cubin" if cache else None
    if kept is not None and kept.is_file():
        return kept.read_bytes()
    made: bytes = core.Program(_SOURCE, "c++", core.ProgramOptions(arch=f"sm_{arch}")).compile("cubin").code
    if kept is not None:
        with contextlib.suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            new = kept.with_suffix(".new")
            new.write_bytes(made)
            new.replace(kept)
    return made


class Stream:
    """torch's current stream, as cuda.core takes the streams of others."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(self._torch.cuda.current_stream().cuda_stream)
