"""The bottleneck of a kernel, in two words with its number, from the GPU's counters of one launch.

The rule and its thresholds are those of NVIDIA's own `SOLBottleneck` (Nsight Compute 2025.3,
`sections/SpeedOfLight.py`). From 80 % of a peak on, the unit is saturated. Under 60 % of both peaks the kernel waits;
if its grid fills less than one wave, it waits because it has too few blocks. Between them, the unit that leads by 10
points counts, else both. A waiting kernel waits for its greatest stall. NVIDIA's `CPIStall`
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
    """A bottleneck. `text` is for the kernel's line, `why` is a sentence. `metrics` are the names of the counters
    that it is derived from.
    """

    kind: Literal["compute", "memory", "balanced", "latency", "small grid"]
    text: str
    why: str
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class State:
    """A warp state, its share (0 to 1) of the time between two instructions of a warp, and which counter says so.

    `cycles` are the cycles per instruction; None if only samples are known.
    """

    name: str
    share: float
    metric: str
    cycles: float | None = None

    @property
    def is_stall(self) -> bool:
        return self.name.replace(" ", "_") not in _NO_STALL


def value(profile: Profile, name: str) -> float | None:
    """Return a counter by NVIDIA's name, in the unit of the report (nanoseconds, percent, bytes per second). Return
    None if it is absent.
    """
    metric = profile.metrics.get(name)
    return metric.value if metric else None


def verdict(profile: Profile) -> BottleneckVerdict | None:
    """Return the bottleneck, or None if a counter that it needs is missing."""
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
    """Return the counter of the unit that determines the throughput. If several agree, return the one that says most."""
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
    """Return a text such as `0.4 waves` or `62 waves`."""
    return (
        f"{waves:.1f} waves"
        if 0.05 <= waves < 9.95
        else f"{waves:.0f} waves"
        if waves >= 9.95
        else "<0.1 waves"
    )


def states(profile: Profile) -> list[State]:
    """Return the warp states, the greatest first. They come from the counters, else from the samples of the report,
    else from those of its lines.
    """
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
    """Return the warp state, such as `long scoreboard`, whose number of warps a counter gives. Return "" for any
    other counter.
    """
    head, tail = _STALLED
    if metric.startswith(head) and metric.endswith(tail):
        return _spelled(metric.removeprefix(head).removesuffix(tail))
    return ""


def main_stall(stalls: dict[str, int]) -> tuple[str, int] | None:
    """Return a line's greatest stall as (its readable name, its samples). Return None if the line's warps only
    issued.
    """
    waiting = {name: samples for name, samples in stalls.items() if name not in _NO_STALL and samples > 0}
    first = max(waiting, key=lambda name: waiting[name], default=None)
    return (_spelled(first), waiting[first]) if first else None


def share(line: Line, profile: Profile) -> float | None:
    """Return a line's share of all warp samples of the kernel, including samples without a line. Return None if there
    are none.
    """
    whole = profile.samples or sum(line.samples for line in profile.lines)
    return line.samples / whole if whole else None


def _spelled(reason: str) -> str:
    return reason.replace("_", " ")
