"""Fills shared memory before a checked launch, so that it holds nothing that could be right by chance.

Shared memory is not cleared between kernels. A kernel that reads what it has not written mostly finds what its own
last launch, or another kernel, left there, and that is often zero or even the right value. So the shared memory of
every multiprocessor is filled before a launch whose outputs are compared.
"""

from __future__ import annotations

import ctypes
from typing import Final

from orbit_remote.child.spec.helper_kernels import Kernels, opt_in

PATTERNS: Final = (0x7F7F7F7F, 0xFFFFFFFF)
"""For the check before timing and for that after it. As float32 3.4e38, which every maximum and every sum shows, and
NaN, which `fmaxf` passes over; as integers 2139062143 and -1.
"""
_THREADS: Final = 1024


class SharedMemory:
    """The shared memory of every multiprocessor of torch's current device."""

    def __init__(self, kernels: Kernels) -> None:
        device = kernels.device
        self._kernels = kernels
        self._kernel = kernels.get("orbit_fill_shared")
        size = int(device.properties.max_shared_memory_per_block_optin)
        self._words = size // 4
        opt_in(self._kernel, device, size)
        # blocks of all there is, resident at once: each multiprocessor has exactly one
        self._config = kernels.core.LaunchConfig(
            grid=int(device.properties.multiprocessor_count), block=_THREADS, shmem_size=size,
            is_cooperative=True,
        )  # fmt: skip

    def fill(self, turn: int) -> None:
        """Fill the shared memory. `turn` is as in `Trials.make`. The launch is in the stream of the launches to come."""
        pattern, words = ctypes.c_uint32(PATTERNS[turn]), ctypes.c_uint32(self._words)
        self._kernels.core.launch(self._kernels.stream, self._config, self._kernel, pattern, words)
