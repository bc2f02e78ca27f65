"""The gate's method: exact chances, and simulated gates. Nothing is measured."""

from __future__ import annotations

import math
import random

import pytest

from bench import gate as figures
from orbit_remote.common.evidence import sign_bets
from orbit_remote.common.evidence.sign_bets import GateQuestion


def mean_capital(wins: int, pairs: int) -> float:
    """By its definition: the mean over p from 1/2 to 1, in 4,000 steps."""
    grid = [0.5 + 0.5 * (i + 0.5) / 4000 for i in range(4000)]
    return sum((2 * p) ** wins * (2 * (1 - p)) ** (pairs - wins) for p in grid) / len(grid)


@pytest.mark.parametrize(("wins", "pairs"), [(0, 0), (1, 1), (3, 5), (0, 7), (15, 15), (17, 20), (40, 60)])
def test_the_capital_is_the_mean_over_all_chances(wins: int, pairs: int) -> None:
    assert math.exp(sign_bets.log_capital(wins, pairs)) == pytest.approx(mean_capital(wins, pairs), rel=1e-4)


@pytest.mark.parametrize("pairs", [1, 8, 30])
def test_a_fair_bit_leaves_the_capital_where_it_is(pairs: int) -> None:
    """A martingale: the mean over both outcomes of the next pair."""
    for wins in range(pairs + 1):
        after = [math.exp(sign_bets.log_capital(wins + won, pairs + 1)) for won in (0, 1)]
        assert sum(after) / 2 == pytest.approx(math.exp(sign_bets.log_capital(wins, pairs)))


@pytest.mark.parametrize("kernels", [1, 10, 30, 100])
def test_at_the_margin_a_gate_is_red_less_often_than_it_promises(kernels: int) -> None:
    """The chance of a median exactly at the margin, over 200 looks, times the number of kernels."""
    share = sign_bets.reaches(0.5, 200, GateQuestion(kernels).log_goal())[0]
    assert 0.002 < kernels * share <= 0.01


def test_how_many_pairs_that_all_agree_are_needed() -> None:
    def least(log_goal: float) -> int:
        return next(pairs for pairs in range(1, 60) if sign_bets.least_wins(pairs, log_goal))

    assert [least(GateQuestion(kernels).log_goal()) for kernels in (1, 10, 30)] == [9, 13, 15]
    assert least(-math.log(sign_bets.MISS)) == 8  # to be clear


def test_the_evidence_keeps_its_highest_and_the_bounds_their_narrowest() -> None:
    ratios = [1.02] * 12 + [1.0] * 12
    assert (
        sign_bets.log_evidence(ratios) == sign_bets.log_evidence(ratios[:12]) > sign_bets.log_capital(12, 24)
    )
    assert sign_bets.lower_bound(ratios, 0.025) == sign_bets.lower_bound(ratios[:12], 0.025) == 1.02
    assert sign_bets.upper_bound([1.0] * 7, 0.025) == math.inf
    assert sign_bets.lower_bound([1.0] * 7, 0.025) == 0.0
    assert sign_bets.upper_bound([1.0] * 7 + [1.3], 0.025) == 1.3


def test_bounds_hold_the_median_though_one_looks_after_each_pair() -> None:
    rng, missed = random.Random(5), 0
    for _ in range(300):
        ratios = [1.01 * math.exp(rng.gauss(0, 0.02)) for _ in range(40)]
        missed += not sign_bets.lower_bound(ratios, 0.025) <= 1.01 <= sign_bets.upper_bound(ratios, 0.025)
    assert missed <= 15


@pytest.mark.parametrize(
    ("ratios", "red"),
    [
        ([1.004] * 40, False),  # within the margin
        ([1.02] * 8, False),  # too few
        ([1.02] * 9, True),
        ([0.98] * 9, True),
        ([1.02, 0.98] * 20, False),
        ([], False),
    ],
)
def test_code_that_differs_from_itself_is_a_red_control(ratios: list[float], red: bool) -> None:
    found = sign_bets.same_code(ratios)
    assert (found.pairs, found.red) == (len(ratios), red)


@pytest.mark.parametrize(
    ("capitals", "slower"),
    [
        ([3000, 1], [True, False]),
        ([199, 1], [False, False]),
        ([1, 200], [False, True]),
        ([150, 200], [True, True]),  # once one is slower, the other needs less
        ([150, 199], [False, False]),
    ],
)
def test_several_kernels_share_one_bound(capitals: list[float], slower: list[bool]) -> None:
    assert sign_bets.holm([math.log(each * 1.0001) for each in capitals], 0.01) == slower


