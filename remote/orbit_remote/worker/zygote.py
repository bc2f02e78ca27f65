"""The process that has imported torch and triton, and the spares forked from it. Linux only.

Importing takes seconds, a fork milliseconds. But CUDA does not survive a fork, so the template never touches it and
each spare opens its own context. A spare serves one job, because user code may leave anything behind, and a CUDA
error leaves a lost context. For launch specs of CUDA files it serves any number of jobs, as long as they end well. A
judge opens no context before its sides are there, which may wait for its job with it.

Messages on its standard input, a sequenced socket, tell the template what to do: {"fork": id, "launches": folder,
"role": "spare", "batch": false, "waits": null} with three descriptors: events, standard output, standard error. The
role is a word of `child_main.Role`. If many jobs follow, `batch` is true, and the template imports more for the next
ones. `waits` is {"folder": …, "device": "cuda", "index": 0} for a judge that prepares its sides before its job. The
template answers {"forked": id, "pid": …} and {"ended": id, "status": …}. When the socket ends, the worker has gone,
however it died: every group is killed and the template leaves.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from orbit_remote.child import child_main
from orbit_remote.common import codec, lazy_dataclass
from orbit_remote.process import process_groups, python_stack
from orbit_remote.recording import recorder

DESCRIPTORS = 3


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="orbit_remote template")
    parser.add_argument("--cache", required=True, type=Path)
    options = parser.parse_args(arguments)
    process_groups.reap_orphans()
    control = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    child_main.warm_up()
    lazy_dataclass.complete()
    gc.collect()
    gc.freeze()  # a collection in a spare would copy every page of what is shared
    # From here on the end of the socket ends us, not the death of the worker: first the groups have to go.
    process_groups.die_with_parent(0)
    Template(control, options.cache).serve()
    return 0


class Template:
    def __init__(self, control: socket.socket, cache: Path) -> None:
        self._control = control
        self._cache = cache
        self._spares: dict[int, int] = {}  # pid -> id
        self._warmed_up = self._warmed_up_for_batch = self._warmed_up_for_judges = False

    def serve(self) -> None:
        """Serve until the worker's end of the socket is closed."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _wake)
        try:
            while True:
                ready, _, _ = select.select([self._control, woken], [], [])
                if woken in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(woken, 1 << 10)
                    self._reap()
                if self._control in ready and not self._obey():
                    return
        finally:
            for pid in self._spares:
                process_groups.kill_group(pid)
            process_groups.end_strays(lambda _pid, _session: False)

    def _obey(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, DESCRIPTORS)
        if not message:
            return False
        order = codec.read_json(message)
        pid = os.fork()
        if pid == 0:
            self._be_child(order["role"], Path(order["launches"]), order["waits"], *descriptors)
        with contextlib.suppress(OSError):  # here and in the child, whichever is first
            os.setpgid(pid, pid)
        for descriptor in descriptors:
            os.close(descriptor)
        self._spares[pid] = order["fork"]
        self._tell(forked=order["fork"], pid=pid)
        self._warm_up_further(order["batch"])
        if order["role"] == "judge" and not self._warmed_up_for_judges:
            self._warmed_up_for_judges = True
            child_main.warm_up_for_judges()
        return True

    def _warm_up_further(self, batch: bool) -> None:
        """Import more while the forked process begins: once, and once more when a batch begins."""
        if self._warmed_up and (self._warmed_up_for_batch or not batch):
            return
        self._warmed_up, self._warmed_up_for_batch = True, batch
        child_main.warm_up_further(batch=batch)
        gc.collect()
        gc.freeze()

    def _reap(self) -> None:
        for pid, spare in list(self._spares.items()):
            waitid_result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if waitid_result is None:
                continue
            # its number is still its own: whatever it started goes with it
            process_groups.kill_group(pid)
            _, status = os.waitpid(pid, 0)
            del self._spares[pid]
            process_groups.end_strays(lambda pid, _session: pid in self._spares)
            self._tell(ended=spare, status=os.waitstatus_to_exitcode(status))

    def _tell(self, **message: Any) -> None:
        with contextlib.suppress(OSError):  # the worker has gone; its end of the socket says so next
            self._control.send(json.dumps(message).encode())

    def _be_child(
        self,
        role: child_main.Role,
        launches: Path,
        waits: dict[str, Any] | None,
        events: int,
        stdout: int,
        stderr: int,
    ) -> None:
        """Be the forked child; never return. Only a spare and a driver write into `launches`."""
        status, connection = 1, socket.socket(fileno=events)
        try:
            template = os.getppid()
            process_groups.die_with_parent()
            process_groups.reap_orphans()
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            os.dup2(stdout, 1)
            os.dup2(stderr, 2)
            os.close(stdout)
            os.close(stderr)
            if os.getppid() == template:
                status = self._wait_for_job(role, launches, waits, connection)
        except BaseException as error:  # noqa: BLE001 - nothing may unwind into the template's frames
            print(f"orbit: a spare failed: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            child_main.leave(status, connection)

    def _wait_for_job(
        self,
        role: child_main.Role,
        launches: Path,
        waits: dict[str, Any] | None,
        connection: socket.socket,
    ) -> int:
        connection.set_inheritable(False)
        python_stack.tell_on_signal(launches)
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed()  # else every spare draws the same numbers
        if role == "judge":
            from orbit_remote.judge import judge_main

            sides = judge_main.waiting(waits, self._cache) if waits else None
            connection.sendall(child_main.READY.encode())
            return judge_main.serve(connection, self._cache, sides)
        if role == "driver":
            return child_main.serve_driver(connection, self._cache, launches)
        recording: recorder.Recorder = recorder.Nothing()
        if role == "spare":
            recording = child_main.begin_recording(self._cache, launches)
        else:  # the driver aborts it, and writing out gigabytes of host memory takes seconds
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        connection.sendall(child_main.READY.encode())
        return child_main.serve(connection, recording)


def _wake(_number: int, _frame: object) -> None:
    """Do nothing: a handler has to be set so that the descriptor is written to."""
