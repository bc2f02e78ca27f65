"""Runs long computations beside the event loop, in threads for which an ending server does not wait."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")
ENDING_S = 2.0
"""How long an ending server waits for what its threads write."""


class Threads(ThreadPoolExecutor):
    """asyncio's threads for a server that ends even if one of them does not: a disk may not answer."""

    def __init__(self) -> None:
        self._begun: list[threading.Thread] = []
        super().__init__(initializer=lambda: self._begun.append(threading.current_thread()))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        del wait, cancel_futures
        super().shutdown(wait=False, cancel_futures=True)
        end = time.monotonic() + ENDING_S
        for thread in self._begun:
            thread.join(max(0.0, end - time.monotonic()))


async def call(function: Callable[[], T]) -> T:
    """Return or raise what `function` does, in a daemon thread. The process would wait for asyncio's own threads at
    its end.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            result = function()
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            _post(loop, lambda error=error: done.cancelled() or done.set_exception(error))
        else:
            _post(loop, lambda: done.cancelled() or done.set_result(result))

    threading.Thread(target=work, name="orbit scan", daemon=True).start()
    return await done


def _post(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(function)
