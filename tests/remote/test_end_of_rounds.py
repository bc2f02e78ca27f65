"""When a judge's rounds end: numbers in, a number of rounds out."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_remote.judge import end_of_rounds, judge_main, verdict
from orbit_remote.judge.end_of_rounds import EndOfRounds
from orbit_remote.judge.match import Match

Settled = Callable[[int], bool]


def rounds(seed: int, settled: Settled) -> int:
    end = EndOfRounds(random.Random(seed))
    count = 0
    while not end.reached(count, partial(settled, count), late=False):
        count += 1
    return count


def test_no_match_ends_before_the_clocks_are_precise_and_none_at_a_round_that_is_known() -> None:
    counts = [rounds(seed, lambda count: count >= 40) for seed in range(800)]
    assert min(counts) == 40
    early = [count for count in counts if count < 120]
    assert len(set(early)) > 25
    assert 0.07 < 1 - len(early) / len(counts) < 0.18  # one of eight goes on to the most
    assert max(counts) == end_of_rounds.MOST


def test_a_match_whose_clocks_never_agree_goes_on_to_the_most() -> None:
    counts = {rounds(seed, lambda _: False) for seed in range(300)}
    assert (min(counts), max(counts), len(counts)) == (121, 150, 30)


def test_time_that_is_over_ends_rounds_once_there_are_enough_of_them() -> None:
    end = EndOfRounds(random.Random(1))
    reached = [count for count in range(20) if end.reached(count, lambda: False, late=True)]
    assert reached[0] == end_of_rounds.LEAST


@pytest.mark.parametrize(
    ("clocks", "settled"),
    [
        (verdict.Clocks(100_000, 100_000, 9_000, 24, 400), True),
        (verdict.Clocks(100_000, 112_000, 9_000, 24, 400), False),  # they do not agree
        (verdict.Clocks(100_000, 100_000, 12_000, 24, 400), False),  # forged flags could gain more
        (verdict.Clocks(1_000_000, 1_000_000, 50_000, 24, 4_000), True),  # 5 % of the score
        (verdict.Clocks(100_000, 100_000, 9_000, 24, 600), False),  # the score is off by over 0.5 %
        (verdict.Clocks(100_000, 100_000, 9_000, 24, 400, from_gate=True), False),
    ],
)
def test_what_the_clocks_have_to_say(clocks: verdict.Clocks, settled: bool) -> None:
    assert end_of_rounds.settled(clocks) == settled


class Counting(Match):
    """Rounds with a candidate that takes `times` microseconds, by the number of its call; `waits`: which call waits for the GPU.
    The reference takes 100 µs, and `after_us` right after the candidate.
    """

    def __init__(self, times: Callable[[int], int], waits: int = -1, after_us: int = 100) -> None:
        candidate, reference = (SimpleNamespace(reference=each) for each in (False, True))
        parties: Any = candidate, reference
        own: Any = SimpleNamespace(gates=True)
        job: Any = SimpleNamespace(run_timeout_s=60)
        super().__init__(None, own, parties[0], parties[1], job, print, coin=random.Random(3))
        self._times, self._waits_at, self._after_us = times, waits, after_us
        self._called = False
        self.calls = 0

    def _new_arguments(self) -> Any:
        return "arguments"

    def _empty(self, given: Any, *, gated: bool) -> Any:
        return 1_000, 151_000, 501_000

    def _call(self, party: Any, given: Any, **how: Any) -> Any:
        self.calls += not party.reference
        reference_us = self._after_us if self._called else 100
        self._called = not party.reference
        flags = 1_000 + 1_000 * (reference_us if party.reference else self._times(self.calls))
        times = flags, 150_000 + flags, 500_000 + flags
        waited = not party.reference and self.calls == self._waits_at
        return SimpleNamespace(times=times, waited=waited, outputs=[], placing_ns=0)

    def _draw_ahead(self) -> None:
        pass

    def _compare(self, call: Any, expected: Any) -> None:
        pass

    def score_us(self) -> float:
        """After rounds that end early, 20 other calls, and the rounds after these."""
        self._rounds(True)
        assert self._end.early
        self.calls += 20
        self._rounds_again()
        result = self.result
        assert result.rounds == len(result.candidate.flags) == len(result.against.flags)
        return verdict.clocks(result.candidate, result.now, result.before).flag_ns / 1000


def test_a_candidate_that_is_fast_in_the_calls_that_it_expects_to_be_timed_has_its_later_time() -> None:
    honest = Counting(lambda _: 80)
    assert honest.score_us() == 80
    assert honest.result.rounds < 60
    counts = Counting(lambda call: 40 if call <= 40 else 80)
    assert counts.score_us() == 80
    assert counts.result.rounds > 60


def test_a_candidate_that_waits_in_later_calls_is_timed_with_the_hosts_part() -> None:
    waits = Counting(lambda _: 80, waits=50)
    waits.score_us()
    assert not waits.result.gated


@pytest.mark.parametrize(
    ("after_us", "red", "ratio"), [(100, False, 1.0), (101, True, 1.01), (98, True, 0.98)]
)
def test_a_reference_that_takes_longer_after_the_candidate_is_a_red_control(
    after_us: int, red: bool, ratio: float
) -> None:
    """So much of a difference between the two sides means nothing (kind 39)."""
    match = Counting(lambda _: 80, after_us=after_us)
    match.score_us()
    control = judge_main.control(match.result, from_gate=False)
    assert (control.red, control.ratio) == (red, pytest.approx(ratio, rel=1e-3))
    assert 8 < control.pairs < match.result.rounds
