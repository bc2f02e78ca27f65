"""Every statistic of a time, and every verdict drawn from one.

Times are integer nanoseconds of device time. Nothing here assumes a normal distribution: launch times
have a floor, a long tail and a clock that ticks in steps (32 ns on Hopper), so places are medians
and quantiles, and uncertainties are order statistics.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice, repeat
from operator import gt, mul
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from orbit_remote.common.launch_records import CUPTI, LaunchRecord, LaunchSeries, merge
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Timing
from orbit_remote.common.messages import Launches, Resources

if TYPE_CHECKING:
    from random import Random

FLUSHED: Final = 3
"""Multiple of L2's size that is read to leave nothing else in it. Every clock uses the same: their times are compared."""

KNOWN: Final = 1 << 12
"""Numbers that a kernel of known length adds up, by which clocks are calibrated: few enough for one block, which needs no memory
set beforehand."""

KNOWN_CALLS: Final = 15
"""How often it is called for the median of its length."""

MIN_FOR_SPREAD = 5
"""With fewer launches than this no quantile, and so no spread, is stated."""

MIN_FOR_P95 = 20
MIN_FOR_P99 = 100
"""With fewer launches these percentiles would be the longest launch, or next to it."""

REPEATS: Final = 20
"""How often a test or a script runs that is to be repeated: the median of a kernel that it
launches once then lies, at 95 %, between the sixth smallest and the sixth largest time (binomial distribution)."""

MAX_SAMPLES = 1000
"""As many single times travel with a result; the statistics are of all of them."""

STOP_AT = 0.005
"""Relative error of the median at which measuring ends: nvbench's `--max-noise` default, 0.5 %."""

STOP_AFTER = 10
"""Never end with fewer launches than this: nvbench's `--min-samples` default."""

CLOCK_FLOOR = 0.75
"""A launch below this share of the default clock is throttled: nvbench's `--throttle-threshold`."""


# -- one configuration ------------------------------------------------------------------------------


def timing(
    durations_ns: Sequence[int],
    label: str,
    *,
    first: float | None = None,
    clock: str = CUPTI,
    least_ns: float | None = None,
) -> Timing:
    """Return the statistics of several launches of one configuration.

    Quantiles are interpolated between neighbours: the launches are all there were, not a sample of more. `least_ns`
    is the shortest time that the recording distinguishes from nothing, None if it is not known. Raises ValueError
    without a launch.
    """
    if not durations_ns:
        raise ValueError("there is no launch to take the time of")
    n, counts = len(durations_ns), Counter(durations_ns)  # clocks tick: a million launches have few times
    total = sum(map(mul, counts.keys(), counts.values()))
    ordered = list(chain.from_iterable(repeat(duration, counts[duration]) for duration in sorted(counts)))
    middle = median(ordered)
    low = high = spread = deviation = None
    if n >= MIN_FOR_SPREAD:
        low, high = _quantile(ordered, 20), _quantile(ordered, 80)
        spread = (high - low) / 2 / middle if middle > 0 else None
        # in integers, so that nothing is lost where the launches are long and differ little
        squares = sum(duration * duration * count for duration, count in counts.items())
        deviation = math.sqrt((n * squares - total * total) / (n * (n - 1)))
    return Timing(
        n=n,
        median=middle,
        label=label,
        low=low,
        high=high,
        spread=spread,
        minimum=ordered[0],
        maximum=ordered[-1],
        first=first,
        samples=_thinned(durations_ns),
        clock=clock,
        mean=total / n,
        deviation=deviation,
        p95=_quantile(ordered, 95) if n >= MIN_FOR_P95 else None,
        p99=_quantile(ordered, 99) if n >= MIN_FOR_P99 else None,
        under=least_ns if least_ns is not None and middle < least_ns else None,
    )


def _quantile(ordered: Sequence[int], percent: int) -> float:
    at, part = divmod(percent * (len(ordered) - 1), 100)
    return (ordered[at] * (100 - part) + ordered[at + (part > 0)] * part) / 100


