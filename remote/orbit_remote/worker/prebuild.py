"""Builds the executable of a saved file before anybody clicks.

nvcc takes over a second for a small program, which is most of a click's time after an edit. A save is compiled
anyway, for its diagnostics. If that succeeded and the file has been run before, the click that probably follows finds
its executable made. Nothing of the user's is executed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

from orbit_remote.common.requests import Job

_MOST_FILES = 64
"""Files that are remembered as having been run."""


class Prebuild:
    """At most one build under way for each file. The newest text replaces an older one."""

    def __init__(self, build: Callable[[Job], Awaitable[object]]) -> None:
        """Make a prebuild. `build` leaves its result where a later build of the same job finds it."""
        self._build = build
        self._ran: dict[str, None] = {}
        self._under_way: dict[str, tuple[Job, asyncio.Task[None]]] = {}

    async def join(self, job: Job) -> None:
        """Call before building to run: waits for the same build under way, ends one of another text."""
        self._ran.pop(job.path, None)
        self._ran[job.path] = None
        if len(self._ran) > _MOST_FILES:
            del self._ran[next(iter(self._ran))]
        if under_way := self._under_way.get(job.path):
            ahead, task = under_way
            if not _same_build(ahead, job):
                task.cancel()
            await asyncio.wait([task])

    def compiled(self, job: Job) -> None:
        """A compile for diagnostics went well."""
        if job.path not in self._ran:
            return
        if under_way := self._under_way.get(job.path):
            under_way[1].cancel()
        wanted = replace(job, action="run", run=f"{job.run}-ahead")
        task = asyncio.get_running_loop().create_task(self._build_newest(wanted))
        self._under_way[job.path] = (wanted, task)
        task.add_done_callback(lambda _: self._over(wanted))

    async def close(self) -> None:
        tasks = [task for _, task in self._under_way.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _build_newest(self, job: Job) -> None:
        with contextlib.suppress(OSError):  # a full disk: the click will say so, if there is one
            await self._build(job)

    def _over(self, job: Job) -> None:
        if (now := self._under_way.get(job.path)) and now[0] is job:
            del self._under_way[job.path]


def _same_build(job: Job, other: Job) -> bool:
    return all(
        getattr(job, name) == getattr(other, name)
        for name in ("path", "text", "directory", "flags", "nvcc", "architecture")
    )
