"""Verdicts on versions of a kernel, over noise as it was measured: the tables of docs/dev/results/measurements*.md.

Those tables say how far apart several runs of the same code were (the range of 5 or 10 medians) and how far the
launches of one run. Here runs are drawn with the deviation that such a range has, the machine wanders as a GPU does
that warms up, and now and then a run is slow for reasons of its own.
"""

from __future__ import annotations

import itertools
import random
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbit_remote.common import measure
from orbit_remote.common.measurements import Timing

DOCS = Path(__file__).parents[2] / "docs"
RANGE = {5: 2.326, 10: 3.078}
"""The expected range of so many normal values, in deviations (Tippett; the d2 of control charts)."""


def measured() -> dict[str, float]:
    """Kernel -> deviation of its median from run to run, as a share."""
    programs = (DOCS / "dev" / "results" / "measurements.md").read_text().partition("## Repeatability")[2]
    specs = (
        (DOCS / "dev" / "results" / "measurements-specs.md")
        .read_text()
        .partition("## Launch specs against ncu")[2]
    )
    result = {
        name: float(apart) / 100 / RANGE[5]
        for name, apart in re.findall(r"^\| (\w+) \| [\d.]+ to .* \| ([\d.]+)% \|$", programs, re.MULTILINE)
    }
    rows = re.findall(
        r"^\| (\w+) \| [\d.]+ µs .* \| ([\d.]+)% \|$", specs.partition("Beyond")[0], re.MULTILINE
    )
    widest = {
        name: max(map(float, apart.split("%, ")))
        for name, apart in re.findall(r"^\| (\w+) \| ([\d.]+(?:%, [\d.]+)+)% \|$", specs, re.MULTILINE)
    }
    ranges = {name: float(apart) for name, apart in rows} | widest
    return result | {f"{name} (spec)": apart / 100 / RANGE[10] for name, apart in ranges.items()}


