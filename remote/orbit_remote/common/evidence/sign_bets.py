"""Bets on the signs of pairs: evidence that one version is slower than another, valid whenever one stops to look.

Two versions run in turn, each pair in an order drawn by a coin (`measure.in_drawn_order`). A pair gives one ratio, the time now over
the time before, and one bit: whether the ratio exceeds a mark. If the median ratio is at most the mark, the bit is 1 with a
chance of at most 1/2, whatever is known of the pairs before. That holds for any shape of noise, and drift hits both versions alike.

A gambler starts with 1 and bets on the bits. For a chance p of a 1, each pair multiplies the capital by 2p or 2(1 - p). Nobody
knows p, so the capital is the mean over all p from 1/2 to 1. Under the null hypothesis the capital is a supermartingale, and
Ville's inequality bounds the chance that it ever reaches 1/a by a: under any rule of stopping, and for any choice of what runs next.

Sources: J. Ville, Étude critique de la notion de collectif, 1939. H. Robbins, Statistical methods related to the law of the iterated
logarithm, Ann. Math. Stat. 41 (1970), for mixtures. I. Waudby-Smith and A. Ramdas, Estimating means of bounded random variables by
betting, J. R. Stat. Soc. B 86 (2024). S. Howard and A. Ramdas, Sequential estimation of quantiles with applications to A/B testing and
best-arm identification, Bernoulli 28 (2022), for bounds of a median. V. Vovk and R. Wang, E-values: calibration, combination and
applications, Ann. Stat. 49 (2021), for several hypotheses.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measure import median
from orbit_remote.common.measurements import SameCode

MARGIN: Final = 0.005
"""A kernel may take this much more time and is not called slower: the layout of code and the addresses of buffers differ by as much."""
POWER: Final = 0.95
"""How often a forecast slow-down is found."""
MISS: Final = 0.02
"""How often a kernel that is slower by exactly the effect looked for is given up as not slower."""
MOST_PAIRS: Final = 60
_FOR_NOISE = 5
"""With fewer pairs their noise is not estimated."""


# -- one kernel -------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 16)
def log_capital(wins: int, pairs: int) -> float:
    """Return the natural logarithm of the gambler's capital after `pairs` bits of which `wins` are 1.

    The mean over p is an incomplete beta function, which a binomial sum gives exactly (DLMF 8.17.5): with n pairs and
    k wins it is sum(C(n + 1, i) for i <= k)

    ((n + 1) C(n, k)).
    """
    below = term = 1
    for i in range(wins):
        term = term * (pairs + 1 - i) // (i + 1)
        below += term
    return math.log(below) - math.log((pairs + 1) * math.comb(pairs, wins))


@lru_cache(maxsize=1 << 14)
def least_wins(pairs: int, log_goal: float) -> int | None:
    """Return how many of `pairs` must be won for a capital of exp(`log_goal`). Return None if all of them are too
    few.
    """
    if log_capital(pairs, pairs) < log_goal:
        return None
    low, high = pairs // 2, pairs  # the capital grows with the wins from there on
    while low < high:
        middle = (low + high) // 2
        if log_capital(middle, pairs) >= log_goal:
            high = middle
        else:
            low = middle + 1
    return low


def log_evidence(ratios: Sequence[float], margin: float = MARGIN) -> float:
    """Return the largest log capital so far of the bet that the median ratio exceeds 1 + `margin`; 0 without a pair.

    The largest counts, not the last: Ville's inequality is about the whole path.
    """
    wins, most = 0, 0.0
    for pairs, ratio in enumerate(ratios, 1):
        wins += ratio > 1 + margin
        most = max(most, log_capital(wins, pairs))
    return most


def upper_bound(ratios: Sequence[float], error: float) -> float:
    """Return a bound that the median ratio exceeds with a chance of at most `error`, however often one looks. It is
    infinite for too few pairs.

    A mark is above the median until the bet that ratios lie below it has won 1/`error`.
    """
    goal, bound = -math.log(error), math.inf
    ordered: list[float] = []
    for ratio in ratios:
        insort(ordered, ratio)
        if (wins := least_wins(len(ordered), goal)) is not None:
            bound = min(bound, ordered[wins - 1])
    return bound


def lower_bound(ratios: Sequence[float], error: float) -> float:
    """Return the lower bound in the same sense; 0 for too few pairs."""
    bound = upper_bound([-ratio for ratio in ratios], error)
    return max(0.0, -bound)


def same_code(ratios: Sequence[float], margin: float = MARGIN, false_alarm: float = 0.01) -> SameCode:
    """Return the result of a control. It is red with a chance of at most `false_alarm` for either direction if the
    median ratio is within `margin` of 1, however often one looks.
    """
    most = max(log_evidence(ratios, margin), log_evidence([1 / ratio for ratio in ratios], margin))
    return SameCode(len(ratios), median(ratios) if ratios else None, most >= -math.log(false_alarm))


# -- several kernels --------------------------------------------------------------------------------


def holm(evidence: Sequence[float], false_alarm: float) -> list[bool]:
    """Return which of several kernels are slower, by their log evidence. The chance of even one false alarm is at
    most `false_alarm`.

    It is Holm's procedure on the inverse capitals, which are p-values at any time: the largest capital must reach K

    `false_alarm`, the next (K - 1)

    `false_alarm`, and so on. Kernels may depend on each other in any way.
    """
    count = len(evidence)
    slower = [False] * count
    for rank, at in enumerate(sorted(range(count), key=lambda each: -evidence[each])):
        if evidence[at] < math.log((count - rank) / false_alarm):
            break
        slower[at] = True
    return slower


@dataclass(frozen=True, slots=True)
class GateQuestion:
    """What a gate asks of each of `kernels` kernels. `find` is the slow-down that it looks for: 0.02 is 2 %."""

    kernels: int
    false_alarm: float = 0.01
    find: float = 0.02
    margin: float = MARGIN
    miss: float = MISS
    most_pairs: int = MOST_PAIRS

    def log_goal(self, slower: int = 0) -> float:
        """Return the log evidence that makes a kernel slower if `slower` others are."""
        return math.log(max(1, self.kernels - slower) / self.false_alarm)

    def is_clear(self, ratios: Sequence[float]) -> bool:
        """Say whether a kernel is clear and need not be measured any longer: it is not slower by as much as `find`."""
        return upper_bound(ratios, self.miss) < 1 + self.find

    def pairs_left(self, ratios: Sequence[float], slower: int = 0) -> float:
        """Return about how many pairs a kernel needs until it is decided, to either side, if it goes on in the same
        way.

        The capital of a bet grows by the relative entropy of the chance of a win and 1/2 in each pair (J. Kelly, A
        new interpretation of information rate, 1956). It is infinite if nothing points to a side.
        """
        goals = (
            (sum(ratio > 1 + self.margin for ratio in ratios), self.log_goal(slower)),
            (sum(ratio < 1 + self.find for ratio in ratios), -math.log(self.miss)),
        )
        return min(_pairs_left(wins, len(ratios), goal) for wins, goal in goals)


def _pairs_left(wins: int, pairs: int, log_goal: float) -> float:
    chance = (wins + 1) / (pairs + 2)  # Laplace's rule of succession
    if chance <= 0.5:
        return math.inf
    growth = math.log(2) + chance * math.log(chance) + (1 - chance) * math.log(1 - chance)
    return max(0.0, log_goal - log_capital(wins, pairs)) / growth


# -- before anything runs ---------------------------------------------------------------------------


def noise(ratios: Sequence[float]) -> float | None:
    """Return the deviation of the pairs' log ratios, from their median absolute deviation. Return None for too few
    pairs.

    Outliers do not move it (Rousseeuw and Croux, Alternatives to the median absolute deviation, 1993).
    """
    if len(ratios) < _FOR_NOISE:
        return None
    logs = [math.log(ratio) for ratio in ratios]
    middle = median(logs)
    return 1.4826 * median([abs(each - middle) for each in logs])


def effect_found(deviation: float, question: GateQuestion) -> float | None:
    """Return the slow-down that is found in `POWER` of gates if the pairs' log ratios have this deviation. It is at
    least the one that is looked for, since a smaller one may be given up. Return None if the pairs are too few for
    any. Only this forecast assumes normal noise; no verdict does.
    """
    from statistics import NormalDist

    chance = _least_chance(question.most_pairs, question.log_goal(), min(0.999, POWER + question.miss))
    if chance is None:
        return None
    effect = (1 + question.margin) * math.exp(deviation * NormalDist().inv_cdf(chance)) - 1
    return max(question.find, effect)


@lru_cache(maxsize=64)
def _least_chance(pairs: int, log_goal: float, power: float) -> float | None:
    """Return the smallest chance of a win with which a bet reaches its goal within `pairs` in this share of cases."""
    if reaches(1.0, pairs, log_goal)[0] < power:
        return None
    low, high = 0.5, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        if reaches(middle, pairs, log_goal)[0] >= power:
            high = middle
        else:
            low = middle
    return high


def pairs_expected(deviation: float, question: GateQuestion) -> float:
    """Return how many pairs an equal kernel takes on average until it is clear, by the same forecast."""
    from statistics import NormalDist

    log_find = math.log1p(question.find)
    chance = NormalDist().cdf(log_find / deviation) if deviation > 0 else 1.0
    return reaches(chance, question.most_pairs, -math.log(question.miss))[1]


def reaches(chance: float, pairs: int, log_goal: float) -> tuple[float, float]:
    """Return (the chance that a bet reaches its goal within `pairs`, if each pair is won with `chance`; how many
    pairs it takes on average, or the limit if it does not). It is exact: it computes the distribution of the wins of
    paths that have not arrived.
    """
    under = {0: 1.0}
    arrived = expected = 0.0
    for number in range(1, pairs + 1):
        after: dict[int, float] = {}
        for wins, weight in under.items():
            after[wins + 1] = after.get(wins + 1, 0.0) + weight * chance
            after[wins] = after.get(wins, 0.0) + weight * (1 - chance)
        goal = least_wins(number, log_goal)
        now = sum(weight for wins, weight in after.items() if goal is not None and wins >= goal)
        under = {wins: weight for wins, weight in after.items() if goal is None or wins < goal}
        arrived, expected = arrived + now, expected + number * now
    return arrived, expected + pairs * sum(under.values())
