"""Judges with sides that wait, for tests and benchmarks that have no worker."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

from orbit_remote.child import child_main
from orbit_remote.common import content_store
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.judge import judge_main
from orbit_remote.worker.prefork import judges_folder


class WaitingJudges:
    """Judges one after the other, as a worker has them: the next one opens its contexts once this one has timed its candidate."""

    def __init__(self, cache: Path, device: str, most_s: float) -> None:
        child_main.warm_up()
        child_main.warm_up_for_judges()
        self._cache, self._device, self._most_s = cache, device, most_s
        self._next: tuple[int, socket.socket, Path] | None = None
        self.seconds: list[float] = []
        """Of each evaluation, from the job to its answer."""

    def judge(self, job: Job) -> c.Finished:
        pid, connection, folder = self._next or self._begun()
        self._next = None
        began, finished = time.perf_counter(), None
        with connection, connection.makefile(encoding="utf-8", errors="surrogatepass") as events:
            connection.sendall(child_main.order(job, environment=dict(os.environ), folder=folder))
            for line in events:
                event = child_main.decode_event(line)
                if isinstance(event, c.Stage) and event.why == child_main.TIMED and self._next is None:
                    self._next = self._begun()
                if isinstance(event, c.Finished):
                    finished = event
        self.seconds.append(time.perf_counter() - began)
        os.waitpid(pid, 0)
        content_store.remove(folder)
        assert finished, job
        return finished

    def end(self) -> None:
        if self._next:
            pid, connection, folder = self._next
            connection.close()
            os.waitpid(pid, 0)
            content_store.remove(folder)

    def _begun(self) -> tuple[int, socket.socket, Path]:
        folder = judges_folder(None)
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
                ours.close()
                place = {"folder": str(folder), "device": self._device, "index": 0}
                sides = judge_main.waiting(place, self._cache)
                status = judge_main.serve(theirs, self._cache, sides, self._most_s)
            except BaseException as error:  # noqa: BLE001 - nothing may unwind into the test's frames
                print(f"a judge failed to wait: {error!r}", file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        theirs.close()
        return pid, ours, folder
