"""What the order of a pair does to a verdict, if the second run of a pair takes longer by its place: clocks, heat, caches.

    python -P bench/order_of_pairs.py [--comparisons 4000] [--noise 0.5]

The runs are made up, with normal noise from run to run. The order is that of `measure.in_drawn_order`, and beside it the fixed one that
comparisons had before; the verdict is the product's own: `measure.settled` of whole runs (*Compare with…*, `loop`, the queue's
`compare`), and `measure.compare` of 200 rounds of calls (harnesses and the judge). Prints the tables of docs/dev/results/decisions.md.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))

from orbit_remote.common import measure

PLACES = (0.0, 0.003, 0.006, 0.01)
"""By how much the second run of a pair takes longer."""
EFFECTS = (0.01, 0.02, 0.05)
"""By how much the second version takes longer."""
_ROUNDS, _START_NS = 200, 300_000.0


class Fixed(random.Random):
    """A coin that always falls the same way: the order that comparisons had before."""

    def shuffle(self, x: object) -> None:
        del x


def pair(rng: random.Random, coin: random.Random, noise: float, place: float, effect: float) -> list[float]:
    """Times of one pair: before, after."""
    times = [0.0, 0.0]
    for at, version in enumerate(measure.in_drawn_order((0, 1), coin)):
        times[version] = _START_NS * (1 + effect * version) * (1 + place * at) * (1 + rng.gauss(0, noise))
    return times


def of_runs(rng: random.Random, coin: random.Random, noise: float, place: float, effect: float) -> str:
    """The verdict of a comparison by whole runs."""
    pairs: list[list[float]] = []
    while True:
        pairs.append(pair(rng, coin, noise, place, effect))
        if verdict := measure.settled([then for then, _ in pairs], [now for _, now in pairs]):
            return verdict.verdict


def of_calls(rng: random.Random, coin: random.Random, noise: float, place: float, effect: float) -> str:
    """The verdict of a comparison by rounds of calls in one process."""
    pairs = [pair(rng, coin, noise, place, effect) for _ in range(_ROUNDS)]
    return measure.compare([round(then) for then, _ in pairs], [round(now) for _, now in pairs]).verdict


def shares(
    verdict: Callable[..., str], coin: random.Random, noise: float, place: float, effect: float, count: int
) -> Counter[str]:
    rng = random.Random(f"{verdict.__name__} {place} {effect}")
    return Counter(verdict(rng, coin, noise, place, effect) for _ in range(count))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--comparisons", type=int, default=4000, metavar="N", help="of each cell")
    parser.add_argument(
        "--noise", type=float, default=0.5, metavar="PERCENT", help="deviation from run to run"
    )
    options = parser.parse_args()
    for title, verdict, count in (
        ("whole runs", of_runs, options.comparisons),
        (f"{_ROUNDS} rounds of calls", of_calls, max(1, options.comparisons // 20)),
    ):
        print(f"{title}, noise {options.noise:g} %, {count} comparisons a cell: share of *slower* / *faster*")
        head = [f"{effect:.0%} slower" for effect in (0.0, *EFFECTS)]
        print(f"| second place slower by | order | {' | '.join(['no difference', *head[1:]])} |")
        print("|---|---|" + "---|" * len(head))
        for place in PLACES:
            for order, coin in (("fixed", Fixed()), ("drawn", random.Random(f"coin {place}"))):
                cells: list[str] = []
                for effect in (0.0, *EFFECTS):
                    drawn = shares(verdict, coin, options.noise / 100, place, effect, count)
                    cells.append(f"{drawn['slower'] / count:.1%} / {drawn['faster'] / count:.1%}")
                print(f"| {place:.1%} | {order} | {' | '.join(cells)} |")
        print()


if __name__ == "__main__":
    main()
