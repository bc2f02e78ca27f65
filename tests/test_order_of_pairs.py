"""A coin draws the order of each pair of runs, so that what the second place costs is nobody's verdict."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from bench import order_of_pairs
from orbit_lsp.history import ab_compare
from orbit_remote.common import measure
from orbit_remote.common.measurements import Timing
from orbit_remote.judge.match import Match

DRAWN = """
now then, now then, then now, then now, now then, now then, then now, then now, now then, now then, then now, then now, then now
""".strip()
"""As the coin of this seed falls; the first pair is not counted."""


class Machine:
    """It runs the sides that a comparison asks for: equal ones, but the second of a pair takes 1 % longer."""

    def __init__(self, coin: random.Random) -> None:
        self.pairs: list[str] = []
        self.comparison = ab_compare._Comparison.__new__(ab_compare._Comparison)
        of: Any = self.comparison
        of._tools = SimpleNamespace(coin=coin)
        of._then, of._now = ab_compare._Side(), ab_compare._Side()
        of._now_first, of._verdict = [], None
        of._run_once, of._timings = self._run_once, self._timings

    async def _run_once(self, side: object, variant: str) -> None:
        if not self.pairs or len(self.pairs[-1].split()) == 2:
            self.pairs.append("")
        self.pairs[-1] = f"{self.pairs[-1]} {variant}".strip()

    def _timings(self, side: object, variant: str, finished: object) -> list[Timing]:
        return [Timing(1, 101_000 if " " in self.pairs[-1] else 100_000, "")]

    def compare(self) -> str:
        """The verdict, and each pair as it ran."""
        of: Any = self.comparison
        asyncio.run(of._in_turn("then", "now"))
        kept = ["now then" if now_first else "then now" for now_first in of._now_first]
        assert kept == self.pairs[1:]
        return f"{of._verdict.verdict}: {', '.join(self.pairs)}"


@pytest.mark.parametrize(
    ("coin", "text"),
    [
        (order_of_pairs.Fixed(), "slower: " + ", ".join(["then now"] * 8)),
        (random.Random(3), f"inconclusive: {DRAWN}"),
    ],
    ids=["fixed", "drawn"],
)
def test_a_place_that_costs_one_percent_is_a_verdict_in_a_fixed_order_only(
    coin: random.Random, text: str
) -> None:
    assert Machine(coin).compare() == text


def test_the_coin_of_a_comparison_cannot_be_foreseen() -> None:
    none: Any = None
    assert isinstance(ab_compare.AbCompare(none, none, none, none, none).coin, random.SystemRandom)


class Rounds(Match):
    """The judge's match with no sides behind it. It notes the calls of each round by side and by the number of the arguments
    drawn: `candidate(1) reference(1)`.
    """

    def __init__(self, coin: random.Random | None) -> None:
        candidate, reference = (SimpleNamespace(reference=each) for each in (False, True))
        parties: Any = candidate, reference
        own: Any = SimpleNamespace(gates=True)
        job: Any = SimpleNamespace(run_timeout_s=60)
        super().__init__(None, own, parties[0], parties[1], job, print, coin=coin)
        self.calls: list[str] = []
        self.count = 0

    def _drawn(self) -> Any:
        self.count += 1
        return self.count

    def _draw_ahead(self) -> None: ...

    def _empty(self, given: Any, *, gated: bool) -> Any:
        del given, gated
        return 0, 0, 0

    def _call(self, party: Any, given: Any, **how: Any) -> Any:
        del how
        self.calls.append(f"{'reference' if party.reference else 'candidate'}({given})")
        time = len(self.calls)
        return SimpleNamespace(times=(time, time, time), waited=False, outputs=[], placing_ns=0)

    def _compare(self, call: Any, expected: Any) -> None:
        del call, expected

    def rounds(self, count: int) -> list[str]:
        lines: list[str] = []
        for _ in range(count):
            begin = len(self.calls)
            self._round(gated=True, timed=True)
            against = self.calls[self._against[-1][0] - 1]
            lines.append(f"{' '.join(self.calls[begin:])}: against {against}")
        return lines


def test_the_judge_draws_the_reference_call_and_lets_no_answer_be_there_before_the_candidates() -> None:
    assert Rounds(random.Random(26)).rounds(4) == [
        "candidate(1) reference(1): against reference(1)",
        "reference(1) candidate(2) reference(2): against reference(1)",
        "candidate(3) reference(3): against reference(3)",
        "reference(3) candidate(4) reference(4): against reference(3)",
    ]


@pytest.mark.parametrize("verdict", [order_of_pairs.of_runs, order_of_pairs.of_calls])
def test_a_place_effect_gives_no_false_verdict(verdict: Any) -> None:
    """Of 200 simulated comparisons of equal versions, the second place 1 % slower."""
    drawn = order_of_pairs.shares(verdict, random.Random("drawn"), 0.005, 0.01, 0.0, 200)
    fixed = order_of_pairs.shares(verdict, order_of_pairs.Fixed(), 0.005, 0.01, 0.0, 200)
    assert (drawn["slower"] <= 10, drawn["faster"] <= 10, fixed["slower"] >= 150) == (True, True, True)


def test_one_side_alone_has_no_order() -> None:
    assert measure.in_drawn_order(["a"], random.Random(1)) == ["a"]
