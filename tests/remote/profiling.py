"""Profiles through the worker's own code, in this process: text in, `Finished` out."""

from __future__ import annotations

import asyncio
import base64
import os
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from orbit_lsp import kernels
from orbit_lsp.specs import launch_plan
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Line
from orbit_remote.common.requests import Job, SpecStart
from orbit_remote.worker.actions import builds
from orbit_remote.worker.calibration_store import CalibrationStore
from orbit_remote.worker.context import Shared, WorkerClient, WorkerContext
from orbit_remote.worker.jobs import Jobs
from tests import processes_check


@dataclass
class Bench:
    """A worker with a cache of its own, but for what is `kept` of earlier ones: builds and recorders. `events` are
    all that it said. `profiling` is set once the tool runs.
    """

    folder: Path
    kept: Path | None = None
    events: list[c.Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.kept:
            (self.folder / "cache").mkdir()
            for name in ("builds", "cupti"):
                (self.folder / "cache" / name).symlink_to(self.kept / name)
        self.shared = Shared(self.folder / "cache", spare_idle_s=60.0)
        self.profiling = asyncio.Event()
        self.context = WorkerContext(self.shared, WorkerClient(self._said, os.environ), builds.build_ahead)
        self.jobs = Jobs(self.context, CalibrationStore(self.folder / "reached.json"))

    def _said(self, event: c.Event) -> None:
        self.events.append(event)
        if isinstance(event, c.Group) and event.alive and any(_is_profiling(event) for event in self.events):
            self.profiling.set()

    def job(
        self,
        name: str,
        text: str,
        kernel: str | None = "k",
        *,
        saved: bool = True,
        by_spec: bool = False,
        **fields: object,
    ) -> Job:
        path = self.folder / name
        if saved:
            path.write_text(text)
        language = "cuda" if name.endswith(".cu") else "triton"
        scan = kernels.tracker(language).scan(text)
        result = next((item for item in scan.kernels if item.name == kernel), None)
        definition = launch_plan.definition_of(result) if result else None
        if by_spec:
            assert definition
            fields |= {"start": SpecStart(definition)}
        return replace(
            Job(
                "r1", "profile", language, str(path), text, kernel=kernel, run_timeout_s=60,
                tool_kernel=definition,
            ),
            **fields,
        )  # fmt: skip

    async def profile(self, job: Job) -> c.Finished:
        self.events.clear()
        await self.jobs._perform(job)
        finished = self.events[-1]
        assert isinstance(finished, c.Finished)
        return finished

    def report(self, finished: c.Finished) -> Path:
        """The profiler's own report, as a file."""
        file = self.folder / "kept.ncu-rep"
        file.write_bytes(zlib.decompress(base64.b64decode(finished.report)))
        return file


@asynccontextmanager
async def bench(folder: Path) -> AsyncIterator[Bench]:
    result = Bench(folder)
    try:
        yield result
    finally:
        await result.context.close()
        await result.shared.close()


def hottest(profile: c.Profile) -> Line:
    return max(profile.lines, key=lambda line: line.samples)


async def left_over(folder: Path) -> list[str]:
    """Processes whose command names the folder, once those that are ending have ended."""
    await processes_check.ended(*_running(folder))
    return list(_running(folder).values())


def _running(folder: Path) -> dict[int, str]:
    """Commands that name the folder, by their processes."""
    pids = [int(process.name) for process in Path("/proc").glob("[0-9]*")]
    every = {pid: processes_check.command(pid) for pid in pids}
    return {pid: text for pid, text in every.items() if f"{folder}/" in text and pid != os.getpid()}


def _is_profiling(event: c.Event) -> bool:
    return isinstance(event, c.Stage) and event.state == "profiling"
