"""Finds where the Python of a job's process is. The process itself writes its stack when it gets a signal, also while
it waits in C.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import time
from pathlib import Path

from orbit_remote.common import limits, python_errors, regular_files
from orbit_remote.common.messages import Place

_SIGNAL = getattr(signal, "SIGUSR1", signal.SIGTERM)
"""Processes are forked, and asked, on Linux alone."""
_FILE = "stack"
_WAIT_S = 0.5
"""How long a process may take to write its stack; a stopped one never does."""
_LOOK_S = 0.005
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)


def tell_on_signal(folder: Path) -> None:
    """Let this process write its stack into the folder when it is asked."""
    with contextlib.suppress(OSError, AttributeError):  # without it, a hang is reported without its line
        file = os.open(folder / _FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        faulthandler.register(_SIGNAL, file=file, all_threads=False)


def ask(pid: int, folder: Path, path: str) -> tuple[Place, str] | None:
    """Return the author's line and function in which a process is. Return None if it does not say. `path` is its
    file.
    """
    try:
        os.kill(pid, _SIGNAL)
    except OSError:
        return None
    over = time.monotonic() + _WAIT_S
    while time.monotonic() < over:
        try:
            text = regular_files.text(folder / _FILE, limits.TOOL_OUTPUT)
        except OSError:
            return None
        if text.endswith("\n"):
            frames = [match for match in _FRAME.finditer(text) if python_errors.is_users(match["file"], path)]
            return (
                (Place(frames[0]["file"], int(frames[0]["line"])), frames[0]["function"]) if frames else None
            )
        time.sleep(_LOOK_S)
    return None