NOISE = measured()
ORDERED = sorted(NOISE, key=lambda name: NOISE[name])
WORST = ORDERED[-1]
SAMPLE = (ORDERED[0], ORDERED[len(ORDERED) // 2], WORST)
"""A kernel is nothing but its noise here: the least, the middle and the most are tried always."""
KERNELS = [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in NOISE]


def runs(rng: random.Random, deviation: float, *, wander: bool = True, slow: float = 0.02) -> Iterator[float]:
    """The state of the machine, run by run: what its times are multiplied with."""
    state = 0.0
    while True:
        state = 0.8 * state + rng.gauss(0, deviation / 2 if wander else 0)
        own = rng.gauss(0, deviation)
        stray = rng.uniform(0.01, 0.05) if rng.random() < slow else 0.0
        yield 1 + state + own + stray


def timing(rng: random.Random, middle: float, launches: int = 200, spread: float = 0.004) -> Timing:
    """One run: launch times with a floor and a tail, in the 32 ns steps of the clock."""
    times = [
        max(32, round(middle * (1 + spread * (rng.gammavariate(2, 0.5) - 0.84)) / 32) * 32)
        for _ in range(launches)
    ]
    return measure.timing(times, "cold L2")


def test_the_tables_are_read() -> None:
    assert len(NOISE) == 29
    assert WORST == "wmma_matmul (spec)"
    assert NOISE[WORST] == pytest.approx(0.0066, abs=0.0001)
    assert statistics.median(NOISE.values()) < 0.001


# -- in turn ----------------------------------------------------------------------------------------


def in_turn(rng: random.Random, deviation: float, ratio: float) -> measure.AbVerdict:
    """Two versions run in turn until there is a verdict."""
    machine = runs(rng, deviation)
    before: list[float] = []
    after: list[float] = []
    while True:
        before.append(timing(rng, 300_000 * next(machine), 40).median)
        after.append(timing(rng, 300_000 * ratio * next(machine), 40).median)
        if ab_verdict := measure.settled(before, after):
            return ab_verdict


@pytest.mark.parametrize("kernel", KERNELS)
def test_equal_versions_are_seldom_told_apart(kernel: str) -> None:
    rng = random.Random(f"equal {kernel}")
    ab_verdicts = [in_turn(rng, NOISE[kernel], 1.0) for _ in range(300)]
    assert sum(ab_verdict.verdict != "inconclusive" for ab_verdict in ab_verdicts) <= 0.05 * len(ab_verdicts)


@pytest.mark.parametrize("kernel", KERNELS)
def test_three_percent_are_found(kernel: str) -> None:
    rng = random.Random(f"3 % {kernel}")
    for ratio, verdict in ((1.03, "slower"), (0.97, "faster")):
        ab_verdicts = [in_turn(rng, NOISE[kernel], ratio) for _ in range(60)]
        assert sum(ab_verdict.verdict == verdict for ab_verdict in ab_verdicts) >= 0.9 * len(ab_verdicts)
        assert statistics.median(ab_verdict.ratio for ab_verdict in ab_verdicts) == pytest.approx(
            ratio, abs=0.004
        )


def test_the_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    rng = random.Random(7)
    ab_verdicts = [in_turn(rng, NOISE[WORST], 1.03) for _ in range(500)]
    held = sum(
        ab_verdict.low <= 1.03 <= ab_verdict.high
        for ab_verdict in ab_verdicts
        if ab_verdict.low and ab_verdict.high
    )
    assert held >= 0.95 * len(ab_verdicts) - 5


def test_of_all_ways_that_equal_pairs_can_fall_one_in_fifty_is_a_verdict() -> None:
    """Exactly, for any noise in which a pair falls either way alike."""
    verdicts = 0
    for signs in itertools.product((-1, 1), repeat=measure.PAIRS[-1]):
        after = [100_000 + 2_000 * sign for sign in signs]
        looks = [measure.settled([100_000] * n, after[:n]) for n in measure.PAIRS]
        ab_verdict = next(look for look in looks if look)
        verdicts += ab_verdict.verdict != "inconclusive"
    assert verdicts / 2 ** measure.PAIRS[-1] == pytest.approx(0.019, abs=0.0005)


def test_more_pairs_are_asked_for_only_where_they_may_tell() -> None:
    before = [100.0] * 7
    assert measure.settled(before[:6], [90.0] * 6) is None
    clear = measure.settled(before, [90.0, 91.0, 90.0, 92.0, 90.0, 90.0, 90.0])
    assert clear == measure.AbVerdict("faster", 0.90, 0.90, 0.92, 7)
    nothing = measure.settled(before, [99.5, 100.3, 100.2, 99.9, 100.0, 100.4, 100.1])
    assert nothing
    assert (nothing.verdict, nothing.pairs) == ("inconclusive", 7)
    assert measure.settled(before, [97.0, 97.0, 97.0, 97.0, 97.0, 97.0, 101.5]) is None
    stray = measure.settled([100.0] * 12, [97.0] * 6 + [101.5] + [97.0] * 5)
    assert stray
    assert (stray.verdict, stray.low, stray.high) == ("faster", 0.97, 0.97)
    two = measure.settled([100.0] * 12, [97.0] * 6 + [101.5, 102.0] + [97.0] * 4)
    assert two
    assert (two.verdict, two.pairs) == ("inconclusive", 12)


@pytest.mark.parametrize(("before", "after"), [([], []), ([1.0], [1.0, 2.0]), ([1.0, 0.0], [1.0, 1.0])])
def test_runs_that_do_not_pair_up_are_refused(before: list[float], after: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs|positive"):
        measure.settled(before, after)


# -- one after the other, as Live and the history have them -----------------------------------------


def after_each_other(rng: random.Random, deviation: float, *ratios: float) -> list[list[list[Timing]]]:
    """Versions of one run each."""
    machine = runs(rng, deviation, wander=False, slow=0)
    return [[[timing(rng, 300_000 * ratio * next(machine))]] for ratio in ratios]


@pytest.mark.parametrize("kernel", KERNELS)
def test_two_runs_of_the_same_code_seldom_differ(kernel: str) -> None:
    rng = random.Random(f"two runs {kernel}")
    pairs = [after_each_other(rng, NOISE[kernel], 1, 1) for _ in range(200)]
    differences = [measure.difference(first[0], second[0]) for first, second in pairs]
    assert sum(
        difference.verdict != "inconclusive" for difference in differences if difference
    ) <= 0.05 * len(differences)


def test_three_percent_between_two_runs_are_found_for_most_kernels() -> None:
    rng = random.Random(11)
    pairs = [after_each_other(rng, noise, 1, 1.03) for noise in NOISE.values() for _ in range(20)]
    differences = [measure.difference(first[0], second[0]) for first, second in pairs]
    assert sum(difference.verdict == "slower" for difference in differences if difference) >= 0.9 * len(
        differences
    )


@pytest.mark.parametrize(
    "kernel", [WORST, *(pytest.param(name, marks=pytest.mark.slow) for name in ("softmax (spec)", "fill"))]
)
def test_twenty_equal_versions_are_no_regression(kernel: str) -> None:
    rng = random.Random(f"regression {kernel}")
    regressions = [measure.regression(after_each_other(rng, NOISE[kernel], *[1.0] * 20)) for _ in range(150)]
    assert sum(regression is not None for regression in regressions) <= 0.05 * len(regressions)


def test_five_percent_are_a_regression() -> None:
    rng = random.Random(13)
    tries = [noise for noise in NOISE.values() for _ in range(8)]
    regressions = [measure.regression(after_each_other(rng, noise, 1.02, 1, 1.01, 1.05)) for noise in tries]
    assert sum(regression is not None for regression in regressions) >= 0.9 * len(regressions)


def version(*middles: int) -> list[list[Timing]]:
    """A version by the medians of its runs."""
    return [[measure.timing([middle - 40 + i for i in range(80)], "")] for middle in middles]


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ([version(100_000), version(112_000)], (0.12, 1)),
        ([version(100_000), version(130_000), version(105_000), version(112_000)], (0.12, 3)),
        ([version(150_000), version(100_000), version(112_000)], (0.12, 1)),
        ([version(100_000), version(102_000)], None),  # two runs may differ as much
        ([version(100_000, 111_000), version(112_000)], None),  # as the earlier one's own runs do
        ([version(100_000), version(112_000, 101_000)], None),  # or its own
        ([version(112_000), version(100_000)], None),
        ([version(100_000), [], version(112_000)], (0.12, 2)),  # one that was never timed
        ([version(100_000), []], None),
        ([version(100_000)], None),
        ([], None),
        ([version(100_000), *[version(112_000)] * 21], None),  # long ago
    ],
)
def test_a_regression_is_to_the_fastest_of_the_versions_before(versions, told) -> None:
    regression = measure.regression(versions)
    assert (regression and (round(regression.change, 3), regression.edits)) == told
