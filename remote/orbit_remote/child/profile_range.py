"""In a job's own process under Nsight Compute: which launches it profiles.

It is started with `--profile-from-start off`, so that loading, compiling, checking and tuning are not profiled,
and listens to the driver's own two calls. Without a profiler they do nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Generator
from typing import Any


def start() -> None:
    """From here on; a CUDA context has to be there. Raises OSError where there is no driver."""
    _driver().cuProfilerStart()


def stop() -> None:
    _driver().cuProfilerStop()


@contextlib.contextmanager
def profiled(torch: Any = None) -> Generator[None]:
    """What is launched within; with a torch not what is still under way when it begins, and all of it."""
    synchronize = torch.cuda.synchronize if torch else lambda: None
    synchronize()
    start()
    try:
        yield
        synchronize()
    finally:
        stop()


def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")
