"""Process 1 of a container: starts the command it is given and outlives it by nothing.

Signals come as numbers, a line each, on standard input; its end (also that of whoever holds it) kills the
command. Whatever the command leaves behind, in whichever session, is adopted and killed, as it is when a real
container goes. Exits as a shell would: 128 + the signal. Linux alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def main(command: list[str]) -> int:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.execv(command[0], command)
        finally:
            os._exit(127)
    alive = threading.Lock()  # held while the child's id may be given to another process
    threading.Thread(target=_obey, args=(child, alive), daemon=True).start()
    while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_pid != child:  # type: ignore[union-attr]
        os.waitpid(-1, 0)  # an adopted one
    alive.acquire()  # noqa: SIM115, RUF100
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _kill_children()
    return status if status >= 0 else 128 - status


def _obey(child: int, alive: threading.Lock) -> None:
    with open(0, "rb", buffering=0, closefd=False) as orders:
        while order := orders.readline():
            _signal(child, int(order), alive)
    _signal(child, signal.SIGKILL, alive)


def _signal(child: int, number: int, alive: threading.Lock) -> None:
    if alive.acquire(blocking=False):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
        alive.release()


def _kill_children() -> None:
    """Until there are none: the children of a killed process become ours."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for entry in Path("/proc").glob("[0-9]*/stat"):
                with contextlib.suppress(OSError):
                    # the name before it, in parentheses, may hold anything
                    parent = entry.read_text(errors="replace").rpartition(")")[2].split()[1]
                    if int(parent) == os.getpid():
                        os.kill(int(entry.parent.name), signal.SIGKILL)
            os.waitpid(-1, 0)


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main(sys.argv[1:]))
