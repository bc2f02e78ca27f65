"""Ends a job of a door before it fills the disk: nobody watches it, and the next jobs need the disk too."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.process import disk_space, process_groups
from orbit_remote.worker.context import WorkerContext

LOOK_S: Final = 0.25
"""Between two looks. What a job reserves meanwhile (`fallocate`) may fill the disk until the next one."""
_SHARE: Final = 20
"""A look at many files takes longer, and comes later: it takes a twentieth of the time at most."""
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - nothing is made there


class DiskWatch:
    """Watches what one job writes. `failure` is why it was ended."""

    def __init__(self, job: Job, context: WorkerContext, own: Path | None = None) -> None:
        """Make a watch. `own` is the folder of the judge that carries out the job. Without it, it is the queue's
        folder, if the job has one.
        """
        self.failure: c.Failure | None = None
        self._looking: asyncio.Task[None] | None = None
        self._watched = job.batch or own is not None
        jobs = context.home / "jobs"
        folder = Path(job.path).parent
        self._own = own or (folder if folder.parent == jobs else None)
        temporary = context.environment(job).get("TMPDIR") or "/tmp"  # noqa: S108 - where the job itself writes
        self._places = [context.home, Path(job.directory or folder), Path(temporary), _SHARED_MEMORY]

    def started(self, told: process_groups.Started) -> process_groups.Started:
        """Return a callback for the job's process group. It calls `told`, and watches the job's disk use as long as
        the group lives.
        """

        def tell(pgid: int, alive: bool) -> None:
            told(pgid, alive)
            if alive and self._watched:
                self._looking = asyncio.get_running_loop().create_task(self._look(pgid))
            else:
                self.over()

        return tell

    def over(self) -> None:
        """Look no more: the number of a group that has ended may be another's tomorrow."""
        if self._looking:
            self._looking.cancel()

    async def _look(self, pgid: int) -> None:
        room = await asyncio.to_thread(disk_space.Room, self._own, self._places, disk_space.MOST)
        pause = LOOK_S
        while True:
            await asyncio.sleep(pause)
            began = time.monotonic()
            failure = await asyncio.to_thread(room.failure, lambda: process_groups.written(pgid))
            if failure:
                self.failure = failure
                process_groups.kill_group(pgid)
                return
            pause = max(LOOK_S, _SHARE * (time.monotonic() - began))
