"""Keeps the rates that each GPU was measured to reach, by its uuid and driver. A GPU is measured once, when no job
waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.worker.context import WorkerContext

_LIMIT_S: Final = 10.0
"""It takes a third of a second; a GPU that others work on may take longer, and tells nothing of itself then."""


class CalibrationStore:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: dict[str, dict[str, float]] | None = None
        self._tried: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def with_reached(self, device: c.Device | None) -> c.Device | None:
        """Return the same GPU with what it was measured to reach, as far as that is known."""
        if device is None or device.reached or not (rates := self._read().get(_key(device))):
            return device
        return replace(device, reached=rates)

    def measure(self, device: c.Device, context: WorkerContext) -> None:
        """Measure a GPU soon, in a spare process that waits, if it has not been tried. An answer has just been sent,
        and the author reads it.
        """
        key = _key(device)
        if not key or key in self._tried or key in self._read() or context.spares.waiting is None:
            return
        self._tried.add(key)
        task = asyncio.get_running_loop().create_task(self._measure(device, context))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _measure(self, device: c.Device, context: WorkerContext) -> None:
        job = Job("calibration", "calibrate", "cuda", "calibration", "", device=device.index)
        finished: c.Finished | None = None
        async with context.gpu(job):
            try:
                child = await context.spares.take(job, context.environment())
            except OSError:
                return
            stays = False
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LIMIT_S):
                        async for event in child.events():
                            finished = event if isinstance(event, c.Finished) else finished
                        stays = finished is not None and await child.afterwards() == "stays"
            finally:
                if not (stays and context.spares.give_back(child)):
                    await asyncio.shield(child.close())
        if finished and finished.outcome == "ok" and finished.device and finished.device.reached:
            self._keep(_key(device), finished.device.reached)

    def _read(self) -> dict[str, dict[str, float]]:
        if self._known is None:
            self._known = {}
            with contextlib.suppress(OSError, ValueError):  # a file that we did not write counts as none
                record: Any = codec.read_json(regular_files.read(self._file, limits.STATE))
                self._known = codec.build(dict[str, dict[str, float]], record)
        return self._known

    def _keep(self, key: str, rates: dict[str, float]) -> None:
        known = self._read()
        known[key] = rates
        with contextlib.suppress(OSError):  # then it is measured again some time
            regular_files.replace(self._file, json.dumps(known, indent=1).encode())


def _key(device: c.Device) -> str:
    """Return the key of a GPU. It is "" for a GPU that cannot be distinguished from others of its kind."""
    return f"{device.uuid} {device.driver}" if device.uuid and device.driver else ""