@pytest.mark.parametrize(
    ("noise", "kernels", "most_pairs", "finds"),
    [(0.0, 30, 60, 0.006), (0.0066, 30, 60, 0.0150), (0.01, 30, 102, 0.0162), (0.014, 1, 60, 0.0224)],
)
def test_the_slow_down_that_is_named_before_is_found(
    noise: float, kernels: int, most_pairs: int, finds: float
) -> None:
    """`noise` is that of a run; the forecast is checked by simulated pairs that are slower by what it names."""
    question = GateQuestion(kernels, find=0.006, most_pairs=most_pairs)
    named = sign_bets.effect_found(math.sqrt(2) * noise, question)
    assert named == pytest.approx(finds, abs=0.0002)
    rng, rule, found = random.Random(7), figures.Rule(question), 0
    for _ in range(400):
        verdict, _ = rule.decide(lambda: (1 + named) * math.exp(rng.gauss(0, math.sqrt(2) * noise)) + 1e-9)
        found += verdict == "slower"
    assert found >= 0.92 * 400


def test_few_pairs_find_nothing_and_have_no_noise() -> None:
    assert sign_bets.effect_found(0.001, GateQuestion(30, most_pairs=14)) is None
    assert sign_bets.effect_found(0.001, GateQuestion(30)) == 0.02  # less may be given up
    assert sign_bets.noise([1.0, 1.01, 1.0, 0.99]) is None
    assert sign_bets.noise([1.0, 1.01, 1.0, 0.99, 1.0]) == pytest.approx(0.0, abs=1e-9)
    assert sign_bets.noise([math.exp(each) for each in (-0.02, -0.01, 0, 0.01, 0.5)]) == pytest.approx(
        0.0148, abs=1e-4
    )


def test_the_next_pair_goes_where_it_decides() -> None:
    question = GateQuestion(10)
    needs = [
        question.pairs_left(ratios)
        for ratios in ([1.03] * 12, [1.0] * 7, [1.03] * 6, [1.0, 1.03] * 4, [1.01] * 4)
    ]
    assert needs[0] < needs[1] < needs[2] < needs[3]
    assert question.pairs_left([]) == math.inf
    assert question.is_clear([1.0] * 8)
    assert not question.is_clear([1.0] * 7 + [1.03])


class Drift:
    """Times of equal kernels on a machine whose speed wanders and whose second place in a pair costs 1 %."""

    def __init__(self, seed: int) -> None:
        self.rng, self.speed = random.Random(seed), 1.0

    def ratio(self, effect: float = 0.0) -> float:
        times = [0.0, 0.0]
        for at, version in enumerate(self.rng.sample((0, 1), 2)):
            self.speed = 1 + 0.95 * (self.speed - 1) + self.rng.gauss(0, 0.004)
            times[version] = self.speed * (1 + 0.01 * at) * (1 + effect * version)
        return times[1] / times[0]


def test_simulated_gates_of_thirty_equal_kernels_are_not_red() -> None:
    """200 gates at the margin itself: at most 1 % red is promised, so six reds have a chance of 1.7 %."""
    rule, machine = figures.Rule(GateQuestion(30)), Drift(11)
    red = sum(
        "slower" in [rule.decide(lambda: machine.ratio(0.005))[0] for _ in range(30)] for _ in range(200)
    )
    assert red <= 5


def test_the_rule_in_tables_is_the_products() -> None:
    question, machine = GateQuestion(10), Drift(13)
    rule = figures.Rule(question)
    for effect in (0.0, 0.01, 0.03) * 5:
        ratios: list[float] = []

        def next_ratio(effect: float = effect, ratios: list[float] = ratios) -> float:
            ratios.append(machine.ratio(effect))
            return ratios[-1]

        verdict, pairs = rule.decide(next_ratio)
        assert pairs == len(ratios)
        assert (sign_bets.log_evidence(ratios) >= question.log_goal()) == (verdict == "slower")
        assert not question.is_clear(ratios[:-1])
        assert verdict == "slower" or question.is_clear(ratios) == (verdict == "not slower")


@pytest.mark.parametrize(
    ("count", "of", "bound"), [(0, 20_000, 0.00015), (10, 1000, 0.01689), (200, 20_000, 0.01125)]
)
def test_the_upper_bound_of_a_share(count: int, of: int, bound: float) -> None:
    assert figures.upper(count, of) == pytest.approx(bound, abs=2e-5)
