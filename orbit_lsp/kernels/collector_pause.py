"""Pauses the garbage collector while a long text is scanned, and keeps it from what the scan made.

A collection holds up all threads, for seconds if millions of containers live. The containers of a scan have no
cycles, and are freed without the collector when their file is closed.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

MANY: Final = 20_000
"""Containers that the collector visits in some 5 ms."""


class _Pauses:
    lock = threading.Lock()
    count = 0
    resumes = False


@contextmanager
def collector_pause() -> Generator[None]:
    """Pause the collector. Any thread may do so, several at once too. If fewer than `MANY` containers were made, all
    stay the collector's.
    """
    with _Pauses.lock:
        if not _Pauses.count:
            _Pauses.resumes = gc.isenabled()
            gc.disable()
        _Pauses.count += 1
    try:
        yield
    finally:
        with _Pauses.lock:
            _Pauses.count -= 1
            if gc.get_count()[0] > MANY:
                gc.freeze()
            if _Pauses.resumes and not _Pauses.count:
                gc.enable()
