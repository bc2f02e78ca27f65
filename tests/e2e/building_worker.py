"""The stand-in for the GPU side (recorded_worker.py), but that a program of a project is built for real, by the worker's own code.

What it prints stands in for what a GPU would record: a line `NAME NANOSECONDS` is twenty launches of a kernel.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[2] / "remote"))

from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Timing
from orbit_remote.common.requests import Job
from orbit_remote.toolchain import build
from orbit_remote.worker.actions import builds
from orbit_remote.worker.context import Shared, WorkerClient, WorkerContext
from tests.e2e import recorded_worker as recorded


def built(request: Job, home: Path) -> build.BuildResult | c.Finished:
    async def work() -> build.BuildResult | c.Finished:
        shared = Shared(home, spare_idle_s=60.0)
        context = WorkerContext(shared, WorkerClient(lambda _: None, os.environ), builds.build_ahead)
        try:
            return await builds.build_file(request, recorded.DEVICE, context, home)
        finally:
            await context.close()
            await shared.close()

    return asyncio.run(work())


def by_program(request: Job, home: Path) -> None:
    made = built(request, home)
    if isinstance(made, c.Finished):
        recorded.say(made)
        return
    assert made.executable
    ran = subprocess.run([made.executable, *request.arguments], capture_output=True, text=True, check=True)
    lines = [line.split() for line in ran.stdout.splitlines()]
    launches = tuple(
        replace(
            recorded.SAXPY, name=f"{name}(float *, int)", symbol=f"_Z{len(name)}{name}Pfi",
            timing=Timing(19, int(time_ns), "in program, n=19", spread=0.002),
        )
        for name, time_ns in lines
    )  # fmt: skip
    recorded.finished(
        request.run, "ok", launches=launches, run_s=0.1, files=made.built.files, remarks=made.remarks
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        recorded.by_program = lambda request, _: by_program(request, Path(folder))
        recorded.main()
