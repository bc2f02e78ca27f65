"""Decides when the timed rounds of a match end: not before the clocks are precise enough, and at no round that a candidate
could foresee.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from typing import Final

from orbit_remote.judge import verdict
from orbit_remote.judge.verdict import Clocks

LEAST, MOST = 12, 150
_FEWER: Final = 30
"""By up to so many rounds fewer than the most, at random: a candidate that counts its calls does not know when it is timed no more."""
ENOUGH: Final = 24
"""Rounds from which on they may end early."""
_ODDS: Final = 8
"""Of so many matches one does not end early, however precise it is; in the others the clocks are looked at in one round of so many. So
nobody gets a better chance by being looked at often."""
_CLOSE_NS: Final = 10_000.0
"""Rounds end early where forged flags could gain no more than this, or `verdict.TOLERANCE` (docs/dev/judge.md)."""
_AGAIN: Final = 4
"""Rounds at least, and less than twice as many, after those that ended early."""


class EndOfRounds:
    """The end of one match's rounds, which `coin` draws. `early`: they have ended before the most."""

    def __init__(self, coin: random.Random) -> None:
        self._coin = coin
        self.most = MOST - coin.randrange(_FEWER)
        self._may: bool | None = None  # drawn when it could
        self.early = False

    def reached(self, count: int, settled: Callable[[], bool], *, late: bool) -> bool:
        """Say whether `count` rounds are enough. `late`: their time is over."""
        if count >= self.most or (count >= LEAST and late):
            return True
        if count < ENOUGH:
            return False
        if self._may is None:
            self._may = self._coin.randrange(_ODDS) > 0
        self.early = self._may and self._coin.randrange(_ODDS) == 0 and settled()
        return self.early

    def again(self, count: int) -> int:
        """Draw how many rounds there are to be, after `count` that ended early. No more rounds end early."""
        self._may = False
        return min(self.most, count + _AGAIN + self._coin.randrange(_AGAIN))


def settled(clocks: Clocks) -> bool:
    """Say whether the score is precise, and the clocks agree about it so closely that more rounds would say nothing else."""
    return (
        clocks.agree
        and not clocks.from_gate
        and clocks.resolution_ns <= max(verdict.TOLERANCE * clocks.flag_ns, _CLOSE_NS)
        and clocks.error_ns <= verdict.PRECISE * clocks.flag_ns
    )


def is_as_before(taken: Sequence[int], earlier: int, resolution_ns: float) -> bool:
    """Say whether the calls after the first `earlier` ones took no longer than these, within `resolution_ns`."""
    return statistics.median(taken[earlier:]) <= statistics.median(taken[:earlier]) + resolution_ns
