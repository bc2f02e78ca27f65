"""The event loop, brought to the point where every task waits for something that has not happened."""

from __future__ import annotations

import asyncio
from typing import Any


async def settled() -> None:
    """Until nothing but the caller could run. Timers, threads and descriptors are not waited for."""
    loop: Any = asyncio.get_running_loop()
    await asyncio.sleep(0)
    while loop._ready:  # noqa: ASYNC110 - what the loop has to do is what is looked at
        await asyncio.sleep(0)
