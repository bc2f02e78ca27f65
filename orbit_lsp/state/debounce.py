"""Work that begins once typing in a file has paused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Debounce:
    """One timer for each file, which every edit starts again. When it runs out, `then` is called with the file's URI.

    If `then` returns a coroutine, it runs as a task of this object.
    """

    def __init__(self, then: Callable[[str], Coroutine[Any, Any, object] | None], name: str) -> None:
        self._then = then
        self._name = name
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[object]] = set()

    def edited(self, uri: str, pause_s: float) -> None:
        self.forget(uri)
        self._timers[uri] = asyncio.get_running_loop().call_later(pause_s, self._begin, uri)

    def forget(self, uri: str) -> None:
        if timer := self._timers.pop(uri, None):
            timer.cancel()

    def __contains__(self, uri: str) -> bool:
        """Say whether a file has been edited, and its pause is not over."""
        return uri in self._timers

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()

    def _begin(self, uri: str) -> None:
        self._timers.pop(uri, None)
        if work := self._then(uri):
            task = asyncio.get_running_loop().create_task(work, name=self._name)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
