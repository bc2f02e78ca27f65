"""The drivers that authors pinned to kernels, and when they made orbit-lsp forget what runs had shown. The file in
the user's state folder has one JSON text a line.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from orbit_lsp.state import user_folders
from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Driver

log = logging.getLogger("orbit.drivers")


@dataclass(frozen=True, slots=True)
class Pin:
    """The driver that an author chose for a kernel, None if they chose none. What runs showed before `forgotten`, in
    seconds since 1970, does not count.
    """

    path: str
    kernel: str
    driver: Driver | None = None
    forgotten: float = 0.0


def of_file(where: Path, path: str) -> dict[str, Pin]:
    """Return the newest pin of each kernel of a source file, by the kernel's name. Return none if the file cannot be
    read.
    """
    pins: dict[str, Pin] = {}
    try:
        lines = regular_files.text(where, limits.STATE).splitlines()
    except (OSError, ValueError):
        return pins
    for line in lines:
        try:
            pin = codec.build(Pin, codec.read_json(line))
        except (ValueError, RecursionError):
            continue  # of another version
        if pin.path == path:
            pins[pin.kernel] = pin
    return pins


def keep(where: Path, change: Callable[[Pin], Pin], path: str, kernel: str) -> Pin:
    """Change the pin of a kernel, and return it. Raises OSError."""
    pin = change(of_file(where, path).get(kernel, Pin(path, kernel)))
    user_folders.append_line(where, json.dumps(asdict(pin)))
    return pin
