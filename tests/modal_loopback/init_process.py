"""Process 1 of a container: forks what it is given to run and outlives it by nothing.

Two pipes lead to whoever asked for it. To `news` it writes its own id, and at the end how the child exited, as a
shell would say it: 128 + the signal. From `orders` it reads signals for the child as numbers, a line each; the end of
that pipe (also that of whoever holds the other end) kills the child. Whatever the child leaves behind, in whichever session, is adopted and killed,
as it is when a real container goes. Linux alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def started(orders: int, news: int) -> None:
    """Returns in the child alone; the process that calls it ends here with the child."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.write(news, b"%d\n" % os.getpid())
    child = os.fork()
    if child == 0:
        os.close(orders)
        os.close(news)
        return
    try:
        os.write(news, b"%d\n" % _wait(child, orders))
    except BrokenPipeError:
        pass  # nobody asks any more
    finally:
        os._exit(0)


def _wait(child: int, orders: int) -> int:
    alive = threading.Lock()  # held while the child's id may be given to another process
    threading.Thread(target=_obey, args=(child, orders, alive), daemon=True).start()
    while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT).si_pid) != child:  # type: ignore[union-attr]
        os.waitpid(ended, 0)  # an adopted one, by its id: the child may have ended meanwhile
    alive.acquire()  # noqa: SIM115, RUF100
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _kill_children()
    return status if status >= 0 else 128 - status


def _obey(child: int, orders: int, alive: threading.Lock) -> None:
    with open(orders, "rb", buffering=0, closefd=False) as lines:
        while order := lines.readline():
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
