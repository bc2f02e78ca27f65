"""Returns the memory of large texts to the system as soon as they are freed."""

from __future__ import annotations

import ctypes
import sys

_M_MMAP_THRESHOLD = -3  # malloc.h
_LARGE = 1 << 20


def give_back() -> None:
    """Make this process return large blocks of memory when they are freed.

    glibc maps a large block by itself. But once one is freed it keeps blocks of up to 32 MiB in its heaps, of which
    each thread has its own: a text of 20 MiB then costs ten times that. A fixed limit ends this.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
