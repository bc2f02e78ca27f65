"""Runners that newer settings have replaced. Each ends its jobs before it is closed."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Retires(Protocol):
    async def retire(self) -> None:
        """End the jobs under way, then close."""
        ...


_retiring: set[asyncio.Task[None]] = set()


def retire(runner: Retires | None) -> None:
    """Let an old runner end its jobs, then close it."""
    if runner is not None:
        task = asyncio.ensure_future(runner.retire())
        _retiring.add(task)
        task.add_done_callback(_retiring.discard)


async def end() -> None:
    """Close all runners, also those that still have jobs."""
    for task in list(_retiring):
        task.cancel()
    await asyncio.gather(*_retiring, return_exceptions=True)
