"""The jobs of a runner that are under way. The runner waits for them when it closes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from orbit_remote.common.messages import Event


class UnderWay:
    """Counts jobs by the generators of their events."""

    def __init__(self) -> None:
        self._count = 0
        self._ended = asyncio.Event()
        self._ended.set()

    async def counted(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        """Yield the events of a job. The job counts as under way until the last of them."""
        self._count += 1
        self._ended.clear()
        try:
            async with aclosing(events) as opened:
                async for event in opened:
                    yield event
        finally:
            self._count -= 1
            if not self._count:
                self._ended.set()

    async def all_ended(self) -> None:
        """Wait until no job is under way."""
        await self._ended.wait()
