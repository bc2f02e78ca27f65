"""Measures what recording adds to the time of a launch on this GPU, in a separate process: `__main__.py overhead
FOLDER DEVICE`.

A kernel of one thread waits 20 µs and notes how long it really was, by the GPU's own clock (`%globaltimer`,
nanoseconds). Its record is longer by what recording adds. On an H100 and an H200 (CUPTI 13.0) that is 2.1 to 2.6 µs
for serial records and 0.5 to 0.9 µs for concurrent ones, the same for every kernel (docs/measuring.md).

The driver is called through ctypes, because this must work without torch and cuda-core.
"""

from __future__ import annotations

import ctypes
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from orbit_remote.common.launch_records import Added, added
from orbit_remote.recording.injection import Overhead, RecorderUnavailableError
from orbit_remote.recording.recorder import Native

_LAUNCHES = 16
_LENGTH_NS = 20_000
_PTX = b"""
.version 6.4
.target sm_75
.address_size 64
.visible .entry orbit_clock(.param .u64 length, .param .u64 wanted) {
  .reg .u64 %rd<6>;
  .reg .pred %p;
  ld.param.u64 %rd1, [length];
  ld.param.u64 %rd2, [wanted];
  mov.u64 %rd3, %globaltimer;
again:
  mov.u64 %rd4, %globaltimer;
  sub.u64 %rd5, %rd4, %rd3;
  setp.lt.u64 %p, %rd5, %rd2;
  @%p bra again;
  st.global.u64 [%rd1], %rd5;
  ret;
}
"""


class _Driver:
    """libcuda with one kernel loaded on one GPU. Raises OSError if a call fails."""

    def __init__(self, device: int) -> None:
        self._cuda: Any = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        ordinal, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self._kernel, self._notes = ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuDeviceGet", ctypes.byref(ordinal), device)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ordinal)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), _PTX)
        self.call("cuModuleGetFunction", ctypes.byref(self._kernel), module, b"orbit_clock")
        self.call("cuMemAlloc_v2", ctypes.byref(self._notes), ctypes.c_size_t(8 * _LAUNCHES))

    def call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._cuda, name)(*arguments):
            raise OSError(f"{name} failed with CUDA error {code}")

    def lengths(self) -> list[int]:
        """Launch the kernel `_LAUNCHES` times, back to back. Return how long each launch took, in nanoseconds."""
        wanted = ctypes.c_uint64(_LENGTH_NS)
        for at in range(_LAUNCHES):
            place = ctypes.c_uint64(self._notes.value + 8 * at)
            pointers = (ctypes.addressof(place), ctypes.addressof(wanted))
            arguments = (ctypes.c_void_p * 2)(*pointers)
            self.call("cuLaunchKernel", self._kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
        self.call("cuCtxSynchronize")
        notes = (ctypes.c_uint64 * _LAUNCHES)()
        self.call("cuMemcpyDtoH_v2", notes, self._notes, ctypes.c_size_t(8 * _LAUNCHES))
        return list(notes)


def measure(cache: Path, folder: Path, device: int) -> Overhead:
    """Measure what recording adds. Raises RecorderUnavailableError or OSError if this GPU's launches cannot be
    recorded.
    """
    recorder = Native(cache, folder)  # before the context: CUPTI wants to be there when CUDA starts
    driver = _Driver(device)

    def by(kind: Literal["serial", "concurrent"]) -> Added | None:
        if not recorder.record(kind):
            return None
        recorder.fresh()
        lengths = driver.lengths()
        records = sorted((r for r in recorder.fresh() if r.timed), key=lambda r: r.start_ns)
        if len(records) != len(lengths):
            return None
        return added([record.duration_ns for record in records], lengths)

    return Overhead(by("serial"), by("concurrent"))


def main(arguments: list[str]) -> int:
    folder, device = Path(arguments[0]), int(arguments[1])
    try:
        overhead = measure(folder, folder / f"overhead-{os.getpid()}", device)
    except (RecorderUnavailableError, OSError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    print(json.dumps(asdict(overhead)), flush=True)
    return 0
