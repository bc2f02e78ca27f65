"""The garbage collector waits while a long text is scanned, and never looks at what the scan made.

A collection holds up all threads: for seconds where millions of containers live. Those of a scan have no cycles and go
when their file is closed, without the collector.
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
    """From any thread, in several at once too. Made fewer than `MANY` containers, all stay the collector's."""
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
