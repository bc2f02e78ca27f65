"""Families of arguments that a problem's own draw does not suggest, made from one draw. Pure, except for the random
numbers.

A candidate that is right only for the draw's distribution is wrong in one of them: values of another size, without
spread, in order, with signs or magnitudes that the draw does not have, or the same values except for a part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from orbit_remote.common.contracts.harness_files import Domain
from orbit_remote.common.lazy_dataclass import dataclass

_SCALE: Final = 100.0
_SHIFT: Final = 3.0
"""Of the root mean square of the draw."""
_OUTLIER: Final = 1000.0
_TAIL: Final = 2.0
"""Standard deviation of the logarithm of the factor that makes tails heavy: one of 740 values is over 400 times as large."""
_BLOCKS: Final = 16


@dataclass(frozen=True, slots=True)
class Family:
    """A family. `vary` makes new values, of float32 or wider, from one tensor's (its rms is above 0) and from those
    of another draw. `in_order`: no two different values become equal, as an answer of positions may need.
    `after_the_draw`: the candidate gets the draw in the call before.
    """

    name: str
    domains: tuple[Domain, ...]
    vary: Callable[[Any, Any, Any, float], Any]
    in_order: bool = False
    after_the_draw: bool = False


def _constant(torch: Any, values: Any, _other: Any, rms: float) -> Any:
    return torch.full_like(values, rms)


def _sorted(torch: Any, values: Any, _other: Any, _rms: float) -> Any:
    return torch.sort(values, dim=-1).values


def _alternating(torch: Any, values: Any, _other: Any, _rms: float) -> Any:
    signs = 1 - 2 * (torch.arange(values.shape[-1], device=values.device) % 2).to(values.dtype)
    return values.abs() * signs


def _heavy(torch: Any, values: Any, _other: Any, _rms: float) -> Any:
    return values * torch.exp(_TAIL * torch.randn_like(values))


def _outlier(torch: Any, values: Any, _other: Any, rms: float) -> Any:
    made = values.clone()
    made.view(-1)[int(torch.randint(made.numel(), ()))] = _OUTLIER * rms
    return made


def _permuted(torch: Any, values: Any, _other: Any, _rms: float) -> Any:
    dim = next((at for at, size in enumerate(values.shape) if size > 1), 0)
    return values.index_select(dim, torch.randperm(values.shape[dim], device=values.device))


def _prefix(_torch: Any, values: Any, other: Any, _rms: float) -> Any:
    made = values.clone()
    half = made.numel() // 2
    made.view(-1)[half:] = other.reshape(-1)[half:]
    return made


def _block(torch: Any, values: Any, other: Any, _rms: float) -> Any:
    made = values.clone()
    size = max(1, made.numel() // _BLOCKS)
    start = int(torch.randint(made.numel() - size + 1, ()))
    made.view(-1)[start : start + size] = other.reshape(-1)[start : start + size]
    return made


_ALL: Final[tuple[Domain, ...]] = ("any", "nonnegative", "positive", "unit", "drawn")
FAMILIES: Final = (
    Family(f"scaled by 1/{_SCALE:g}", _ALL[:4], lambda _t, values, _o, _r: values / _SCALE),
    Family(f"scaled by {_SCALE:g}", _ALL[:3], lambda _t, values, _o, _r: values * _SCALE),
    Family("shifted up", _ALL[:3], lambda _t, values, _o, rms: values + _SHIFT * rms),
    Family("shifted down", _ALL[:1], lambda _t, values, _o, rms: values - _SHIFT * rms),
    Family("constant", _ALL[:4], _constant),
    Family("sorted", _ALL, _sorted, in_order=True),
    Family("alternating signs", _ALL[:1], _alternating),
    Family("heavy tails", _ALL[:3], _heavy),
    Family("one large outlier", _ALL[:3], _outlier, in_order=True, after_the_draw=True),
    Family("permuted rows", _ALL, _permuted, in_order=True),
    Family("zeros", ("any", "nonnegative", "unit"), lambda torch, values, _o, _r: torch.zeros_like(values)),
    Family("the same prefix, another rest", _ALL, _prefix, in_order=True, after_the_draw=True),
    Family("the same but for a block", _ALL, _block, in_order=True, after_the_draw=True),
)


def fits(torch: Any, tensor: Any) -> bool:
    """Say whether a tensor has families: it has more than one finite number, not all zero."""
    if not tensor.is_floating_point() or tensor.numel() < 2 or not tensor.dim():
        return False
    wide = _wide(torch, tensor)
    return bool(wide.isfinite().all()) and bool((wide != 0).any())


def varied(torch: Any, family: Family, tensor: Any, other: Any) -> Any:
    """Return new values of the tensor's shape and type, within the type's range. What `get_inputs` repeats by
    `expand` stays repeated: a candidate may rely on that.
    """
    own, another = _unrepeated(torch, tensor, other)
    values = _wide(torch, own)
    rms = float(values.double().norm()) / values.numel() ** 0.5
    made = family.vary(torch, values.contiguous(), _wide(torch, another), rms)
    most = torch.finfo(tensor.dtype).max
    return made.clamp(-most, most).to(tensor.dtype).expand(tensor.shape)


def rehearse(torch: Any, values: Any) -> None:
    """Vary a matrix by each family, because CUDA loads each kernel when it is first launched."""
    for family in FAMILIES:
        varied(torch, family, values, values)


def _unrepeated(torch: Any, tensor: Any, other: Any) -> tuple[Any, Any]:
    """Return two draws without the dimensions along which both repeat themselves; these have the extent 1 then. A
    constant is no repetition.
    """
    own, another = tensor, other
    for axis in range(tensor.dim()):
        if tensor.shape[axis] < 2:
            continue
        first, second = own.narrow(axis, 0, 1), another.narrow(axis, 0, 1)
        if bool((_wide(torch, own) == _wide(torch, first)).all()) and bool(
            (_wide(torch, another) == _wide(torch, second)).all()
        ):
            own, another = first, second
    return (own, another) if own.numel() > 1 else (tensor, other)


def _wide(torch: Any, tensor: Any) -> Any:
    return tensor if tensor.dtype == torch.float64 else tensor.float()
