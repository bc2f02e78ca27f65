"""Fits short texts into a number of columns: what matters least is shortened first, then left out."""

from __future__ import annotations

from collections.abc import Sequence

from orbit_remote.common.lazy_dataclass import dataclass

LENS = 60
"""Columns of a kernel's whole row of lenses, as editors join them. A window of 80 has room for it beside a gutter."""
HINT = 39
"""Columns of a hint, which an editor puts one column behind its line."""
BETWEEN = " · "
FILLER = 8
"""From this rank on parts are left out before any other is shortened."""


@dataclass(frozen=True, slots=True)
class Part:
    """One text and its shorter forms, the longest first. A part of a lower `rank` is kept longer."""

    rank: int
    forms: tuple[str, ...]

    @classmethod
    def of(cls, rank: int, *forms: str) -> list[Part]:
        """Return a list with the part, or an empty list for an empty text."""
        return [cls(rank, forms)] if forms and forms[0] else []


def fit(parts: Sequence[Part], columns: int) -> str:
    """Join the parts in their order. By rank, as many stay as there is room for, each in its longest form that fits."""
    chosen: dict[int, int] = {}
    ranked = sorted(range(len(parts)), key=lambda index: parts[index].rank)
    for wanted in (True, False):
        now = [index for index in ranked if (parts[index].rank < FILLER) is wanted]
        for index in now:
            with_it = chosen | {index: len(parts[index].forms) - 1}
            chosen = with_it if len(_text(parts, with_it)) <= columns else chosen
        for index in now:
            while chosen.get(index):
                longer = chosen | {index: chosen[index] - 1}
                if len(_text(parts, longer)) > columns:
                    break
                chosen = longer
    return _text(parts, chosen) or cut(parts[ranked[0]].forms[-1] if ranked else "", columns)


def cut(text: str, columns: int) -> str:
    """Cut a text to this many columns, with `…` at the end of a longer text."""
    return text if len(text) <= columns else text[: columns - 1].rstrip() + "…"


def _text(parts: Sequence[Part], chosen: dict[int, int]) -> str:
    return BETWEEN.join(parts[index].forms[chosen[index]] for index in sorted(chosen))
