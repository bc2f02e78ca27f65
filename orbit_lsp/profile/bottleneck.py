"""The bottleneck of a kernel, in two words with its number, from the GPU's counters of one launch.

The rule and its thresholds are those of NVIDIA's own `SOLBottleneck` (Nsight Compute 2025.3,
`sections/SpeedOfLight.py`): from 80 % of a peak on the unit is saturated; under 60 % of both peaks the kernel waits,
for want of blocks where the grid fills less than one wave; between them the one that leads by 10 points counts, else
both do. What a waiting kernel waits for is its greatest warp state that is a stall: NVIDIA's `CPIStall`
(`sections/WarpStateStats.py`) divides the same way, by the cycles between two instructions of a warp. Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Literal

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Line
from orbit_remote.common.messages import Profile

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
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"

_PART = re.compile(r"(?P<unit>dram|fbpa|l1tex|lts|ltc|sm|idc)__\w+\.avg\.pct_of_peak_sustained_elapsed")
_LEVELS = {"dram": "memory", "fbpa": "memory", "l1tex": "L1/shared", "lts": "L2", "ltc": "L2"}
"""The levels of the memory system by the units that counters are named after; DRAM is what authors call memory."""
_SAME = 0.01
"""Points: a throughput is that of its busiest part, whose own counter says the same."""

_STALLED = ("smsp__average_warps_issue_stalled_", "_per_issue_active.ratio")
_SAMPLED = "smsp__pcsamp_warps_issue_stalled_"
_NO_STALL = ("selected", "not_selected")
"""States of a warp that could issue: they are no stalls."""


@dataclass(frozen=True, slots=True)
class BottleneckVerdict:
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
    """A counter by NVIDIA's name, in the unit of the report (nanoseconds, percent, bytes per second); None if it is
    absent.
    """
    metric = profile.metrics.get(name)
    return metric.value if metric else None


def verdict(profile: Profile) -> BottleneckVerdict | None:
    """None where the counters that it takes are not there."""
    compute, memory = value(profile, COMPUTE), value(profile, MEMORY)
    if compute is None or memory is None:
        return None
    rests = (COMPUTE, MEMORY)
    both = f"compute at {compute:.0f} %, memory at {memory:.0f} % of their peaks"
    if max(compute, memory) < WAITING:
        return _waiting(profile, both, rests)
    if max(compute, memory) < SATURATED and abs(compute - memory) < LEAD:
        text = f"compute {compute:.0f}%, memory {memory:.0f}% of peak"
        return BottleneckVerdict("balanced", text, f"{both}: to be faster it has to do less of both", rests)
    if compute >= memory:
        part = _part(profile, compute, ("sm", "idc"))
        what = "tensor cores" if part and "tensor" in part else "compute"
        text, leads, percent = f"{what} {compute:.0f}% of peak", "compute leads", part
    else:
        percent = DRAM if value(profile, DRAM) == memory else _part(profile, memory, tuple(_LEVELS))
        level = "memory" if percent in (None, DRAM) else _LEVELS[percent.partition("__")[0]]
        text, leads = f"{level} {memory:.0f}% of peak", "memory leads"
    busiest = f"; its busiest part is counted by {percent}" if percent else ""
    kind = "compute" if compute >= memory else "memory"
    return BottleneckVerdict(kind, text, f"{both}: {leads}{busiest}", (*rests, percent) if percent else rests)


def _part(profile: Profile, throughput: float, units: tuple[str, ...]) -> str | None:
    """The counter whose unit makes the throughput what it is; the most telling name of several that agree."""
    agreeing = [
        name
        for name, metric in profile.metrics.items()
        if abs(metric.value - throughput) < _SAME
        and (match := _PART.fullmatch(name))
        and match["unit"] in units
        and "__throughput" not in name
    ]
    return max(agreeing, key=lambda name: ("tensor" in name, "pipe" in name, -len(name), name), default=None)


def _waiting(profile: Profile, both: str, rests: tuple[str, ...]) -> BottleneckVerdict:
    why = f"{both}, both below {WAITING:.0f} %"
    waves = value(profile, WAVE)
    if waves is not None and waves < WAVES:
        text = f"small grid: {waves_text(waves)}"
        return BottleneckVerdict(
            "small grid", text, f"{why}: the grid does not fill the GPU once", (*rests, WAVE)
        )
    stalls = [state for state in states(profile) if state.is_stall]
    if not stalls:
        return BottleneckVerdict("latency", f"latency: {both.replace(' %', '%')}", why, rests)
    first = stalls[0]
    text = f"latency: {first.name} {100 * first.share:.0f}%"
    waits = (
        f"{why}: of the time between two instructions a warp spends {100 * first.share:.0f} % in {first.name}"
    )
    return BottleneckVerdict("latency", text, waits, (*rests, first.metric))


def waves_text(waves: float) -> str:
    """`0.4 waves`, `62 waves`."""
    return (
        f"{waves:.1f} waves"
        if 0.05 <= waves < 9.95
        else f"{waves:.0f} waves"
        if waves >= 9.95
        else "<0.1 waves"
    )


def states(profile: Profile) -> list[State]:
    """The warp states, the greatest first: by the counters, else by the samples of the report, else of its lines."""
    latency = value(profile, LATENCY)
    counted = {
        state: metric
        for name, metric in profile.metrics.items()
        if (state := warp_state(name)) and metric.value > 0
    }
    if counted and latency:
        warp_states = [
            State(state, metric.value / latency, metric.name, metric.value)
            for state, metric in counted.items()
        ]
        return sorted(warp_states, key=lambda state: -state.share)
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
    warp_states = [
        State(
            _spelled(reason), amount / whole, f"{_SAMPLED}{reason}" if source.startswith(_SAMPLED) else source
        )
        for reason, amount in sampled.items()
        if amount
    ]
    return sorted(warp_states, key=lambda state: -state.share)


def warp_state(metric: str) -> str:
    """`long scoreboard` of the counter that says how many warps are in it; empty for any other counter."""
    head, tail = _STALLED
    if metric.startswith(head) and metric.endswith(tail):
        return _spelled(metric.removeprefix(head).removesuffix(tail))
    return ""


def main_stall(stalls: dict[str, int]) -> tuple[str, int] | None:
    """(its name as it is read, its samples) of a line's greatest stall; None where its warps only issued."""
    waiting = {name: samples for name, samples in stalls.items() if name not in _NO_STALL and samples > 0}
    first = max(waiting, key=lambda name: waiting[name], default=None)
    return (_spelled(first), waiting[first]) if first else None


def share(line: Line, profile: Profile) -> float | None:
    """Of all warp samples of the kernel, those without a line too; None where none were taken."""
    whole = profile.samples or sum(line.samples for line in profile.lines)
    return line.samples / whole if whole else None


def _spelled(reason: str) -> str:
    return reason.replace("_", " ")
