"""Runs the commands of a notebook's cell, `!make`, on a terminal of their own, and passes their output on as it
comes.

IPython 9 does the same, but copies all earlier output each time that it looks: a command that prints 100 MB takes
minutes, one that prints 1 GB hours.
"""

from __future__ import annotations

import codecs
import os
import signal
import subprocess
import sys
from collections.abc import Callable

_PIECE = 1 << 16
_END_S = 0.2
"""How long a command may take to end after an interrupt."""


def system(command: str) -> int:
    """Return the exit status of a shell command, or minus the signal that ended it."""
    terminal, its = os.openpty()
    try:
        process = subprocess.Popen(
            [os.environ.get("SHELL") or "/bin/sh", "-c", command],
            stdin=its, stdout=its, stderr=its, start_new_session=True,
        )  # fmt: skip
    except BaseException:
        os.close(terminal)
        raise
    finally:
        os.close(its)
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    try:
        while _passed(terminal, decode):
            pass
        status = process.wait()
    except KeyboardInterrupt:
        status = _interrupted(process)
    finally:
        os.close(terminal)
    return 128 - status if status > 128 else status


def _passed(terminal: int, decode: Callable[[bytes], str]) -> bool:
    """Say whether more may come."""
    try:
        data = os.read(terminal, _PIECE)
    except OSError:  # no process has the other end any more
        return False
    sys.stdout.write(decode(data))
    return bool(data)


def _interrupted(process: subprocess.Popen[bytes]) -> int:
    for kind in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, kind)
            return process.wait(_END_S)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            break
    return process.wait()
