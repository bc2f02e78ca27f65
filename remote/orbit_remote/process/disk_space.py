"""Folders without disk space: found by writing there, because compilers report it as each other's fault.

nvcc with a full TMPDIR says "Failed to preprocess host compiler properties", and nothing of a disk.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from pathlib import Path

from orbit_remote.common.messages import Failure
from orbit_remote.process import client_environment

SAID = re.compile(r"No space left on device|Disk quota exceeded|not enough space", re.IGNORECASE)
"""Words of compilers, linkers and the C library."""

_ROOM = 4 << 20
"""Bytes that a compiler's temporary files take: a `.cu` that includes nothing, preprocessed, is 1.2 MB."""


def temporary() -> Path:
    """Where compilers write what they delete again, full or not; Python's own choice passes over full folders."""
    variables = client_environment.current()
    if os.name == "nt":
        return Path(variables.get("TMP") or variables.get("TEMP") or tempfile.gettempdir())
    return Path(variables.get("TMPDIR") or "/tmp")  # noqa: S108 - where they write themselves


def full(folder: Path) -> bool:
    """Whether the folder has no space left for a compilation. Writes 4 MiB to it and removes them."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            block = bytes(1 << 20)
            for _ in range(_ROOM // len(block)):
                if file.write(block) < len(block):
                    return True
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


def no_temporary() -> Failure:
    return Failure(
        "infrastructure",
        f"there is no space left in {temporary()}, where nvcc and g++ write their temporary files",
        "free some space there, or set TMPDIR to a folder that has some and restart the editor",
    )
