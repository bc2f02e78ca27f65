"""CUPTI's profiler in this process (cupti/profiler.cpp). A launch is repeated until every counter has been read, then
once more while warps are sampled.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from orbit_remote.common import codec
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.counters import click_metrics
from orbit_remote.recording import injection

_MOST_PASSES = 200
"""Passes beyond the plan's are a fault of CUPTI's."""
_MOST_KERNELS = 4
"""Kernels of one launch and what flushes the cache before it."""
LONGEST_S = 20.0
"""Seconds of the kernels alone, in all passes together, up to which a set of counters is read."""
PERIOD = 12
"""The exponent of two of the sampling period in cycles: a launch of 2 microseconds on all SMs has some 400 samples of them."""
_LONGEST_PERIOD = 31
LONG_S = 0.02
"""Longer launches are sampled less often: they would have millions of samples. To change the period takes 0.15 s."""
_STALLED = "smsp__pcsamp_warps_issue_stalled_"
_NOT_ISSUED = "_not_issued"


class UncountedError(Exception):
    """Launches cannot be counted in this process. The text is a clause that says why."""


@dataclass(frozen=True, slots=True)
class PassPlan:
    """A plan. `names` are the counters that the chip has, `passes` is how often a launch is made to read them all."""

    chip: str
    passes: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SampledInstruction:
    """An instruction at which warps were sampled: `offset` in bytes from the beginning of `function`, a mangled name.
    `stalls` has the samples by stall reason (`long_scoreboard`).
    """

    function: str
    offset: int
    stalls: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Sampled:
    """The warp samples of one launch, one in every `period` cycles of each scheduler. `totals` are by NVIDIA's name
    of the stall reason; those ending in `_not_issued` are a part of the others. `dropped` counts samples that were
    too many for CUPTI.
    """

    period: int
    places: tuple[SampledInstruction, ...] = ()
    totals: dict[str, int] = field(default_factory=dict[str, int])
    dropped: int = 0

    @property
    def samples(self) -> int:
        return sum(count for name, count in self.totals.items() if not name.endswith(_NOT_ISSUED))


@dataclass(frozen=True, slots=True)
class Counted:
    """One launch: the values of the counters by name, without those that could not be counted, and its warp samples."""

    values: dict[str, float]
    sampled: Sampled


def fewer(seconds: float, passes: int) -> str:
    """Return the remark on a launch for which not all counters were read."""
    many = f"{passes} passes" if passes > 1 else "1 pass"
    return f"a launch takes {seconds:.2g} s, so fewer counters were read, in {many}: a smaller launch has all of them"


def library(cache: Path, cupti: injection.Cupti) -> Path:
    """Return the compiled profiler for this CUPTI. Raises UncountedError where there can be none."""
    if not cupti.has_range_profiler:
        raise UncountedError(
            f"the CUPTI here ({cupti.release}) has no range profiler; that of CUDA 12.6 is the first"
        )
    try:
        return injection.build(cache, cupti, source=injection.PROFILER)
    except injection.RecorderUnavailableError as unavailable:
        raise UncountedError(unavailable.message) from None


class LaunchProfiler:
    """Counts launches. One thread at a time uses it; the CUDA context of the launches has to be current on that
    thread.
    """

    def __init__(self, path: Path) -> None:
        """Load the library. `path` is what `library` returned. Raises UncountedError."""
        try:
            loaded = ctypes.CDLL(str(path))
        except OSError as error:
            raise UncountedError(f"the profiler could not be loaded: {error}") from None
        for name in _FUNCTIONS:
            getattr(loaded, name).restype = ctypes.c_char_p
        self._library: Any = loaded
        self._exponent = PERIOD

    def plan(self, names: Sequence[str], chip: str = "") -> PassPlan:
        """Choose the counters to read, on the GPU of the current context, or on a `chip` (`GH100`) without a GPU."""
        made = self._json("orbit_plan", "\n".join(names).encode(), chip.encode())
        return PassPlan(made["chip"], made["passes"], tuple(made["names"]))

    def plan_for(self, seconds: float) -> tuple[PassPlan, bool]:
        """Plan a click's counters for launches that take `seconds` together. Return also whether the plan has all of
        them: if the passes would take too long, fewer are read.
        """
        plan = self.plan(click_metrics.CLICK)
        smaller = iter(click_metrics.SETS[1:])
        complete = True
        while plan.passes * seconds > LONGEST_S and (names := next(smaller, None)):
            plan, complete = self.plan(names), False
        return plan, complete

    def counted(
        self,
        plan: PassPlan,
        launches: Sequence[Callable[[], None]],
        restore: Callable[[], None],
        flush: Callable[[], None],
    ) -> list[dict[str, float]]:
        """Return the values of each launch. A launch is one kernel, and returns when it has ended on the GPU.
        `restore` is called before the first launch of a pass, `flush` before each launch.
        """
        self._call("orbit_count", len(launches) * _MOST_KERNELS)
        for _ in range(plan.passes + _MOST_PASSES):
            restore()
            self._call("orbit_pass_begin")
            for launch in launches:
                flush()
                launch()
            if self._json("orbit_pass_end"):
                break
        else:
            raise UncountedError(f"CUPTI asks for more passes than the {plan.passes} it planned")
        kernels = self._json("orbit_counted")
        each, rest = divmod(len(kernels), len(launches))
        if rest or not each:
            raise UncountedError(
                f"CUPTI counted {len(kernels)} kernels in {len(launches)} launch{'es' * (len(launches) != 1)}"
            )
        return [
            {
                name: float(value)
                for name, value in zip(plan.names, values, strict=True)
                if value is not None and math.isfinite(value)
            }
            for values in kernels[each - 1 :: each]  # those before it are the flush's
        ]

    def sample(self, seconds: float = 0.0) -> None:
        """Begin to sample warps, at a rate that suits launches of up to this many `seconds`."""
        self._exponent = period_exponent(seconds)
        self._call("orbit_sample", self._exponent)

    def sample_no_more(self) -> None:
        """Stop sampling. Further calls do nothing."""
        self._call("orbit_sampled")

    def sampled(
        self,
        launches: Sequence[Callable[[], None]],
        restore: Callable[[], None],
        flush: Callable[[], None],
        seconds: float,
    ) -> list[Sampled]:
        """Return the warp samples of each launch, after `sample`. The launches take up to this many `seconds`; the
        rest is as for `counted`.
        """
        if period_exponent(seconds) != self._exponent:
            self.sample_no_more()
            self.sample(seconds)
        restore()
        results: list[Sampled] = []
        for launch in launches:
            flush()
            self._call("orbit_samples")
            launch()
            results.append(sampled(self._json("orbit_samples"), 1 << self._exponent))
        return results

    def _json(self, function: str, *arguments: Any) -> Any:
        return codec.read_json(self._call(function, *arguments))

    def _call(self, function: str, *arguments: Any) -> bytes:
        text: bytes | None = getattr(self._library, function)(*arguments)
        if text is None:
            raise UncountedError(self._library.orbit_why().decode(errors="replace"))
        return text


_FUNCTIONS = (
    *("orbit_why", "orbit_plan", "orbit_count", "orbit_pass_begin", "orbit_pass_end", "orbit_counted"),
    *("orbit_sample", "orbit_samples", "orbit_sampled"),
)


def period_exponent(seconds: float) -> int:
    """Return the power of two whose cycles are a sampling period that suits a launch of this length."""
    longer = max(seconds, LONG_S) / LONG_S
    return min(PERIOD + math.ceil(math.log2(longer)), _LONGEST_PERIOD)


def sampled(made: dict[str, Any], period: int) -> Sampled:
    totals: dict[str, int] = {}
    places: list[SampledInstruction] = []
    for function, offset, reasons in made["places"]:
        for name, count in reasons.items():
            totals[name] = totals.get(name, 0) + count
        stalls = {
            name.removeprefix(_STALLED): count
            for name, count in reasons.items()
            if name.startswith(_STALLED) and not name.endswith(_NOT_ISSUED)
        }
        places.append(SampledInstruction(function, offset, stalls))
    return Sampled(period, tuple(places), totals, made["dropped"])
