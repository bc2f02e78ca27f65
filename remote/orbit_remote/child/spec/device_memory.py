"""The memory that a launch spec's kernels get: copies of the inputs that can be restored, and are watched.

Kernels never touch the values of the spec themselves, because what is expected is computed from them afterwards. What
a kernel may write lies in a copy between two guard bands. So does what it can only read, if there is room: a read out
of bounds then meets NaN, and not by chance the right value. `empty(…)` is filled with a pattern that no kernel leaves
by chance: if it is still there, nothing was written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.spec.values import Tensor

POISONS: Final = (0xFF, 0x7F)
"""Bytes that unwritten outputs hold, one for the check before timing and one for that after it: all types
of floating-point numbers read 0xFF… as NaN; an integer kernel that happens to leave -1 meets another
number the second time.
"""

_GUARD: Final = 0xFF
"""NaN in every floating-point type, and not the one that the GPU's arithmetic returns (0x7FF…): whatever a
kernel computes from it and writes back is another number.
"""
_LEAST_BAND: Final = 4 << 10
_MOST_BAND: Final = 1 << 20
_ALIGNMENT: Final = 512  # what cudaMalloc and torch align to at least, and a multiple of every element


@dataclass(frozen=True, slots=True)
class Trespass:
    """A write outside of a buffer: `offset` bytes before its start (negative), or past its end."""

    name: str
    offset: int
    bytes: int


class _Buffer:
    """One storage of the spec, as kernels see it."""

    def __init__(
        self, torch: Any, tensor: Tensor, writable: bool, unset: bool, poison: int, apart: bool
    ) -> None:
        self.name = tensor.storage or "a tensor"
        self.writable = writable
        self.unset = unset
        self.dirty = False
        self._torch = torch
        storage = tensor.data.untyped_storage()
        self.original = torch.empty(0, dtype=torch.uint8, device=tensor.data.device).set_(storage)
        self.size = int(self.original.numel())
        self._element = int(tensor.data.element_size())
        if not writable and not apart:
            self.whole, self.band, self.body = self.original, 0, self.original
            return
        self.band = _band(self.size)
        self.whole = torch.full(
            (self.band + self.size + self.band,), _GUARD, dtype=torch.uint8, device=tensor.data.device
        )
        self.body = self.whole[self.band : self.band + self.size]
        if unset:
            self.body.fill_(poison)
        else:
            self.body.copy_(self.original)

    def view(self, tensor: Any) -> Any:
        """Return the same elements as a tensor of the spec, in this memory."""
        shift = self.band // tensor.element_size() + tensor.storage_offset()
        made = self._torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return made.set_(self.whole.untyped_storage(), shift, tensor.shape, tensor.stride())

    def look(self) -> None:
        """Note whether its content has been changed. That of an `empty(…)` never has to be restored."""
        if self.writable and not self.unset:
            self.dirty = not bool(self._torch.equal(self.body, self.original))

    def trespass(self) -> Trespass | None:
        if not self.writable:
            return None
        before, after = self.whole[: self.band], self.whole[self.band + self.size :]
        # compared by elements, because some written bytes may equal the guard's
        differs = self._torch.cat((before, after)).view(-1, self._element).ne(_GUARD).any(dim=1)
        changed = differs.nonzero().flatten() * self._element
        count = int(changed.numel()) * self._element
        if not count:
            return None
        behind = changed[changed >= self.band]
        first = behind if behind.numel() else changed
        return Trespass(self.name, int(first[0]) - self.band, count)


class Memory:
    """The buffers of one set of values. `tensors` are what launches are given, each with whether they may write it.
    What they only read is copied, and lies between bands too, if that takes at most `spare` bytes.
    """

    def __init__(
        self, torch: Any, tensors: Iterable[tuple[Tensor, bool]], poison: int, spare: int = 0
    ) -> None:
        self._torch = torch
        self._poison = poison
        storages: dict[int, tuple[Tensor, bool, bool]] = {}
        for tensor, writable in tensors:
            key = _key(tensor)
            _, written, unset = storages.get(key, (tensor, False, False))
            storages[key] = (tensor, written or writable, unset or tensor.unset)
        read = [
            tensor.data.untyped_storage().nbytes()
            for tensor, writable, _ in storages.values()
            if not writable
        ]
        apart = sum(size + 2 * _band(size) for size in read) <= spare
        self._buffers = {
            key: _Buffer(torch, tensor, writable, unset, poison, apart)
            for key, (tensor, writable, unset) in storages.items()
            if tensor.numel
        }

    def of(self, tensor: Tensor) -> Any:
        """Return torch's tensor in the memory that kernels see. Return the value itself if no launch is given it."""
        buffer = self._buffers.get(_key(tensor)) if tensor.numel else None
        return tensor.data if buffer is None else buffer.view(tensor.data)

    @property
    def footprint(self) -> int:
        """Return the bytes of distinct memory that the launches are given."""
        return sum(buffer.size for buffer in self._buffers.values())

    def look(self) -> None:
        """Note which buffers the launches have changed: `restore` is for those."""
        for buffer in self._buffers.values():
            buffer.look()

    def restore(self) -> None:
        """Restore the changed buffers to their content before the first launch."""
        for buffer in self._buffers.values():
            if buffer.dirty:
                buffer.body.copy_(buffer.original)

    def changed(self) -> set[str]:
        """Return the names of what was written, as far as `look` has seen. An `empty(…)` counts as written."""
        return {
            buffer.name
            for buffer in self._buffers.values()
            if buffer.dirty or (buffer.unset and buffer.writable)
        }

    def trespasses(self) -> list[Trespass]:
        return [trespass for buffer in self._buffers.values() if (trespass := buffer.trespass())]


def needed(tensors: Iterable[tuple[Tensor, bool]]) -> int:
    """Return the bytes that the values and the copies for kernels take, from descriptions without data."""
    sizes: dict[str, tuple[int, bool]] = {}
    for at, (tensor, writable) in enumerate(tensors):
        key = tensor.storage or f"#{at}"
        size, written = sizes.get(key, (0, False))
        sizes[key] = (max(size, tensor.bytes), written or writable)
    return sum(size + (size + 2 * _band(size) if written else 0) for size, written in sizes.values())


def _band(size: int) -> int:
    """Return the size of a band. One as large as the buffer catches any index that is wrong by its own length; a MiB
    is enough to catch one that is wrong by a row.
    """
    wanted = min(max(size, _LEAST_BAND), _MOST_BAND)
    return -(-wanted // _ALIGNMENT) * _ALIGNMENT


def _key(tensor: Tensor) -> int:
    return int(tensor.data.untyped_storage().data_ptr())
