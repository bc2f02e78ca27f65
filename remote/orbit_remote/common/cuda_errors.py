"""A CUDA call that failed, as the launch recorder reports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_FATAL = frozenset({214, 220, 700, 702, 710, *range(714, 720)})
"""ECC and NVLink errors, illegal address, time-out, assert, and all kinds of illegal instruction."""


@dataclass(frozen=True, slots=True)
class CudaError:
    """A CUDA call that failed. `last_kernel` is the one launched last, not surely the guilty one."""

    time_ns: int
    api: Literal["driver", "runtime"]
    function: str
    code: int
    name: str
    last_kernel: str | None
    process: int

    @property
    def fatal(self) -> bool:
        """Whether the CUDA context was lost with it: what the process did afterwards means nothing."""
        return self.code in _FATAL
