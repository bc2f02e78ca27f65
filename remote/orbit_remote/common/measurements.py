"""What is measured of a kernel: times, counters and clocks. `None` always means "not known", as in all `messages`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Literal

from orbit_remote.common.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Device time of several launches of one configuration, in nanoseconds.

    `low` and `high` are the 20 % and 80 % quantiles, `spread` is half their distance over the median, `deviation` the
    standard deviation of the launches; they are None if `n` is under five. `p95` is None under 20 launches and `p99`
    under 100, where they would be the longest launch. `label` says what kind of launches these were. `under`, in
    nanoseconds, is set if the median is shorter than what the recording can distinguish from nothing: the numbers are
    then its noise, and it is only known that the kernel takes less than this. `sm_clock_mhz` is the mean SM clock
    while such launches ran, by the multiprocessors' own counters.
    """

    n: int
    median: float
    label: str
    low: float | None = None
    high: float | None = None
    spread: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    first: float | None = None
    samples: tuple[int, ...] = ()
    clock: str = "CUPTI activity records"
    error: float | None = None
    stopped: Literal["", "precise", "cap"] = ""
    dropped: int = 0
    sm_clock_mhz: float | None = None
    mean: float | None = None
    deviation: float | None = None
    p95: float | None = None
    p99: float | None = None
    under: float | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """A configuration that autotuning tried: the language's own median in nanoseconds, None where it did not run."""

    configuration: str
    median: float | None = None
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Resident:
    """Theoretical occupancy of a launch: how many of its blocks, and warps, one multiprocessor holds at once.
    `fraction` is of the most warps that it can hold. `limited_by` is what keeps it from holding more; empty if it
    holds all.
    """

    fraction: float
    blocks: int
    warps: int
    limited_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgainstReference:
    """One version against another, their calls timed in turn with a cold L2 (`measure.compare`).

    `ratio` is this version's time over that of the one it is `against`; it lies from `low` to `high` at 99 %.
    """

    against: str
    verdict: Literal["faster", "slower", "inconclusive"]
    ratio: float
    low: float | None = None
    high: float | None = None
    pairs: int = 0


@dataclass(frozen=True, slots=True)
class SameCode:
    """Code that was measured against itself, as a control. `ratio` is the median of the pairs, None without any. `red`: it was
    found to differ from itself, so what measures is at fault (`sign_bets.same_code`).
    """

    pairs: int
    ratio: float | None
    red: bool


@dataclass(frozen=True, slots=True)
class Digests:
    """SHA-256 digests in hexadecimal.

    `candidate` and `reference` are of the texts in UTF-8, `files` of those beside the reference that its text names, `built` of
    libraries that were built from the candidate's text before it had the GPU; both by path, empty for files over 1 GiB. `code` is of the machine code of
    Triton's kernels, by name, as the candidate's process left it. `arguments`, `outputs` (the candidate's) and `expected` (the
    reference's) are of one comparison after the timed rounds. `seeds` are those from which it can be made again: of the
    `parameters`, of the `arguments`, and of the reference's `call`.
    """

    candidate: str
    reference: str
    files: dict[str, str] = field(default_factory=dict[str, str])
    built: dict[str, str] = field(default_factory=dict[str, str])
    code: dict[str, str] = field(default_factory=dict[str, str])
    seeds: dict[str, int] = field(default_factory=dict[str, int])
    arguments: str = ""
    outputs: str = ""
    expected: str = ""


@dataclass(frozen=True, slots=True)
class Metric:
    """A counter under NVIDIA's own name and in the unit that the report gives (`ns`, `%`, `byte/second`, ``)."""

    name: str
    value: float
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """What one of NVIDIA's rules found. `speedup` is its estimate in per cent, of the whole kernel (`global`) or of
    the part that it is about (`local`); None if the rule gives none.
    """

    rule: str
    section: str
    title: str
    message: str
    speedup: float | None = None
    scope: Literal["global", "local", ""] = ""


@dataclass(frozen=True, slots=True)
class Line:
    """What was counted for one line of the author's.

    `samples` are warp samples, `stalls` the same by reason (`long_scoreboard`; `selected` if the warp issued). Code
    that was inlined from elsewhere (headers, Triton's library) is charged to the author's line that called it;
    `inside` has that part's samples by the line in which they were taken (`standard.py:170`). `instructions` are warp
    instructions executed. Its global accesses moved `sectors` of 32 bytes between L1 and L2, where `ideal_sectors`
    would do. It made `wavefronts` passes over shared memory, where `ideal_wavefronts` would do. `local_sectors` are
    of local memory (spills, arrays). A number is None if the report does not say it.
    """

    file: str
    line: int
    samples: int = 0
    stalls: dict[str, int] = field(default_factory=dict[str, int])
    inside: dict[str, int] = field(default_factory=dict[str, int])
    instructions: int | None = None
    sectors: int | None = None
    ideal_sectors: int | None = None
    wavefronts: int | None = None
    ideal_wavefronts: int | None = None
    local_sectors: int | None = None


@dataclass(frozen=True, slots=True)
class TelemetrySeries:
    """NVML over time: what it said at each moment, in seconds from the first; None if it said nothing.

    `utilization` is the share of the time, in per cent, in which any kernel ran: NVML's own mean over its last
    period.
    """

    at_s: tuple[float, ...]
    sm_clock_mhz: tuple[float | None, ...] = ()
    power_w: tuple[float | None, ...] = ()
    utilization: tuple[float | None, ...] = ()


_BUSY = 0.9
_STEPS = 20
"""A launch's energy is stated where its kernel ran for this share of the time, and for this many steps of the counter."""


@dataclass(frozen=True, slots=True)
class Telemetry:
    """NVML while the kernels ran. Each triple is [lowest, median, highest] of the samples.

    `throttle_reasons` is None if the GPU does not report them, empty if it reported none. `utilization` is as in
    `TelemetrySeries`. `energy_j` is what the whole GPU used from the first sample to the last, by its own counter,
    which advances in steps of `energy_step_j`; None if it has none, or did not advance. `launch_energy_j` is [joules
    of a launch, how exact they are], if one kernel alone ran for nearly all of the time; else None. `busy` is the
    share of that time in which recorded kernels ran. `shared`: another process used the GPU meanwhile.
    """

    samples: int
    sm_clock_mhz: tuple[float, float, float] | None = None
    memory_clock_mhz: tuple[float, float, float] | None = None
    temperature_c: tuple[float, float, float] | None = None
    power_w: tuple[float, float, float] | None = None
    memory_used: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    default_sm_clock_mhz: int | None = None
    utilization: tuple[float, float, float] | None = None
    energy_j: float | None = None
    energy_step_j: float | None = None
    launch_energy_j: tuple[float, float] | None = None
    busy: float | None = None
    series: TelemetrySeries | None = None
    shared: bool = False

    def with_launches(self, counts: Sequence[int], busy: float) -> Telemetry:
        """Return the same for a run in which kernels ran for the share `busy` of the time. `counts` says how often
        each was launched.
        """
        alone = len(counts) == 1 and counts[0] > 0 and busy >= _BUSY
        energy, step = self.energy_j, self.energy_step_j
        told = (
            (energy / counts[0], step / counts[0])
            if alone and energy and step and energy >= _STEPS * step
            else None
        )
        return replace(self, busy=busy, launch_energy_j=told)
