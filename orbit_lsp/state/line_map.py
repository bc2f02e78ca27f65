"""Finds the lines of an older text in a newer one, from the two texts alone.

White space around a line does not count. Lines before the first difference and behind the last one are found by their
places. A line between them is found if the text has it once, before and now, or if it stands beside such a line. A
line that was edited is not found, until the edit is undone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence


def places(before: Sequence[str], now: Sequence[str], wanted: Iterable[int]) -> dict[int, int]:
    """Return the present number of each of the `wanted` lines of `before` that is still in `now`. Lines count from 0."""
    old, new = list(before), list(now)
    head, tail = _ends(old, new)
    between: _Between | None = None
    lines: dict[int, int] = {}
    for line in dict.fromkeys(wanted):
        if 0 <= line < head:
            lines[line] = line
        elif len(old) - tail <= line < len(old):
            lines[line] = line + len(new) - len(old)
        elif head <= line < len(old):
            if between is None:
                between = _Between(*(_stripped(text[head : len(text) - tail]) for text in (old, new)))
            if (place := between.place(line - head)) is not None:
                lines[line] = head + place
    claimed = Counter(lines.values())  # equal lines that were moved cannot be told apart
    return {line: place for line, place in lines.items() if claimed[place] == 1}


def _stripped(lines: list[str]) -> list[str]:
    return [line.strip() for line in lines]


def _ends(old: list[str], new: list[str]) -> tuple[int, int]:
    """Return how many lines are the same at the beginning, and how many of the rest at the end."""
    head = _common(old, new)
    return head, _common(old[head:][::-1], new[head:][::-1])


def _common(first: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines are the same from the start. It compares slices, because Python compares these in C."""
    low, high = 0, min(len(first), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class _Between:
    """The parts of two texts between their equal beginning and their equal end. White space is ignored in them."""

    def __init__(self, old: list[str], new: list[str]) -> None:
        head, tail = _ends(old, new)
        self._old, self._new = old, new
        self._first, self._last = head, len(old) - tail
        self._shift = len(new) - len(old)
        part_old, part_new = old[head : len(old) - tail], new[head : len(new) - tail]
        self._before, self._now = Counter(part_old), Counter(part_new)
        self._at = {text: head + number for number, text in enumerate(part_new)}

    def place(self, line: int) -> int | None:
        known = self._known(line)
        if known is None:
            known = self._beside(line, -1)
        return self._beside(line, 1) if known is None else known

    def _known(self, line: int) -> int | None:
        if line < self._first:
            return line
        if line >= self._last:
            return line + self._shift
        text = self._old[line]
        once = text and self._before[text] == self._now[text] == 1
        return self._at[text] if once else None

    def _beside(self, line: int, step: int) -> int | None:
        """Return the place of a line beside the next known line in the direction `step`, if all lines between them
        are the same.
        """
        other = line + step
        while (place := self._known(other)) is None:
            other += step
        here = place + line - other
        if not self._first <= here < self._last + self._shift:
            return None
        low, high = (other + 1, line + 1) if step < 0 else (line, other)
        start = here + low - line
        return here if self._old[low:high] == self._new[start : start + high - low] else None
