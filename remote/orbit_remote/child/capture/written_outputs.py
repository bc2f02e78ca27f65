"""Finds which tensors a captured launch writes, and which it only writes, by launching it again on copies, also on
poisoned ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from orbit_remote.child.capture.launch_watch import Copies, Form, WatchedLaunch
from orbit_remote.common.lazy_dataclass import dataclass

_CLOSE = 1e-2
"""How far, as a share of the root mean square, results of different orders of adding may lie apart."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The roles of tensors. `outputs` are written. What the `unread` ones hold before the launch does not count; the
    `fresh` ones are also overwritten completely.
    """

    outputs: tuple[str, ...]
    fresh: frozenset[str]
    unread: frozenset[str]
    after: Copies
    """The memory after a launch."""


def roles(torch: Any, taken: WatchedLaunch, forms: dict[str, Form], synchronize: Callable[[], None]) -> Roles:
    """Find the roles by launching the kernel some times on copies. Raises what a launch raises."""

    def launched(poisoned: Iterable[str] = ()) -> tuple[Copies, dict[str, Any]]:
        copies = Copies(torch, taken)
        poisons = {name: _poison(torch, copies.of(forms[name])) for name in poisoned}
        copies.launch()
        synchronize()
        return copies, poisons

    before = Copies(torch, taken)
    after, _ = launched()
    changed = [name for name, form in forms.items() if not same(torch, before.of(form), after.of(form))]
    unchanged = [name for name in forms if name not in changed and before.of(forms[name]).numel()]
    fresh: set[str] = set()
    unread: set[str] = set()
    groups = [changed] if len(changed) > 1 else []
    for group in [*groups, *([name] for name in changed)]:
        left = [name for name in group if name not in fresh]
        if left:
            copies, poisons = launched(left)
            if len(group) == 1 and _is_unread(torch, before.of(forms[left[0]]), after.of(forms[left[0]]), copies.of(forms[left[0]]), poisons[left[0]]):  # fmt: skip
                unread.add(left[0])
            alike = [are_alike(torch, copies.of(forms[name]), after.of(forms[name])) for name in left]
            if all(alike) or len(group) == 1:
                fresh |= {name for name, is_alike in zip(left, alike, strict=True) if is_alike}
    rewritten: list[str] = []
    for name in unchanged:
        if not before.of(forms[name]).is_floating_point() and not bool(
            bits(torch, before.of(forms[name]).contiguous()).any()
        ):
            continue  # its poison would be its content
        copies, poisons = launched([name])
        found = copies.of(forms[name])
        if not same(torch, found, poisons[name]):
            rewritten.append(name)
            known = before.of(forms[name])
            if _is_unread(torch, known, known, found, poisons[name]):
                unread.add(name)
            if are_alike(torch, found, after.of(forms[name])):
                fresh.add(name)
    outputs = tuple(name for name in forms if name in changed or name in rewritten)
    return Roles(outputs, frozenset(fresh), frozenset(unread | fresh), after)


def _is_unread(torch: Any, before: Any, after: Any, poisoned: Any, poison: Any) -> bool:
    """Say whether each element of an output either equals what it is without the poison, or was not changed either
    time.
    """
    first, second, third, fourth = (
        bits(torch, each.contiguous()) for each in (before, after, poisoned, poison)
    )
    return bool(((third == second) | ((third == fourth) & (second == first))).all())


def bits(torch: Any, tensor: Any) -> Any:
    """Return the elements of a dense tensor as integers of their size, in a type that torch computes with."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(kinds[tensor.element_size()])


def same(torch: Any, one: Any, other: Any) -> bool:
    """Say whether two tensors of one form have the same bytes."""
    first, second = (each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
    return bool(torch.equal(first, second))


def _poison(torch: Any, tensor: Any) -> Any:
    """Fill a tensor with a value that is no result, and return its content. Integers may be indices or counts: they
    become 0, or 1 if they were 0.
    """
    target = tensor[tuple(slice(0, 1) if step == 0 and extent > 1 else slice(None) for extent, step in zip(tensor.shape, tensor.stride(), strict=True))]  # fmt: skip
    if tensor.is_floating_point():
        whole = torch.full(
            (target.numel() * tensor.element_size(),), 0xFF, dtype=torch.uint8, device=tensor.device
        )
        target.copy_(whole.view(tensor.dtype).reshape(target.shape))
    else:
        target.fill_(0 if bool(bits(torch, tensor.contiguous()).any()) else 1)
    return tensor.clone()


def are_alike(torch: Any, one: Any, other: Any) -> bool:
    """Say whether two results may be the same except for the order of additions."""
    if same(torch, one, other):
        return True
    if not one.is_floating_point():
        return False
    first, second = one.to(torch.float64), other.to(torch.float64)
    if not bool((first.isnan() == second.isnan()).all() and (first.isinf() == second.isinf()).all()):
        return False
    finite = second.isfinite()
    apart = torch.where(finite, (first - second).abs(), 0.0).max()
    scale = torch.where(finite, second.square(), 0.0).mean().sqrt()
    return bool(apart <= _CLOSE * scale)
