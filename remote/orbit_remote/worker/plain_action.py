"""A build or a run, under no tool."""

from __future__ import annotations

from orbit_remote.common import messages as c
from orbit_remote.worker import cuda_action
from orbit_remote.worker.context import Context


async def carry_out(job: c.Job, context: Context) -> c.Finished:
    if job.language == "cuda" and job.through == "program":
        return await cuda_action.carry_out(job, context)
    if job.language == "cuda":
        from orbit_remote.worker import spec_action

        return await spec_action.carry_out(job, context)
    from orbit_remote.worker import python_action

    return await python_action.carry_out(job, context)
