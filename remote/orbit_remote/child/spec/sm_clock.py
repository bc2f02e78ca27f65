"""Measures the SM clock that launches really had, by the multiprocessors' own counters.

NVML names the clock that is set. A kernel may get less: on an H100 whose NVML said 1980 MHz nearly throughout,
tensor-core kernels ran at 1600 to 1800 MHz, others at 1980 (docs/dev/results/measurements-specs.md). So every
multiprocessor notes its cycle counter and the GPU's nanoseconds just before and just after the launches.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

from orbit_remote.child.spec.helper_kernels import Kernels

MOST_ROUNDS: Final = 10
MOST_NS: Final = 10_000_000
"""Rounds that are made for it: so many, or this time of kernels."""
_BLOCKS: Final = 8
"""For each multiprocessor, so that none is left out; one that has several notes the last."""
_THREADS: Final = 1
_NUMBER: Final = 8
"""Bytes."""


class SmClock:
    """The SM clock of torch's current device."""

    def __init__(self, torch: Any, kernels: Kernels) -> None:
        self._torch = torch
        self._kernels = kernels
        self._kernel = kernels.get("orbit_note_cycles")
        self._multiprocessors = int(kernels.device.properties.multiprocessor_count)
        self._config = kernels.core.LaunchConfig(grid=_BLOCKS * self._multiprocessors, block=_THREADS)

    def during(
        self, prepare: Callable[[], None], launches: Sequence[Callable[[], None]], each_ns: float
    ) -> float | None:
        """Return the mean in MHz from the start of the first launch to the end of the last. It takes some more rounds
        like those that were timed, `each_ns` long. Return None if even one round would be too long.
        """
        rounds = min(MOST_ROUNDS, int(MOST_NS // max(each_ns, 1)))
        if not rounds:
            return None
        # of each round a note before and one after
        notes = self._torch.zeros(
            (rounds, 2, self._multiprocessors, 2), dtype=self._torch.int64, device="cuda"
        )
        size = self._multiprocessors * 2 * _NUMBER
        places = range(int(notes.data_ptr()), int(notes.data_ptr()) + 2 * rounds * size, size)
        for before, after in zip(places[::2], places[1::2], strict=True):
            prepare()
            self._note(before)
            for launch in launches:
                launch()
            self._note(after)
        return mean_mhz(notes.cpu())

    def _note(self, place: int) -> None:
        places = ctypes.c_uint32(self._multiprocessors)
        self._kernels.core.launch(self._kernels.stream, self._config, self._kernel, place, places)


def mean_mhz(notes: Any) -> float | None:
    """Return cycles over nanoseconds between the notes before and after each round, of all multiprocessors that made
    both.

    `notes` has the shape (rounds, 2, multiprocessors, 2): before and after, nanoseconds and cycles; both are 0 for a
    multiprocessor that has made none.
    """
    before, after = notes[:, 0], notes[:, 1]
    both = (before[..., 0] > 0) & (after[..., 0] > before[..., 0])
    nanoseconds, cycles = (after - before)[both].sum(dim=0).tolist()
    return 1000 * cycles / nanoseconds if nanoseconds else None
