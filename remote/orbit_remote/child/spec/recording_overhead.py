"""Measures the time that recording adds to a launch, in the process that uses it.

A kernel of one thread waits and reports how long, by the GPU's own clock (`%globaltimer`, nanoseconds). Its record is
longer by what recording adds. On an H100 (driver 580, CUPTI 13.0) that is 2.5 to 3.1 µs for serial records, the same
for every kernel that was looked at (docs/dev/results/recording.md).
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from orbit_remote.child.spec import helper_kernels
from orbit_remote.child.spec.helper_kernels import Kernels
from orbit_remote.child.spec.launch_timing import Clock
from orbit_remote.common.launch_records import Added, added
from orbit_remote.recording.recorder import Native, Recorder

_LAUNCHES: Final = 15
_LENGTH_NS: Final = 20_000
_known: dict[int, Added] = {}
"""By torch's number of the GPU: a process that does several jobs measures it once."""


def clock(torch: Any, recorder: Recorder, kernels: Kernels | str) -> tuple[Clock, str]:
    """Return the clock of this process, and a remark if it is not the best one. It switches to serial records.

    `kernels` says why, if there are none.
    """
    if not isinstance(recorder, Native):
        return Clock(None), "launches cannot be recorded here, so times are those of CUDA events"
    if not recorder.record("serial"):
        return Clock(None), "CUPTI has no serial records here, so times are those of CUDA events"
    if isinstance(kernels, str):
        return Clock(recorder), f"times contain what recording adds, about 3 µs: {kernels}"
    device = int(torch.cuda.current_device())
    try:
        share = _known[device] = _known.get(device) or _added(torch, recorder, kernels)
    except Exception as error:  # noqa: BLE001 - whatever cuda.core raises: times are still times
        return Clock(recorder), f"times contain what recording adds, about 3 µs: {helper_kernels.why(error)}"
    return Clock(recorder, share), ""


def _added(torch: Any, recorder: Native, kernels: Kernels) -> Added:
    core, stream = kernels.core, kernels.stream
    kernel = kernels.get("orbit_clock")
    config = core.LaunchConfig(grid=1, block=1)
    lengths = torch.zeros(_LAUNCHES, dtype=torch.int64, device="cuda")
    recorder.fresh()
    for at in range(_LAUNCHES):
        place = int(lengths.data_ptr()) + 8 * at
        core.launch(stream, config, kernel, place, ctypes.c_uint64(_LENGTH_NS))
    torch.cuda.synchronize()
    records = [
        launch_record
        for launch_record in recorder.fresh()
        if launch_record.symbol == "orbit_clock" and launch_record.timed
    ]
    if len(records) != _LAUNCHES:
        raise RuntimeError("not every launch of the clock's own kernel was recorded")
    records.sort(key=lambda launch_record: launch_record.start_ns)
    return added([record.duration_ns for record in records], lengths.tolist())
