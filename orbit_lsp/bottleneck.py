"""What holds a kernel back, in two words with its number, from what the GPU's counters said of one launch.

The rule and its thresholds are those of NVIDIA's own `SOLBottleneck` (Nsight Compute 2025.3,
`sections/SpeedOfLight.py`): from 80 % of a peak on the unit is saturated; under 60 % of both peaks the kernel waits,
for want of blocks where the grid fills less than one wave; between them the one that leads by 10 points counts, else
both do. What a waiting kernel waits for is its greatest warp state that is a stall: NVIDIA's `CPIStall`
(`sections/WarpStateStats.py`) divides the same way, by the cycles between two instructions of a warp. Pure.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from orbit_remote.contracts import Profile

SATURATED = 80.0
"""Per cent of a peak from which a unit is at its end (`no_bound_threshold`)."""
WAITING = 60.0
"""Per cent of both peaks below which latency holds the kernel back (`latency_bound_threshold`)."""
LEAD = 10.0
"""Points by which one of two has to lead (`balanced_threshold`)."""
WAVES = 1.0
"""Waves below which the grid does not fill the GPU (`waves_threshold`)."""

TIME = "gpu__time_duration.sum"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
WAVE = "launch__waves_per_multiprocessor"
LATENCY = "smsp__average_warp_latency_per_inst_issued.ratio"
LEVELS = {
    "memory": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "L2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "L1/shared": "l1tex__throughput.avg.pct_of_peak_sustained_active",
}
"""The levels of the memory system; DRAM is what authors call memory."""

_STALLED = ("smsp__average_warps_issue_stalled_", "_per_issue_active.ratio")
_SAMPLED = "smsp__pcsamp_warps_issue_stalled_"
_NO_STALL = ("selected", "not_selected")
"""States of a warp that could issue: they are no stalls."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`text` is for the kernel's line, `why` a sentence; `metrics` are the names of what it rests on."""

    kind: Literal["compute", "memory", "balanced", "latency", "small grid"]
    text: str
    why: str
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class State:
    """A warp state: its share (0 to 1) of the time between two instructions of a warp, and whose number it is.

    `cycles` are those per instruction; None where only samples tell.
    """

    name: str
    share: float
    metric: str
    cycles: float | None = None

    @property
    def is_stall(self) -> bool:
        return self.name.replace(" ", "_") not in _NO_STALL


def value(profile: Profile, name: str) -> float | None:
    metric = profile.metrics.get(name)
    return metric.value if metric else None


def verdict(profile: Profile) -> Verdict | None:
    """None where the counters that it takes are not there."""
    compute, memory = value(profile, COMPUTE), value(profile, MEMORY)
    if compute is None or memory is None:
        return None
    rests = (COMPUTE, MEMORY)
    both = f"compute is at {compute:.0f} % and memory at {memory:.0f} % of its peak"
    if max(compute, memory) < WAITING:
        return _waiting(profile, both, rests)
    if max(compute, memory) < SATURATED and abs(compute - memory) < LEAD:
        text = f"compute {compute:.0f}%, memory {memory:.0f}% of peak"
        return Verdict("balanced", text, f"{both}: both have to shrink", rests)
    if compute >= memory:
        return Verdict("compute", f"compute {compute:.0f}% of peak", f"{both}: compute leads", rests)
    level = memory_level(profile)
    metrics = (*rests, LEVELS[level]) if level in LEVELS else rests
    return Verdict("memory", f"{level} {memory:.0f}% of peak", f"{both}: memory leads", metrics)


def _waiting(profile: Profile, both: str, rests: tuple[str, ...]) -> Verdict:
    why = f"{both}, both below {WAITING:.0f} %"
    waves = value(profile, WAVE)
    if waves is not None and waves < WAVES:
        text = f"small grid: {waves:.2g} waves"
        return Verdict("small grid", text, f"{why}: the grid does not fill the GPU once", (*rests, WAVE))
    stalls = [state for state in states(profile) if state.is_stall]
    if not stalls:
        return Verdict("latency", f"latency: {both.replace(' %', '%')}", why, rests)
    first = stalls[0]
    text = f"latency: {first.name} {100 * first.share:.0f}%"
    waits = (
        f"{why}: of the time between two instructions a warp spends {100 * first.share:.0f} % in {first.name}"
    )
    return Verdict("latency", text, waits, (*rests, first.metric))


def memory_level(profile: Profile) -> str:
    """The level of the memory system that is nearest to its peak; `memory` where none is told."""
    told = {level: found for level, name in LEVELS.items() if (found := value(profile, name)) is not None}
    return max(told, key=lambda level: told[level], default="memory")


def states(profile: Profile) -> list[State]:
    """The warp states, the greatest first: by the counters, else by the samples of the report, else of its lines."""
    head, tail = _STALLED
    latency = value(profile, LATENCY)
    counted = {
        name.removeprefix(head).removesuffix(tail): metric
        for name, metric in profile.metrics.items()
        if name.startswith(head) and name.endswith(tail) and metric.value > 0
    }
    if counted and latency:
        found = [
            State(_spelled(reason), one.value / latency, one.name, one.value)
            for reason, one in counted.items()
        ]
        return sorted(found, key=lambda one: -one.share)
    sampled = {
        name.removeprefix(_SAMPLED): metric.value
        for name, metric in profile.metrics.items()
        if name.startswith(_SAMPLED) and not name.endswith("_not_issued") and metric.value > 0
    }
    source = f"{_SAMPLED}*"
    if not sampled:
        total: Counter[str] = Counter()
        for line in profile.lines:
            total.update(line.stalls)
        sampled, source = dict(total), "warp samples of the lines"
    whole = sum(sampled.values())
    if not whole:
        return []
    found = [
        State(
            _spelled(reason), amount / whole, f"{_SAMPLED}{reason}" if source.startswith(_SAMPLED) else source
        )
        for reason, amount in sampled.items()
        if amount
    ]
    return sorted(found, key=lambda one: -one.share)


def main_stall(stalls: dict[str, int]) -> tuple[str, int] | None:
    """(its name as it is read, its samples) of a line's greatest stall; None where its warps only issued."""
    waiting = {name: samples for name, samples in stalls.items() if name not in _NO_STALL and samples > 0}
    first = max(waiting, key=lambda name: waiting[name], default=None)
    return (_spelled(first), waiting[first]) if first else None


def _spelled(reason: str) -> str:
    return reason.replace("_", " ")
