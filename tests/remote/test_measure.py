"""Statistics and verdicts, on hand-made numbers and on simulated noise of a known kind."""

from __future__ import annotations

import math
import random
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit_remote.common import measure
from orbit_remote.common.launch_records import Added, LaunchRecord, added, series
from orbit_remote.common.messages import Place, Resources

durations = st.lists(st.integers(1, 10**9), min_size=1, max_size=60)


def launch(start: int, took: int, symbol: str = "_Z5saxpyif", **fields) -> LaunchRecord:
    shape = {"grid": (1024, 1, 1), "block": (256, 1, 1), "registers": 16, "dynamic_shared": 0}
    return LaunchRecord(symbol=symbol, start_ns=start, end_ns=start + took, **(shape | fields))


def group(records, symbols=None):
    return measure.group(series(records), symbols)


def remarks(records):
    return measure.remarks(series(records))


def launches(times: list[int], *, start: int = 1000, **fields) -> list[LaunchRecord]:
    results = []
    for took in times:
        results.append(launch(start, took, **fields))
        start += took + 100
    return results


# -- timing -----------------------------------------------------------------------------------------


def test_timing_states_median_quantiles_and_spread() -> None:
    timing = measure.timing([100, 110, 120, 130, 140, 150], "warm", first=500)
    assert (timing.n, timing.median, timing.minimum, timing.maximum) == (6, 125, 100, 150)
    assert (timing.low, timing.high) == (110, 140)
    assert timing.spread == pytest.approx(15 / 125)
    assert (timing.first, timing.label) == (500, "warm")
    assert timing.samples == (100, 110, 120, 130, 140, 150)


@pytest.mark.parametrize(
    ("launches", "mean", "deviation", "p95", "p99"),
    [
        ([100, 130], 115, None, None, None),
        ([100, 110, 120, 130, 140], 120, 15.8, None, None),
        ([100] * 19 + [300], 110, 44.7, 110, None),
        (list(range(101)), 50, 29.3, 95, 99),
        ([10**9, 10**9 + 1] * 50, 10**9 + 0.5, 0.5, 10**9 + 1, 10**9 + 1),
    ],
)
def test_mean_deviation_and_late_percentiles(launches, mean, deviation, p95, p99) -> None:
    timing = measure.timing(launches, "warm")
    assert (timing.mean, timing.p95, timing.p99) == (mean, p95, p99)
    assert timing.deviation == (deviation and pytest.approx(deviation, rel=0.01))


@pytest.mark.parametrize(
    ("launches", "least_ns", "under"),
    [([32, 32, 500], 200, 200), ([200, 200, 200], 200, None), ([32, 32, 32], None, None)],
)
def test_a_median_that_the_recording_cannot_tell_from_nothing_is_marked(launches, least_ns, under) -> None:
    timing = measure.timing(launches, "warm", least_ns=least_ns)
    assert (timing.median, timing.under) == (sorted(launches)[1], under)


@pytest.mark.parametrize(
    ("own", "recorded", "ns", "least"),
    [
        ([20_000] * 16, [90_000] + [22_050] * 15, 2050, 64),
        ([20_000] * 16, [90_000] + [22_000 + 10 * at for at in range(15)], 2070, 184),
        ([20_000] * 16, [90_000, 70_000] + [22_050] * 14, 2050, 64),
    ],
    ids=["always the same", "by 140 ns", "one was interrupted"],
)
def test_what_recording_adds_and_the_shortest_kernel_it_does_not_hide(own, recorded, ns, least) -> None:
    assert added(recorded, own) == Added(ns, least)


def test_under_five_launches_no_spread_is_stated() -> None:
    timing = measure.timing([100, 110, 120, 130], "warm")
    assert (timing.low, timing.high, timing.spread, timing.deviation) == (None, None, None, None)
    assert timing.median == 115


def test_nothing_has_no_time() -> None:
    with pytest.raises(ValueError, match="no launch"):
        measure.timing([], "warm")


@given(durations)
def test_the_places_of_a_timing_are_in_order(values) -> None:
    timing = measure.timing(values, "any")
    assert timing.minimum == min(values)
    assert timing.maximum == max(values)
    inner = (
        (timing.median,)
        if timing.low is None or timing.high is None
        else (timing.low, timing.median, timing.high)
    )
    places = (timing.minimum, *inner, timing.maximum)
    assert all(a <= b or math.isclose(a, b) for a, b in pairwise(places))
    assert (timing.spread is None) == (len(values) < 5)


def test_many_samples_are_thinned_evenly_and_still_counted() -> None:
    values = list(range(1, 100_001))
    timing = measure.timing(values, "warm")
    assert timing.n == 100_000
    assert timing.median == 50_000.5
    assert len(timing.samples) == 1000
    assert (timing.samples[0], timing.samples[-1]) == (1, 100_000)
    steps = {b - a for a, b in pairwise(timing.samples)}
    assert max(steps) - min(steps) <= 1


