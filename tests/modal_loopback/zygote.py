"""The process that containers are forked from: it has imported Modal's entrypoint once, for a whole test run.

    python zygote.py modal._container_entrypoint SOCKET

A request is one message on that socket: JSON, and four descriptors - two for `init_process`, for standard output,
for standard error. The container runs what `python -m modal._container_entrypoint` runs, in a process with the
environment, the folder and the `sys.path` that a fresh one would have; where the request says `fresh`, it is a fresh
one. The end of the socket ends this process and none of its containers: those end with descriptors of their own.

No loop and no thread may start here: neither survives a fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

# this file's folder is on the path for the one import; containers have neither
import init_process

# what apps import of the standard library
LATER = ("concurrent.futures.thread", "ctypes")
LONGEST = 1 << 20  # bytes of a request


def main(module: str, requests: socket.socket) -> None:
    """Returns in a container alone, ready to run `module`."""
    ours = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    signal.signal(signal.SIGCHLD, _reap)
    importlib.import_module(module)
    for name in LATER:
        importlib.import_module(name)
    del sys.modules[module]  # it runs under the name __main__, as with `-m`
    sys.path[:] = [entry for entry in sys.path if entry not in ours]
    gc.collect()
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, LONGEST, 4)
        if not message:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            _begin(json.loads(message), module, descriptors)
            return
        for descriptor in descriptors:
            os.close(descriptor)


def _reap(*_: object) -> None:
    """Not left to the kernel, as SIG_IGN does it: then nobody would be told how much work they did."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _begin(asked: dict[str, Any], module: str, descriptors: Sequence[int]) -> None:
    orders, news, *streams = descriptors
    os.setsid()
    for number, stream in enumerate(streams, 1):
        os.dup2(stream, number)
        os.close(stream)
    # as a process that no shell has started in its background
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    init_process.started(orders, news)
    os.chdir(asked["folder"])
    if asked["fresh"]:
        os.execve(sys.executable, [sys.executable, "-m", module], asked["environment"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    tempfile.tempdir = None
    given = [entry for entry in asked["environment"].get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [str(Path.cwd()), *given, *sys.path]
    importlib.invalidate_caches()


if __name__ == "__main__":
    del sys.path[0], sys.modules["init_process"]
    wanted = sys.argv[1]
    main(wanted, socket.socket(fileno=int(sys.argv[2])))
    sys.modules["__main__"] = ModuleType("__main__")
    del sys.argv[1:]
    runpy.run_module(wanted, run_name="__main__", alter_sys=True)
