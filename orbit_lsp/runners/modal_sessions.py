"""Warm containers, as far as this server has used them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Session:
    """The container of one GPU. Times are seconds on the wall clock; `until` is None during a run.

    `gpu_s` are the seconds from the container's first word to each run's end; idle time, which is
    billed too, is not in it.
    """

    gpu: str
    since: float
    until: float | None = None
    runs: int = 0
    gpu_s: float = 0.0
    kept: bool = False

    def warm(self, now: float) -> bool:
        return self.kept or self.until is None or now < self.until


class Sessions:
    def __init__(self, idle_s: float, changed: Callable[[], None]) -> None:
        """`changed` is called when one became warm or cold by what was done here."""
        self._idle_s = idle_s
        self._changed = changed
        self._by_gpu: dict[str, Session] = {}

    def all(self) -> list[Session]:
        """Those that are warm now."""
        now = time.time()
        return [session for session in self._by_gpu.values() if session.warm(now)]

    def warm(self, gpu: str) -> bool:
        session = self._by_gpu.get(gpu)
        return session is not None and session.warm(time.time())

    def begin(self, gpu: str) -> None:
        """A run's container has spoken: it is there."""
        now = time.time()
        session = self._by_gpu.get(gpu)
        if session is None or not session.warm(now):
            session = self._by_gpu[gpu] = Session(gpu, now)
        session.until = None
        self._changed()

    def end(self, gpu: str, seconds: float) -> None:
        """A run is over and left its container warm."""
        if session := self._by_gpu.get(gpu):
            session.runs += 1
            session.gpu_s += seconds
            session.until = time.time() + self._idle_s
            self._changed()

    def keep(self, gpu: str, keep: bool) -> None:
        now = time.time()
        session = self._by_gpu.setdefault(gpu, Session(gpu, now, now + self._idle_s))
        session.kept = keep
        if not keep and session.until is not None:
            session.until = now + self._idle_s
        self._changed()

    def forget(self, gpu: str) -> Session | None:
        """Its container is gone, or is being sent away; None where none was warm."""
        session = self._by_gpu.pop(gpu, None)
        if session is None or not session.warm(time.time()):
            return None
        self._changed()
        return session