# -- grouping ---------------------------------------------------------------------------------------


def test_the_first_launch_of_a_kernel_stands_apart() -> None:
    (result,) = group(launches([900, 100, 102, 104]))
    assert result.timing.first == 900
    assert (result.timing.n, result.timing.median, result.count) == (3, 102, 4)
    assert result.timing.label == "in program, n=3"


def test_a_single_launch_is_its_own_time_and_known_to_be_the_first() -> None:
    (result,) = group(launches([900]))
    assert (result.timing.n, result.timing.median, result.timing.first, result.count) == (1, 900, 900, 1)


def test_only_the_first_configuration_of_a_kernel_holds_its_first_launch() -> None:
    small, large = launches([900, 100]), launches([200, 210], start=10_000, grid=(9, 1, 1))
    a, b = group(large + small)
    assert (a.grid, a.timing.first, a.timing.n) == ((1024, 1, 1), 900, 1)
    assert (b.grid, b.timing.first, b.timing.n) == ((9, 1, 1), None, 2)


@pytest.mark.parametrize(
    "difference",
    [
        {"grid": (2, 1, 1)},
        {"block": (128, 1, 1)},
        {"cluster": (2, 1, 1)},
        {"dynamic_shared": 1024},
        {"registers": 40},
        {"symbol": "_Z4otherv"},
        {"device": 1},
    ],
)
def test_different_configurations_are_not_mixed(difference) -> None:
    launcheses = group([launch(1000, 10), launch(2000, 20, **difference)])
    assert [g.timing.median for g in launcheses] == [10, 20]


def test_streams_and_processes_are_one_configuration() -> None:
    records = [launch(1000, 10, stream=7), launch(2000, 20, stream=9), launch(3000, 30, process=5)]
    (result,) = group(records)
    assert (result.count, result.timing.n) == (3, 2)


def test_the_compilers_facts_are_joined_by_mangled_name() -> None:
    facts = Resources(
        symbol="_Z5saxpyif",
        name="saxpy(int, float)",
        architecture="sm_90a",
        constants={"BLOCK": "256"},
        place=Place("saxpy.cu", 3),
    )
    records = [launch(1000, 10, static_shared=64, local_per_thread=8), launch(2000, 10, symbol="_Z4otherv")]
    known, other = group(records, {facts.symbol: facts})
    assert (known.name, known.constants, known.place) == (facts.name, {"BLOCK": "256"}, facts.place)
    assert (known.static_shared, known.local_per_thread, known.registers) == (64, 8, 16)
    assert (other.name, other.constants, other.place) == ("_Z4otherv", {}, None)


def test_a_launch_without_time_stamps_is_counted_and_said() -> None:
    records = [
        *launches([50, 60, 70]),
        LaunchRecord("_Z5saxpyif", 0, 0, (1024, 1, 1), (256, 1, 1), None, 16, None, 0),
    ]
    (result,) = group(records)
    assert (result.count, result.timing.n, result.timing.first) == (4, 2, 50)
    assert remarks(records) == ("1 launch without a time stamp, counted but not timed",)


@pytest.mark.parametrize(("start", "end"), [(0, 0), (0, 50), (50, 50), (50, 0)])
def test_what_is_not_a_time(start, end) -> None:
    assert not LaunchRecord("_Z5saxpyif", start, end, (1, 1, 1), (1, 1, 1)).timed


def test_configurations_stand_in_the_order_of_their_first_timed_launch() -> None:
    lost = LaunchRecord("late", 0, 0, (1, 1, 1), (1, 1, 1))
    late = LaunchRecord("late", 5000, 5010, (1, 1, 1), (1, 1, 1))
    assert [g.symbol for g in group([lost, late, launch(1000, 10, "early")])] == ["early", "late"]


def test_a_kernel_never_timed_has_no_group_but_a_remark() -> None:
    records = [LaunchRecord("_Z5saxpyif", 0, 0, (1, 1, 1), (1, 1, 1))] * 2
    assert group(records) == ()
    assert remarks(records) == ("2 launches without a time stamp, counted but not timed",)


def test_an_ordinary_run_needs_no_remark() -> None:
    assert remarks(launches([10, 20, 30])) == ()
    assert remarks([]) == ()


def test_kernels_that_shared_the_gpu_are_told() -> None:
    alone, long, touching = launch(100, 50), launch(1000, 500), launch(1500, 10)
    inside = [launch(1100, 10), launch(1300, 10)]
    elsewhere = [launch(1200, 10, process=2), launch(1400, 10, device=1)]
    (sentence, _) = remarks([alone, long, touching, *inside, *elsewhere])
    assert sentence == "2 launches began while another kernel ran, and shared the GPU with it"


