"""Builds or runs a file without a tool."""

from __future__ import annotations

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.worker.actions import cuda_action
from orbit_remote.worker.context import WorkerContext


async def build_or_run(job: Job, context: WorkerContext) -> c.Finished:
    if job.start.through == "exec":
        from orbit_remote.worker.actions import exec_action

        return await exec_action.execute(job, context)
    if job.is_program:
        return await cuda_action.compile_or_run(job, context)
    if job.language == "cuda" and job.start.through != "driver":
        from orbit_remote.worker.actions import spec_action

        return await spec_action.run_spec(job, context)
    from orbit_remote.worker.actions import python_action

    return await python_action.run_python(job, context)
