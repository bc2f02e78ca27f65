"""Where lines of an older text stand in a newer one, from the two texts alone.

White space around a line does not count. What is before the first difference and behind the last one is found by its
place, what lies between by lines that both texts have once, and by the neighbours of those. A line that was edited
is nowhere, and is back where the edit is undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence


def places(before: Sequence[str], now: Sequence[str], wanted: Iterable[int]) -> dict[int, int]:
    """The present number of each of the `wanted` lines of `before` that still stands in `now`; they count from 0."""
    lines = [line for line in dict.fromkeys(wanted) if 0 <= line < len(before)]
    if before == now:
        return {line: line for line in lines}
    old, new = [line.strip() for line in before], [line.strip() for line in now]
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    shift = len(new) - len(old)
    between: dict[int, int] | None = None
    found: dict[int, int] = {}
    for line in lines:
        if line < head:
            found[line] = line
        elif line >= len(old) - tail:
            found[line] = line + shift
        else:
            if between is None:
                between = _between(old, new, (head, len(old) - tail), (head, len(new) - tail))
            if line in between:
                found[line] = between[line]
    return found


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _between(
    old: Sequence[str], new: Sequence[str], of_old: tuple[int, int], of_new: tuple[int, int]
) -> dict[int, int]:
    count_old, count_new = Counter(old[slice(*of_old)]), Counter(new[slice(*of_new)])
    at = {text: number for number, text in enumerate(new) if of_new[0] <= number < of_new[1]}
    found = {of_old[0] - 1: of_new[0] - 1, of_old[1]: of_new[1]}
    for number in range(*of_old):
        text = old[number]
        if text and count_old[text] == count_new[text] == 1:
            found[number] = at[text]
    taken = set(found.values())
    # a line that is there more than once is the one beside a line that is known
    for step, numbers in ((1, range(*of_old)), (-1, range(of_old[1] - 1, of_old[0] - 1, -1))):
        for number in numbers:
            beside = found.get(number - step)
            if number in found or beside is None or not of_new[0] <= beside + step < of_new[1]:
                continue
            if old[number] == new[beside + step] and beside + step not in taken:
                found[number] = beside + step
                taken.add(beside + step)
    return found
