"""Ports for the kernels of notebooks. jupyter_client asks the system for a free port, gives it back, and writes it down for the kernel: a
program that asks meanwhile gets the same one, and the kernel ends with "Address already in use". These are below the ports that the
system gives (32768 and more on Linux), and each process of pytest has some of its own.
"""

from __future__ import annotations

import os
import random
import socket

from jupyter_client.connect import LocalPortCache

_FIRST = 10_000
_EACH = 2_000
_PROCESSES = 11


def _find(ports: LocalPortCache, ip: str) -> int:
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PROCESSES
    while True:
        port = _FIRST + _EACH * number + random.randrange(_EACH)
        if port in ports.currently_used_ports:
            continue
        with socket.socket() as trial:
            try:
                trial.bind((ip, port))
            except OSError:
                continue
        ports.currently_used_ports.add(port)
        return port


def use() -> None:
    """For all kernels that this process starts."""
    LocalPortCache.find_available_port = _find
