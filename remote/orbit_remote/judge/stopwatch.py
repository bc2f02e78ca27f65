"""Measures where a judge's seconds go. Each moment counts for the innermost stage that it is in."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator


class Stopwatch:
    """The stopwatch. `seconds` has the time of each stage so far, without that of the stages in it."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._since = clock()
        self._inside: list[str] = []
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def during(self, stage: str) -> Generator[None]:
        self._account()
        self._inside.append(stage)
        try:
            yield
        finally:
            self._account()
            self._inside.pop()

    def _account(self) -> None:
        now = self._clock()
        if self._inside:
            stage = self._inside[-1]
            self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now
