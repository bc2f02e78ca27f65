"""Notes that a driver reads the file of a CUDA kernel by itself, as one does that compiles the text by CuPy, PyCUDA or NVRTC."""

from __future__ import annotations

import sys
from pathlib import Path

from orbit_remote.common.regular_files import file_hash

_read: dict[str, str] = {}


def watch(path: str) -> None:
    """Note from now on whether this process opens the file, and which content it has then. The watch cannot be ended."""
    name = Path(path).name

    def opened(event: str, arguments: tuple[object, ...]) -> None:
        if event != "open" or path in _read:
            return
        place = arguments[0]
        if isinstance(place, str) and place.endswith(name) and _is(place, path):
            _read[path] = ""  # the look itself opens the file
            _read[path] = file_hash(path) or ""

    sys.addaudithook(opened)


def noted() -> dict[str, str]:
    """Return the watched file by content hash, if the process has read it."""
    return {path: digest for path, digest in _read.items() if digest}


def _is(place: str, path: str) -> bool:
    try:
        return Path(place).samefile(path)
    except (OSError, ValueError):
        return False
