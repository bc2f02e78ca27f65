"""Finds how long the arrays of a CUDA launch are. A pointer does not say it, and its allocation may be longer, as
torch's blocks are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from orbit_remote.child.capture import cuda_arguments, written_outputs
from orbit_remote.child.capture.cuda_spec_text import products
from orbit_remote.child.capture.launch_watch import Copies, Form, WatchedLaunch

_MOST_TRIED: Final = 40
_MOST_S: Final = 10.0
_LARGE: Final = 3e4
"""A number that float16 has too, and that no result has by chance."""


def bounded(
    torch: Any, taken: WatchedLaunch, block: Sequence[int], after: Copies, synchronize: Callable[[], None]
) -> tuple[WatchedLaunch, list[str]]:
    """Return the launch with each array no longer than its results depend on, if its integers give that size, and the
    names of the arrays that lie in something longer. Raises what a launch raises.
    """
    began = time.monotonic()
    numbers = cuda_arguments.sizes(taken.arguments)
    known = {value for _, value in products(numbers)}
    threads = math.prod(taken.grid) * math.prod(block)
    of_grid = {f"grid {at}": extent for at, extent in enumerate(taken.grid)}
    sizes = {value for _, value in products(numbers | of_grid)} | {
        math.prod(taken.grid),
        threads,
        2 * threads,
        4 * threads,
    }
    arguments = dict(taken.arguments)
    cut: list[str] = []
    for name, form in taken.forms.items():
        (full,) = form.shape
        if full in known:
            continue
        for count in [size for size in sorted(sizes) if size < full][:_MOST_TRIED]:
            if time.monotonic() - began > _MOST_S:
                break
            if _suffices(torch, taken, name, count, after, synchronize):
                arguments[name] = replace(form, shape=(count,))
                cut.append(name)
                break
    return replace(taken, arguments=arguments), cut


def _suffices(
    torch: Any, taken: WatchedLaunch, name: str, count: int, after: Copies, synchronize: Callable[[], None]
) -> bool:
    """Say whether the launch does not change what is behind the first `count` elements, and gives the same whatever
    stands there.
    """
    forms: Mapping[str, Form] = taken.forms
    for turn in range(2):
        copies = Copies(torch, taken)
        tail = copies.of(forms[name])[count:]
        _poison(torch, copies.of(forms[name]), count, turn)
        poison = tail.clone()
        copies.launch()
        synchronize()
        if not written_outputs.same(torch, tail, poison):
            return False
        for form in forms.values():
            behind = count * forms[name].size if form.address == forms[name].address else None
            if not _same_front(torch, copies.of(form), after.of(form), behind):
                return False
    return True


def _same_front(torch: Any, one: Any, other: Any, size: int | None) -> bool:
    """Say whether two results are alike in the first `size` bytes."""
    if size is None:
        return written_outputs.are_alike(torch, one, other)
    whole = size // one.element_size()
    return written_outputs.are_alike(torch, one[:whole], other[:whole])


def _poison(torch: Any, whole: Any, count: int, turn: int) -> None:
    """Fill what is behind. Floats become NaN, then large numbers of both signs, which a maximum or minimum would
    show. Integers become those of the array itself, which are valid indices if these are.
    """
    tail = whole[count:]
    if whole.is_floating_point():
        if turn == 0:
            tail.view(torch.uint8).fill_(0xFF)
        elif whole.element_size() == 1:
            tail.view(torch.uint8).fill_(0x70)
        else:
            tail.fill_(_LARGE)
            tail[1::3] = -_LARGE
        return
    bits = written_outputs.bits(torch, whole)
    first = bits[:count]
    times = -(-int(tail.numel()) // max(1, count))
    rolled = torch.roll(first.flip(0), turn + 1).repeat(times)[: tail.numel()]
    if bool((rolled == bits[count:]).all()):
        rolled = torch.zeros_like(rolled) if bool(bits[count:].any()) else torch.ones_like(rolled)
    bits[count:] = rolled