def test_several_gpus_are_told() -> None:
    (sentence,) = remarks([launch(1000, 10), launch(1000, 10, device=2)])
    assert sentence == "launches on GPUs 0, 2, each grouped by itself"


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 50), st.sampled_from("abc"), st.integers(1, 3)))
)
def test_every_launch_is_in_a_count(raw) -> None:
    records = [launch(start, took, name, grid=(grid, 1, 1)) for start, took, name, grid in raw]
    launcheses = group(records)
    timed = {(r.symbol, r.grid) for r in records if r.timed}
    assert sum(g.count for g in launcheses) == sum((r.symbol, r.grid) in timed for r in records)
    apart = sum(g.timing.first is not None and g.timing.n < g.count for g in launcheses)
    assert (
        sum(g.timing.n for g in launcheses)
        <= sum(r.timed for r in records)
        <= sum(g.timing.n for g in launcheses) + apart
    )


# -- throttled launches -----------------------------------------------------------------------------


def test_launches_at_a_low_clock_are_known() -> None:
    clocks = [(0, 1980.0), (1000, 1200.0), (2000, 1200.0), (3000, 1980.0)]
    fast, slow, edge = (500, 510), (1500, 1510), (2500, 2510)
    assert measure.at_low_clock([fast, slow, edge], clocks, default_mhz=1980) == [False, True, False]


def test_exactly_the_floor_is_kept() -> None:
    assert measure.at_low_clock([(1500, 1510)], [(1000, 750.0), (2000, 750.0)], 1000) == [False]
    assert measure.at_low_clock([(1500, 1510)], [(1000, 749.0), (2000, 749.0)], 1000) == [True]


@pytest.mark.parametrize(
    ("clocks", "default"),
    [([], 1980), ([(0, 100.0), (9999, 100.0)], None), ([(0, 100.0)], 1980), ([(9999, 100.0)], 1980)],
)
def test_a_launch_at_an_unknown_clock_is_kept(clocks, default) -> None:
    assert measure.at_low_clock([(1500, 1510)], clocks, default) == [False]


# -- the error of a median, and when to stop --------------------------------------------------------


@pytest.mark.parametrize(("n", "rank"), [(5, 0), (6, 1), (8, 1), (9, 2), (20, 6), (50, 18), (100, 40)])
def test_ranks_of_the_median_interval_are_those_of_the_binomial_table(n, rank) -> None:
    results = measure.median_interval(list(range(1, n + 1)))
    assert results == ((rank, n + 1 - rank) if rank else None)


@pytest.mark.parametrize("n", [1000, 1001])
def test_the_approximation_for_many_values_joins_the_exact_ranks(n) -> None:
    results = measure.median_interval(list(range(1, n + 1)))
    assert results is not None
    assert results[0] == 469


def noise(rng: random.Random, base: float, spread: float) -> int:
    """A launch time: a floor, a long tail, now and then an outlier, in steps of 32 ns."""
    time = base * (1 + spread * rng.gammavariate(2, 0.5))
    if rng.random() < 0.02:
        time *= 1 + rng.random()
    return max(32, round(time / 32) * 32)


def test_the_median_interval_holds_the_true_median_as_often_as_it_says() -> None:
    rng = random.Random(3)
    truth = statistics.median(noise(rng, 300_000, 0.02) for _ in range(100_000))
    hits = 0
    for _ in range(1000):
        interval = measure.median_interval([noise(rng, 300_000, 0.02) for _ in range(31)])
        assert interval is not None
        hits += interval[0] <= truth <= interval[1]
    assert 940 <= hits < 1000


def test_stopping_names_its_reason() -> None:
    steady, wild = [100_000] * 10, [50_000, 100_000, 150_000, 200_000] * 3
    assert measure.stop(steady, at_cap=False) == measure.Stop("precise", 10, 0.0)
    assert measure.stop(steady[:9], at_cap=False) is None
    assert measure.stop(wild, at_cap=False) is None
    capped = measure.stop(wild, at_cap=True)
    assert capped is not None
    assert (capped.reason, capped.n) == ("cap", 12)
    assert capped.relative_error is not None
    assert capped.relative_error > 0.1
    assert measure.stop([], at_cap=True) == measure.Stop("cap", 0, None)


def test_a_median_that_stopped_precise_is_precise() -> None:
    rng = random.Random(4)
    truth = statistics.median(noise(rng, 300_000, 0.05) for _ in range(100_000))
    wrong = tried = 0
    for _ in range(300):
        times: list[int] = []
        result = None
        while result is None:
            times += [
                noise(rng, 300_000, 0.05) for _ in range(measure.next_batch(len(times)) if times else 20)
            ]
            result = measure.stop(times, at_cap=len(times) > 20_000)
        assert result.reason == "precise"
        tried += result.n
        wrong += abs(statistics.median(times) / truth - 1) > measure.STOP_AT
    assert wrong <= 0.1 * 300  # asking several times costs a little of the 95 %
    assert tried / 300 < 1000


