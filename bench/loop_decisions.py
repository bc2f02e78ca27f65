"""What a loop decides of changes with known effects, over the noise that was measured from run to run.

    python -P bench/loop_decisions.py [--changes 1000]

A change takes 0, 1, 3 or 10 % of the time away, and its worker says honestly what it measured, once, at another time. The loop
compares in turn, and decides by its own rule (orbit_lsp/agents/loop/judge.py). Prints the table of docs/dev/results/decisions.md.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.loops import NOISE, ORDERED, decided

EFFECTS = (0.0, 0.01, 0.03, 0.10)


def counts(name: str, effect: float, changes: int) -> Counter[str]:
    """Decisions and evidence errors."""
    rng = random.Random(f"{name} {effect}")
    rows = [decided(rng, NOISE[name], effect) for _ in range(changes)]
    return Counter(row.decision for row in rows) + Counter(
        row.outcome for row in rows if row.outcome == "evidence error"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--changes", type=int, default=1000, metavar="N", help="of each effect, for each kernel"
    )
    changes = parser.parse_args().changes
    table = {name: {effect: counts(name, effect, changes) for effect in EFFECTS} for name in ORDERED}
    print("| kernel | noise | 0 %: kept | 1 %: kept | 3 %: missed | 10 %: missed | honest claims rejected |")
    print("|---|---|---|---|---|---|---|")
    middle = ORDERED[len(ORDERED) // 2]
    shown = {ORDERED[0]: "least noise", middle: "middle", ORDERED[-1]: "most noise"}
    for name, what in shown.items():
        print(_row(f"{name} ({what})", f"{NOISE[name]:.2%}", [table[name]], changes))
    print(_row(f"all {len(ORDERED)}", "", list(table.values()), changes))
    worst = [max(_share(each, effect, changes, decision) for each in table.values()) for effect, decision in ((0.0, "KEEP"), (0.03, "REVERT"))]  # fmt: skip
    print(f"\nworst kernel: {worst[0]:.1%} of 0 % kept, {worst[1]:.1%} of 3 % missed")


def _share(each: dict[float, Counter[str]], effect: float, changes: int, what: str) -> float:
    return each[effect][what] / changes


def _row(name: str, noise: str, each: list[dict[float, Counter[str]]], changes: int) -> str:
    columns = ((0.0, "KEEP"), (0.01, "KEEP"), (0.03, "REVERT"), (0.10, "REVERT"))
    shares = [
        sum(_share(counted, effect, changes, what) for counted in each) / len(each)
        for effect, what in columns
    ]
    claims = sum(_share(counted, effect, changes, "evidence error") for counted in each for effect in EFFECTS)
    shares.append(claims / len(each) / len(EFFECTS))
    return f"| {name} | {noise} | " + " | ".join(f"{share:.1%}" for share in shares) + " |"


if __name__ == "__main__":
    main()
