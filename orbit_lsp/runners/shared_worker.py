"""The worker that this user's clients on this machine share, as runners and commands see it
(`process/worker_socket.py`).
"""

from __future__ import annotations

import os
import sys

from orbit_remote.process.worker_socket import (
    LINE_LIMIT,
    Attached,
    WantedWorker,
    WorkerError,
    attach,
    running,
    stop,
)

__all__ = ["LINE_LIMIT", "Attached", "WantedWorker", "WorkerError", "attach", "possible", "running", "stop"]

VARIABLE = "ORBIT_SHARED_WORKER"
"""`no` turns sharing off for whatever is started with it, as continuous integration may want."""


def possible() -> bool:
    """Return whether the kernel says who is at the other end of a socket, and sharing was not turned off."""
    return sys.platform == "linux" and os.environ.get(VARIABLE, "") != "no"
