"""Makes tensors as a launch spec does: a dense one, and the views of it that give the captured strides."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from orbit_remote.child.capture.launch_watch import Form, NotCapturedError
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.values import contiguous, text_of

Said = Callable[[int], str]
"""An extent as text: a number, or the name that it has."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor is made. `extents` are those of the dense tensor. From it the slices `kept` (start, end) are
    taken, with `skipped` elements of a flat one in front of them. If it is `stepped`, only the first element of the
    last dimension is taken. The dimensions are put in `order`, and expanded to `shape`.
    """

    extents: tuple[int, ...]
    shape: tuple[int, ...]
    order: tuple[int, ...]
    kept: tuple[tuple[int, int], ...]
    stepped: bool = False
    skipped: int = 0

    @property
    def is_dense(self) -> bool:
        return self.extents == self.shape and not self.skipped

    def text(self, value: str, said: Said) -> str:
        """Return the views behind `value`, a text that makes the dense tensor."""
        if self.skipped:
            flat = f"{value}[{self.skipped}:]"
            return flat if len(self.shape) == 1 else f"{flat}.view({', '.join(map(said, self.shape))})"
        extents = self.extents[: len(self.kept)]
        cut = [
            ":" if (start, end) == (0, extent) else f"{start or ''}:{said(end)}"
            for (start, end), extent in zip(self.kept, extents, strict=True)
        ]
        cut += ["0"] if self.stepped else []
        while cut and cut[-1] == ":":
            cut.pop()
        value += f"[{', '.join(cut)}]" if cut else ""
        if self.order == (1, 0):
            value += ".T"
        elif self.order != tuple(range(len(self.order))):
            value += f".permute({', '.join(map(str, self.order))})"
        if self._viewed != self.shape:
            value += f".expand({', '.join(map(said, self.shape))})"
        return value

    @property
    def _viewed(self) -> tuple[int, ...]:
        """Return the shape before it is expanded."""
        sizes = [end - start for start, end in self.kept]
        return tuple(sizes[at] for at in self.order)

    def of(self, dense: Any) -> Any:
        """Return the same views of torch's tensor."""
        if self.skipped:
            return dense.reshape(-1)[self.skipped :].view(self.shape)
        items = [slice(start, end) for start, end in self.kept]
        view = dense[tuple([*items, 0] if self.stepped else items)]
        return view.permute(self.order).expand(self.shape)


def layout(name: str, form: Form) -> Layout:
    """Return how a launch spec makes a tensor of this form. Raises NotCapturedError if its elements overlap, or are
    not spread evenly.
    """
    shape, rank = form.shape, len(form.shape)
    aside = form.address % 16 // form.size
    dense = contiguous(shape)
    plain = all(
        extent == 1 or step == own for extent, step, own in zip(shape, form.strides, dense, strict=True)
    )
    whole = tuple((0, extent) for extent in shape)
    if 0 in shape or (plain and not aside):
        return Layout(shape, shape, tuple(range(rank)), whole)
    if plain:
        return Layout((aside + math.prod(shape),), shape, (), (), skipped=aside)
    single = [extent == 1 or step == 0 for extent, step in zip(shape, form.strides, strict=True)]
    steps = list(form.strides)
    for at in reversed(range(rank)):  # an extent of one element may have any step, so it gets its neighbour's
        if single[at]:
            steps[at] = steps[at + 1] * (1 if single[at + 1] else shape[at + 1]) if at + 1 < rank else 1
    outside_in = sorted(range(rank), key=lambda at: -steps[at])
    extents, kept = [0] * rank, [(0, 0)] * rank
    above = 0
    inner = 1
    for place, at in reversed(list(enumerate(outside_in))):
        wide = 1 if single[at] else shape[at]
        extents[place], kept[place] = wide, (0, wide)
    counted = [place for place, at in enumerate(outside_in) if not single[at]]
    for before, place in zip([None, *counted], counted, strict=False):
        step = steps[outside_in[place]]
        if before is not None:
            room, rest = divmod(steps[outside_in[before]], step)
            if rest or room < extents[place]:
                raise NotCapturedError(
                    f"{name} has the shape {text_of(shape)} and the strides {text_of(form.strides)}, which no views of a dense tensor have"
                )
            extents[place] = room
        above, inner = place, step
    if aside and counted and inner == 1 and extents[above] - kept[above][1] >= aside:
        kept[above] = (aside, aside + kept[above][1])
    elif aside:
        raise NotCapturedError(
            f"{name} begins {aside} elements behind an address that 16 divides, and is not dense"
        )
    order = tuple(outside_in.index(at) for at in range(rank))
    if inner > 1:
        return Layout((*extents, inner), shape, order, tuple(kept), stepped=True)
    return Layout(tuple(extents), shape, order, tuple(kept))