def _thinned(values: Sequence[int]) -> tuple[int, ...]:
    """Return at most MAX_SAMPLES of the values, evenly spaced in time, with the first and the last among them."""
    if len(values) <= MAX_SAMPLES:
        return tuple(values)
    last = len(values) - 1
    return tuple(values[i * last // (MAX_SAMPLES - 1)] for i in range(MAX_SAMPLES))


# -- the launches of a program ----------------------------------------------------------------------


def group(
    series: Iterable[LaunchSeries], symbols: Mapping[str, Resources] | None = None
) -> tuple[Launches, ...]:
    """Return the launches of a program by kernel and launch configuration, in order of first launch.

    A configuration is grid, block, cluster, dynamic shared memory and registers (which distinguish instances that a
    JIT gave the same name), on one GPU. The first launch of each kernel on each GPU loads code and finds cold caches.
    Its time stands apart in `first` and is in no median unless the configuration has no other launch. `count` has
    every launch. A launch without time stamps is in no statistic, and a configuration without any is left out:
    `remarks` states both.

    `symbols` are the compiler's facts by mangled name; a kernel not in it keeps its mangled name.
    """
    configurations: dict[tuple[object, ...], list[LaunchSeries]] = {}
    firsts: dict[tuple[str, int], int] = {}
    for launches in series:
        launch = launches.launch
        configurations.setdefault(_configuration(launch), []).append(launches)
        if launches.starts:
            kernel = launch.symbol, launch.device
            firsts[kernel] = min(firsts.get(kernel, launches.starts[0]), launches.starts[0])
    merged = [merge(same) for same in configurations.values()]
    timed = sorted((launches for launches in merged if launches.starts), key=lambda m: m.starts[0])
    return tuple(_launches(launches, firsts, symbols or {}) for launches in timed)


def _configuration(record: LaunchRecord) -> tuple[object, ...]:
    shape = (record.grid, record.block, record.cluster, record.dynamic_shared, record.registers)
    return (record.symbol, record.device, *shape)


def _launches(
    series: LaunchSeries, firsts: Mapping[tuple[str, int], int], symbols: Mapping[str, Resources]
) -> Launches:
    launch = series.launch
    known = symbols.get(launch.symbol)
    durations = series.durations
    first = durations[0] if firsts[launch.symbol, launch.device] == series.starts[0] else None
    if first is not None and len(durations) > 1:
        durations = durations[1:]
    return Launches(
        symbol=launch.symbol,
        name=known.name if known else launch.symbol,
        grid=launch.grid,
        block=launch.block,
        timing=timing(
            durations,
            f"in program, n={len(durations)}",
            first=first,
            clock=launch.clock,
            least_ns=launch.least_ns,
        ),
        count=series.count,
        cluster=launch.cluster,
        registers=launch.registers,
        static_shared=launch.static_shared,
        dynamic_shared=launch.dynamic_shared,
        local_per_thread=launch.local_per_thread,
        constants=dict(known.constants) if known else {},
        place=known.place if known else None,
    )


def remarks(series: Iterable[LaunchSeries]) -> tuple[str, ...]:
    """Return what a reader of the grouped times must know besides, a sentence each."""
    lines: list[str] = []
    launches = list(series)
    if untimed := sum(launch.untimed for launch in launches):
        lines.append(f"{_launch_count(untimed)} without a time stamp, counted but not timed")
    if shared := _overlapping(launches):
        lines.append(f"{_launch_count(shared)} began while another kernel ran, and shared the GPU with it")
    if len(devices := sorted({launch.launch.device for launch in launches})) > 1:
        lines.append(f"launches on GPUs {', '.join(map(str, devices))}, each grouped by itself")
    return tuple(lines)


def _launch_count(n: int) -> str:
    return "1 launch" if n == 1 else f"{n} launches"


def _overlapping(series: Sequence[LaunchSeries]) -> int:
    """Count the launches that began while another of the same process ran on the same GPU.

    Starts and ends are sorted separately. When launch i+1 begins, i+1 launches have begun before it. Fewer than that
    have ended exactly if the end at place i comes later.
    """
    places: dict[tuple[int | None, int], list[LaunchSeries]] = {}
    for launches in series:
        if launches.serial:  # then none can: a million launches are not looked at
            continue
        places.setdefault((launches.launch.process, launches.launch.device), []).append(launches)
    overlapping = 0
    for same in places.values():
        starts = sorted(chain.from_iterable(launches.starts for launches in same))
        ends = sorted(chain.from_iterable(launches.ends() for launches in same))
        overlapping += sum(map(gt, ends, islice(starts, 1, None)))
    return overlapping


def at_low_clock(
    spans: Sequence[tuple[int, int]], clocks: Sequence[tuple[int, float]], default_mhz: float | None
) -> list[bool]:
    """Return which spans (start and end in ns) lay where the clock was below 75 % of its default.

    `clocks` are (time in ns on the spans' clock, SM clock in MHz) in order of time. A span is low if the last sample
    before it and the first after it are both low: one low sample may be the idle clock before the work. If the clock
    is not known a span is not low. The rule is nvbench's (`--throttle-threshold`).
    """
    if default_mhz is None or not clocks:
        return [False] * len(spans)
    floor = CLOCK_FLOOR * default_mhz
    times = [time for time, _ in clocks]
    low: list[bool] = []
    for begin, end in spans:
        before, after = bisect_right(times, begin) - 1, bisect_right(times, end)
        known = before >= 0 and after < len(clocks)
        low.append(known and max(clocks[before][1], clocks[after][1]) < floor)
    return low


# -- how sure, and when to stop ---------------------------------------------------------------------


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return an interval that holds the true median with at least this confidence. Return None for too few values.

    It lies between order statistics, by the binomial distribution of how many values lie below the median (the sign
    test turned round). It is exact for any continuous distribution, and safe with ties. Conover, Practical
    Nonparametric Statistics, section 3.2.
    """
    n = len(values)
    rank = _median_rank(n, confidence)
    if rank == 0:
        return None
    ordered = sorted(values)
    return ordered[rank - 1], ordered[n - rank]


def _median_rank(n: int, confidence: float) -> int:
    """Return the largest k for which P(Binomial(n, 1/2) < k) is at most half of what may be missed."""
    if n > 1000:  # the normal approximation is then within one rank
        from statistics import NormalDist

        z = NormalDist().inv_cdf((1 + confidence) / 2)
        return math.floor((n - z * math.sqrt(n)) / 2)
    allowed = (1 - confidence) / 2 * 2**n
    rank, ways, below = 0, 1, 0
    while below + ways <= allowed:
        below += ways
        ways = ways * (n - rank) // (rank + 1)
        rank += 1
    return rank


def relative_error(durations_ns: Sequence[int], confidence: float = 0.95) -> float | None:
    """Return half the interval of the median over the median, or None if it is not known."""
    interval = median_interval(durations_ns, confidence)
    middle = median(durations_ns) if durations_ns else 0
    return (interval[1] - interval[0]) / 2 / middle if interval and middle > 0 else None


@dataclass(frozen=True, slots=True)
class Stop:
    """Why measuring ended. `relative_error` is that of the median, None if it is not known."""

    reason: Literal["precise", "cap"]
    n: int
    relative_error: float | None


def stop(durations_ns: Sequence[int], *, at_cap: bool, target: float = STOP_AT) -> Stop | None:
    """Return why these launches are enough, or None to go on.

    Enough is a median known to `target` at 95 % confidence, or the caller's cap of launches or time. Asking after
    every launch would stop on a lucky streak more often than 1 time in 20. So ask after each batch, of a size that
    grows with what there is.
    """
    error = relative_error(durations_ns)
    n = len(durations_ns)
    if n >= STOP_AFTER and error is not None and error <= target:
        return Stop("precise", n, error)
    return Stop("cap", n, error) if at_cap else None


def next_batch(n: int) -> int:
    """Return how many launches to add to `n` that were not enough: half as many, so that asking seldom finds a lucky
    streak.

    In simulations (normal and log-normal noise of 1 to 5 %, 1,500 each) the final interval of the median missed the
    truth in 6 % of cases. Doubling missed in 5 %, and made a fifth more launches.
    """
    return max(1, n // 2)


# -- which of two is faster -------------------------------------------------------------------------

Variant = TypeVar("Variant")


def in_drawn_order(variants: Sequence[Variant], coin: Random) -> list[Variant]:
    """Return the variants of one pair in the order in which they run. `coin` draws it for each pair anew.

    The second place of a pair may be slower or faster than the first, by clocks, heat or caches. In a fixed order
    that always hits the same variant, and becomes a verdict. In a drawn order it is noise (bench/order_of_pairs.py).
    """
    order = list(variants)
    coin.shuffle(order)
    return order


@dataclass(frozen=True, slots=True)
class AbVerdict:
    """A verdict. `ratio` is the time after over the time before; `low` and `high` bound it, at 99 % for `compare` and
    at 95 % for `settled`. `pairs` are of launches or of runs.
    """

    verdict: Literal["faster", "slower", "inconclusive"]
    ratio: float
    low: float | None
    high: float | None
    pairs: int


def compare(
    before_ns: Sequence[int],
    after_ns: Sequence[int],
    *,
    resolution: float = STOP_AT,
    confidence: float = 0.99,
) -> AbVerdict:
    """Return the verdict on two versions timed in turn, each pair in an order of its own (`in_drawn_order`).

    Each pair gives a ratio, in which what drifts slowly (clock, temperature, neighbours) cancels. The verdict is on
    the median ratio and its order-statistic interval. That is the sign test. It only asks that pairs be independent,
    so tails, steps of the clock and outliers cannot fool it. A t test, or Mann-Whitney on the pooled times (hurt by
    drift), does not promise that. Its price is some power, which costs a few more pairs. A difference must also
    exceed `resolution`: below it, code alignment and buffer addresses differ as much. Fewer than 8 pairs are always
    inconclusive at 99 %.

    Raises ValueError if the two do not pair up, or a time is not positive.
    """
    if len(before_ns) != len(after_ns) or not before_ns:
        raise ValueError("two versions are compared in pairs of launches made in turn")
    if min(*before_ns, *after_ns) <= 0:
        raise ValueError("a time is positive")
    ratios = [after / before for before, after in zip(before_ns, after_ns, strict=True)]
    ratio = median(ratios)
    interval = median_interval(ratios, confidence)
    low, high = interval or (None, None)
    verdict: Literal["faster", "slower", "inconclusive"] = "inconclusive"
    if high is not None and high < 1 and ratio <= 1 - resolution:
        verdict = "faster"
    elif low is not None and low > 1 and ratio >= 1 + resolution:
        verdict = "slower"
    return AbVerdict(verdict, ratio, low, high, len(ratios))


PAIRS = (7, 12)
"""After how many pairs of runs two versions are judged that take turns, a run each."""

_BOUNDS = {7: 0, 12: 1}
"""How many of the pairs may lie beyond each end of the interval. With the chance of a pair to go either way if the
versions are equal, all of 7 agree once in 64 times and, where they did not, 11 of 12 once in 293: 1.9 % together.
"""

_NO_MATTER = 0.01
"""If all of the first pairs are within this, more pairs would show nothing that matters to an author."""


def settled(before_ns: Sequence[float], after_ns: Sequence[float]) -> AbVerdict | None:
    """Return the verdict on two versions that are run in turn, each pair in an order of its own (`in_drawn_order`),
    from a time for each run, such as its median. Return None to go on with another pair; never None once there are
    `PAIRS[-1]`.

    Some effects do not show among the launches of one run (clocks, temperature, where buffers lie) but differ from
    run to run. So runs are counted, not their launches: thousands of launches in two runs are two. The interval has
    95 % whichever look it comes from. As in `compare`, pairs cancel what drifts, the verdict is the sign test's, and
    a difference must exceed `STOP_AT`. Raises ValueError if the two do not pair up, or a time is not positive.
    """
    n = len(before_ns)
    if n != len(after_ns) or not n:
        raise ValueError("two versions are compared in pairs of runs made in turn")
    if min(*before_ns, *after_ns) <= 0:
        raise ValueError("a time is positive")
    beyond = _BOUNDS.get(n)
    if beyond is None:
        return None
    ratios = sorted(after / before for before, after in zip(before_ns, after_ns, strict=True))
    ratio, low, high = median(ratios), ratios[beyond], ratios[-1 - beyond]
    verdict: Literal["faster", "slower", "inconclusive"] = "inconclusive"
    if high < 1 and ratio <= 1 - STOP_AT:
        verdict = "faster"
    elif low > 1 and ratio >= 1 + STOP_AT:
        verdict = "slower"
    elif n < PAIRS[-1] and max(high - 1, 1 - low) > _NO_MATTER:
        return None
    return AbVerdict(verdict, ratio, low, high, n)


def pooled(runs: Sequence[Sequence[Timing]]) -> Timing | None:
    """Return all launches of several runs as one timing. A run with several launches counts by their sums, if each
    has as many samples as the others. Return None if there are no samples.
    """
    rounds = [list(zip(*(series.samples for series in run), strict=False)) for run in runs]
    samples = [sum(samples_of_run) for each in rounds for samples_of_run in each]
    if not samples:
        return None
    label = runs[0][0].label.partition(",")[0]
    return timing(samples, f"{label}, {len(runs)} runs", clock=runs[0][0].clock)


RUN_TO_RUN = 0.022
"""Two runs of the same code may differ by this much, which the samples of one run do not show: clocks,
temperature and buffer addresses differ. Ten runs on an H100 were up to 2.03 % apart for the worst of 16
kernels (docs/dev/results/measurements-specs.md), and once 2.27 % when less was measured in each. The first is a
deviation of 0.66 % from run to run: two of them differ by more than this in 2 % of cases. Of eleven kernels
ten runs were within 0.5 %."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference. `change` is the time after over the time before, less 1: -0.07 is 7 % less time."""

    verdict: Literal["faster", "slower", "inconclusive"]
    change: float


def difference(before: Sequence[Timing], after: Sequence[Timing]) -> Difference | None:
    """Return the verdict on two versions that were timed one after the other, each in a run of its own.

    Each version is the sum of its launches. They differ if the 99 % intervals of the two sums are apart and the
    change is more than `RUN_TO_RUN`. (Bounds of a sum are the sums of bounds, which is on the safe side.) It is
    weaker than `compare`, which cancels drift by taking turns. Return None if there is no time.
    """
    first, second = _total(before), _total(after)
    if first is None or second is None or first[1] <= 0:
        return None
    change = second[1] / first[1] - 1
    if change < -RUN_TO_RUN and second[2] < first[0]:
        return Difference("faster", change)
    if change > RUN_TO_RUN and second[0] > first[2]:
        return Difference("slower", change)
    return Difference("inconclusive", change)


def _total(timings: Sequence[Timing]) -> tuple[float, float, float] | None:
    """Return (low, median, high) of the sum. It is from 0 to infinity if one has too few samples."""
    if not timings:
        return None
    middle = sum(series.median for series in timings)
    bounds = [
        (0.0, series.under)
        if series.under is not None
        else median_interval(series.samples, 0.99) or (0.0, math.inf)
        for series in timings
    ]
    return sum(low for low, _ in bounds), middle, sum(high for _, high in bounds)


# -- over the versions of a kernel ------------------------------------------------------------------

REGRESSION = 0.03
"""A version is called slower than the fastest of those before it from this much on. More than `RUN_TO_RUN`,
because the fastest of many is in part the luckiest: of twenty equal versions of the kernel whose runs differ
most, the last would be called slower in 2 % of cases (simulated in the tests)."""

MOST_VERSIONS = 20
"""As far back is looked for the fastest."""


@dataclass(frozen=True, slots=True)
class Regression:
    """A regression. `change` is the time now over that of the fastest version, less 1. That version was `edits`
    versions ago.
    """

    change: float
    edits: int


def regression(versions: Sequence[Sequence[Sequence[Timing]]]) -> Regression | None:
    """Return how much the last of `versions`, oldest first, is slower than one before it. Return None if it is not,
    or nobody can tell.

    A version is its runs and a run is its launches' timings, all on one GPU with the same values. These runs were not
    made in turn, so in doubt the present version is not slower. Its quickest run must be slower than the slowest of
    the other's, by `REGRESSION`, with their 99 % intervals apart.
    """
    recent = [[run for run in runs if _sum(run)] for runs in versions[-1 - MOST_VERSIONS :]]
    *earlier, now = [*recent] or [[]]
    known = [(at, max(runs, key=_sum)) for at, runs in enumerate(earlier) if runs]
    if not known or not now:
        return None
    at, slowest = min(known, key=lambda numbered: _sum(numbered[1]))
    change = difference(slowest, min(now, key=_sum))
    if change is None or change.verdict != "slower" or change.change < REGRESSION:
        return None
    middles = [median(map(_sum, runs)) for runs in (earlier[at], now)]
    return Regression(middles[1] / middles[0] - 1, len(earlier) - at)


def _sum(run: Sequence[Timing]) -> float:
    return sum(series.median for series in run)


def median(values: Iterable[float]) -> float:
    """Return the median. Raises IndexError without a value. The standard library's needs decimals and fractions, an
    import of 60 ms.
    """
    ordered = sorted(values)
    at = len(ordered) // 2
    return ordered[at] if len(ordered) % 2 else (ordered[at - 1] + ordered[at]) / 2
