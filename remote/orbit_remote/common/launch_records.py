"""What the launch recorder reports: launches, singly or all of one configuration in columns, and CUDA calls that
failed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import compress
from operator import add, sub
from typing import Final, Literal

from orbit_remote.common.lazy_dataclass import dataclass

CUPTI = "CUPTI activity records"

TICK_NS = 32
"""The GPU's clock ticks in steps of this many nanoseconds (Hopper); no launch takes less."""


@dataclass(frozen=True, slots=True)
class Added:
    """The time that recording adds to a launch, in nanoseconds: its median, and the length of the shortest kernel
    whose time it does not hide.
    """

    ns: float
    least_ns: float


def added(recorded_ns: Sequence[int], own_ns: Sequence[int]) -> Added:
    """Return what recording adds, from launches of a kernel that notes its own length: what was recorded, and what it
    noted. The first launch loads code and does not count. Raises IndexError without a second one.

    A tenth of the launches at either end may be somebody else's interruption. A kernel differs from nothing by as
    much as the others differ, and two steps of the clock, of its start and of its end.
    """
    more = sorted(map(sub, recorded_ns[1:], own_ns[1:]))
    tenth, at = len(more) // 10, len(more) // 2
    middle = more[at] if len(more) % 2 else (more[at - 1] + more[at]) / 2
    return Added(middle, more[-1 - tenth] - more[tenth] + 2 * TICK_NS)


def clock_label(kind: Literal["serial", "concurrent"], taken_off: Added | None) -> str:
    """Return what took a time. `taken_off` is what recording adds to a launch, None if it is not known."""
    if taken_off is None:
        return f"CUPTI {kind} records"
    return f"CUPTI {kind} records, less the {taken_off.ns / 1000:.2f} µs that recording adds here"


def busy_ns(launches: Iterable[LaunchRecord]) -> int:
    """Return the time in which at least one kernel ran, in nanoseconds. `launches` are in order of start."""
    total, until = 0, 0
    for launch in launches:
        total += max(0, launch.end_ns - max(launch.start_ns, until))
        until = max(until, launch.end_ns)
    return total


def _integers() -> array[int]:
    return array("q")


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """One launch.

    `symbol` is the mangled name. `registers` is per thread as allocated, the shared memory is per block in bytes,
    `local_per_thread` is in bytes. `clock` says what took the times. `least_ns` is the shortest kernel that it
    distinguishes from nothing.
    """

    symbol: str
    start_ns: int
    end_ns: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None = None
    registers: int | None = None
    static_shared: int | None = None
    dynamic_shared: int | None = None
    local_per_thread: int | None = None
    stream: int | None = None
    device: int = 0
    process: int | None = None
    clock: str = CUPTI
    least_ns: float | None = None

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def timed(self) -> bool:
        """Say whether a launch has times. CUPTI leaves both stamps 0 if it could not take them; a kernel takes some
        time.
        """
        return 0 < self.start_ns < self.end_ns


@dataclass(slots=True)
class LaunchSeries:
    """Launches of one kernel with one configuration, in order of start: a million of them are two arrays.

    `launch` has the configuration of all; its times mean nothing. `starts` and `durations` are in nanoseconds;
    `untimed` counts the launches that have neither. `serial`: the recording let no two kernels overlap.
    """

    launch: LaunchRecord
    starts: array[int] = field(default_factory=_integers)
    durations: array[int] = field(default_factory=_integers)
    untimed: int = 0
    serial: bool = False

    @property
    def count(self) -> int:
        return len(self.starts) + self.untimed

    def ends(self) -> Iterator[int]:
        return map(add, self.starts, self.durations)

    def records(self) -> Iterator[LaunchRecord]:
        """Yield each launch by itself, those without times last."""
        for start, end in zip(self.starts, self.ends(), strict=True):
            yield replace(self.launch, start_ns=start, end_ns=end)
        for _ in range(self.untimed):
            yield replace(self.launch, start_ns=0, end_ns=0)

    def where(self, keep: Callable[[int], bool]) -> LaunchSeries:
        """Return the launches whose start `keep` accepts, and those without times."""
        kept = [keep(start) for start in self.starts]
        if all(kept):
            return self
        starts, durations = (array("q", compress(values, kept)) for values in (self.starts, self.durations))
        return replace(self, starts=starts, durations=durations)


def series(records: Iterable[LaunchRecord]) -> list[LaunchSeries]:
    """Collect single launches in columns."""
    collected: dict[LaunchRecord, LaunchSeries] = {}
    for record in sorted(records, key=lambda r: r.start_ns):
        configuration = replace(record, start_ns=0, end_ns=0)
        launches = collected.setdefault(configuration, LaunchSeries(configuration))
        if record.timed:
            launches.starts.append(record.start_ns)
            launches.durations.append(record.duration_ns)
        else:
            launches.untimed += 1
    return list(collected.values())


def merge(same: Sequence[LaunchSeries]) -> LaunchSeries:
    """Merge several series of one configuration into one, in order of start."""
    if len(same) == 1:
        return same[0]
    clocks = dict.fromkeys(launches.launch.clock for launches in same)
    least = [launches.launch.least_ns for launches in same if launches.launch.least_ns is not None]
    pairs = sorted(
        pair for launches in same for pair in zip(launches.starts, launches.durations, strict=True)
    )
    return LaunchSeries(
        replace(same[0].launch, clock="; ".join(clocks), least_ns=max(least, default=None)),
        array("q", (start for start, _ in pairs)),
        array("q", (duration for _, duration in pairs)),
        sum(launches.untimed for launches in same),
    )


_FATAL = frozenset({214, 220, 700, 702, 710, *range(714, 720)})
"""ECC and NVLink errors, illegal address, time-out, assert, and all kinds of illegal instruction."""

_LOST = "`dmesg | grep -i xid` shows what the GPU reported; reset it or restart the machine"
_HELD = (
    "`nvidia-smi -q -d COMPUTE` shows whether it is in exclusive mode, in which one process at a time may use it; "
    "`orbit-lsp stop` ends orbit-lsp's own"
)
OF_THE_MACHINE: Final[Mapping[str, tuple[str, str]]] = {
    "CUDA_ERROR_DEVICE_UNAVAILABLE": ("the GPU is held by another process, or was lost", _HELD),
    "cudaErrorDevicesUnavailable": ("the GPU is held by another process, or was lost", _HELD),
    "CUDA_ERROR_ECC_UNCORRECTABLE": ("the GPU's memory had an error that it could not correct", _LOST),
    "CUDA_ERROR_NVLINK_UNCORRECTABLE": ("a connection between GPUs had an error that it could not correct", _LOST),
    "CUDA_ERROR_EXTERNAL_DEVICE": ("another device that the GPU waits for was lost", _LOST),
    "CUDA_ERROR_SYSTEM_NOT_READY": (
        "the machine's GPUs are not ready", "NVIDIA's fabric manager has to run on machines with NVSwitch",
    ),
}  # fmt: skip
"""CUDA's errors that no kernel causes, each in words, with what to do: a run that meets one says nothing of the program."""


@dataclass(frozen=True, slots=True)
class CudaError:
    """A CUDA call that failed. `last_kernel` is the one that was launched last, not surely the guilty one."""

    time_ns: int
    api: Literal["driver", "runtime"]
    function: str
    code: int
    name: str
    last_kernel: str | None
    process: int

    @property
    def fatal(self) -> bool:
        """Say whether the CUDA context was lost with it. Then what the process did afterwards means nothing."""
        return self.code in _FATAL
