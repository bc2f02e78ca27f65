"""Holds back the first CUDA context of a job's processes until the worker has the GPU's lease.

A process asks by a byte in a named pipe in the folder of its launches. Then it waits for the lock of a file there,
which the worker holds until it has the lease. The system releases a lock with its holder, so nobody waits for a dead
worker. injection.cpp does the same at the call that makes a context (`wait_for_lease`).
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from orbit_remote.process import file_lock

_ASKED, _HELD_BACK = "lease.asked", "lease.lock"


class FirstContext:
    """The worker's end. Its descriptor becomes readable once a process has asked."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        os.mkfifo(folder / _ASKED, 0o600)
        # also opened for writing, or it would be at its end whenever no process asks
        self._asked: int | None = os.open(folder / _ASKED, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._lock = file_lock.taken_at(folder / _HELD_BACK)

    def fileno(self) -> int:
        """Raises ValueError once it is closed."""
        if self._asked is None:
            raise ValueError("it is closed")
        return self._asked

    @property
    def allowed(self) -> bool:
        return self._lock is None

    def allow(self) -> None:
        """Let the waiting processes go on, and those that will ask."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def close(self) -> None:
        self.allow()
        if self._asked is not None:
            os.close(self._asked)
            self._asked = None


def wait(folder: Path) -> float:
    """Wait for the lease, and return the seconds that this process has waited. If nobody holds contexts back, return
    at once.
    """
    began = time.monotonic()
    with contextlib.suppress(OSError):
        asked = os.open(folder / _ASKED, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(asked, b"\n")
        finally:
            os.close(asked)
        os.close(file_lock.waited_for(folder / _HELD_BACK))
    return time.monotonic() - began