# -- comparing --------------------------------------------------------------------------------------


def pairs(rng: random.Random, n: int, ratio: float, kind: str) -> tuple[list[int], list[int]]:
    """Two versions timed in turn on a GPU whose state is of this kind."""
    before, after, state = [], [], 0.0
    for i in range(n):
        for version, factor in ((before, 1.0), (after, ratio)):
            slow = 1.0
            if kind == "drift":  # warms up: 10 % slower at the end
                slow = 1 + 0.1 * i / n
            elif kind == "wander":  # a clock that wanders, each launch like the one before
                state = 0.95 * state + rng.gauss(0, 0.005)
                slow = 1 + state
            elif kind == "two clocks":
                slow = 1.15 if (i // 7) % 2 else 1.0
            version.append(noise(rng, 300_000 * factor * slow, 0.01))
    return before, after


KINDS = ["steady", "drift", "wander", "two clocks"]


@pytest.mark.parametrize("kind", KINDS)
def test_equal_versions_are_seldom_told_apart(kind) -> None:
    rng = random.Random(f"equal {kind}")
    runs = 500
    verdicts = [measure.compare(*pairs(rng, 30, 1.0, kind), resolution=0).verdict for _ in range(runs)]
    assert sum(v != "inconclusive" for v in verdicts) <= 0.02 * runs  # 1 % is what 99 % allows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ratio", "verdict"), [(0.97, "faster"), (1.03, "slower")])
def test_three_percent_are_found_in_thirty_pairs(kind, ratio, verdict) -> None:
    rng = random.Random(f"{ratio} {kind}")
    ab_verdicts = [measure.compare(*pairs(rng, 30, ratio, kind)) for _ in range(100)]
    assert sum(c.verdict == verdict for c in ab_verdicts) >= 95
    assert all(c.low is not None and c.high is not None and c.low <= c.ratio <= c.high for c in ab_verdicts)
    assert statistics.median(c.ratio for c in ab_verdicts) == pytest.approx(ratio, rel=0.005)


def test_a_sure_difference_below_the_resolution_is_not_claimed() -> None:
    ab_verdict = measure.compare([100_000] * 20, [100_300] * 20)
    assert (ab_verdict.verdict, ab_verdict.ratio) == ("inconclusive", 1.003)
    assert measure.compare([100_300] * 20, [100_000] * 20).verdict == "inconclusive"
    assert measure.compare([100_000] * 20, [100_300] * 20, resolution=0.001).verdict == "slower"


def test_too_few_pairs_prove_nothing() -> None:
    few = measure.compare([100] * 7, [50] * 7)
    assert (few.verdict, few.low, few.high, few.pairs) == ("inconclusive", None, None, 7)
    assert measure.compare([100] * 8, [50] * 8).verdict == "faster"


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), min_size=1, max_size=40))
def test_exchanging_the_versions_exchanges_the_verdict(pairs) -> None:
    before, after = [a for a, _ in pairs], [b for _, b in pairs]
    opposite = {"faster": "slower", "slower": "faster", "inconclusive": "inconclusive"}
    name = measure.compare(before, after, resolution=0).verdict
    assert measure.compare(after, before, resolution=0).verdict == opposite[name]


@pytest.mark.parametrize(("before", "after"), [([], []), ([1], [1, 2]), ([1, 0], [1, 1]), ([1], [-1])])
def test_what_cannot_be_paired_is_refused(before, after) -> None:
    with pytest.raises(ValueError, match=r"pairs|positive"):
        measure.compare(before, after)


# -- two versions, each in a run of its own ---------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ([93_000 + 50 * i for i in range(50)], "faster"),
        ([107_000 + 50 * i for i in range(50)], "slower"),
        ([99_300 + i for i in range(50)], "inconclusive"),  # two runs of the same code may differ as much
        ([90_000 + 500 * i for i in range(50)], "inconclusive"),  # overlaps
        ([80_000] * 5, "inconclusive"),  # too few to bound a median
    ],
)
def test_the_difference_of_two_runs(after: list[int], verdict: str) -> None:
    before = measure.timing([100_000 + 10 * i for i in range(50)], "")
    difference = measure.difference([before], [measure.timing(after, "")])
    assert difference
    assert difference.verdict == verdict
    assert difference.change == pytest.approx(statistics.median(after) / before.median - 1)


def test_the_difference_of_several_launches_is_that_of_their_sums() -> None:
    timing, two = (measure.timing([n + i for i in range(50)], "") for n in (100_000, 300_000))
    difference = measure.difference([timing, two], [timing, timing])
    assert difference == measure.Difference("faster", pytest.approx(-0.4999, abs=1e-3))
    assert measure.difference([], [timing]) is None
