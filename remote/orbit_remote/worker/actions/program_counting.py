"""Counts a program of the author's by CUPTI within its own process: the first launch of each configuration is made
again there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path

from orbit_remote.common import messages as c
from orbit_remote.common import symbols
from orbit_remote.common.requests import Job
from orbit_remote.counters import kernel_selection, program_counts
from orbit_remote.counters.profiler import UncountedError
from orbit_remote.counters.program_counts import ProgramCounts
from orbit_remote.counters.source_lines import Authorship
from orbit_remote.recording import injection
from orbit_remote.toolchain import build, disassembly
from orbit_remote.worker.actions import builds, cuda_action, plain_action
from orbit_remote.worker.context import WorkerContext

_LOOK_S = 0.05
"""Seconds between two looks at what a program counts."""


async def counted(job: Job, context: WorkerContext, device: c.Device) -> c.Finished:
    """Return the end of a program, with the profiles of its launches. Raises UncountedError if it has to be counted
    in another way.
    """
    try:
        cupti = await asyncio.to_thread(injection.find, nvcc=job.nvcc)
    except injection.RecorderUnavailableError as unavailable:
        raise UncountedError(unavailable.message) from None
    async with context.scratch() as scratch:
        built = await builds.build_file(job, device, context, scratch)
        if isinstance(built, c.Finished):
            return built
        job = built.job or job
        folder = scratch / cuda_action.LAUNCHES
        wanted = tuple(resources.symbol for resources in kernel_selection.chosen(job, built.built.resources))
        variables = await asyncio.to_thread(
            program_counts.environment,
            folder,
            context.home / "cupti",
            cupti,
            wanted,
            kernel_selection.pattern(job),
            job.run_timeout_s,
        )
        async with context.gpu(job):
            context.stage(job, "profiling")
            async with _disassembling(folder) as listings:
                finished = await cuda_action.run_built(job, context, built, device, scratch, variables)
        counts = await asyncio.to_thread(program_counts.read, folder)
        return await _concluded(job, context, finished, counts, listings, built, cupti)


@contextlib.asynccontextmanager
async def _disassembling(folder: Path) -> AsyncGenerator[dict[tuple[str, bytes], str]]:
    """Disassemble what is counted while the program runs, because it takes 0.3 s. Give the SASS by kernel and cubin;
    it is complete once the block has ended.
    """
    listings: dict[tuple[str, bytes], str] = {}
    ended = asyncio.Event()

    async def follow() -> None:
        last = False
        while not last:
            last = ended.is_set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 0 if last else _LOOK_S)
            for symbol, cubin in await asyncio.to_thread(program_counts.begun, folder):
                if cubin and (symbol, cubin) not in listings:
                    listings[symbol, cubin] = await asyncio.to_thread(disassembly.listing, cubin, symbol)

    following = asyncio.create_task(follow())
    try:
        yield listings
        ended.set()
        await following
    finally:
        following.cancel()


async def _concluded(
    job: Job,
    context: WorkerContext,
    finished: c.Finished,
    counts: ProgramCounts,
    listings: Mapping[tuple[str, bytes], str],
    built: build.BuildResult,
    cupti: injection.Cupti,
) -> c.Finished:
    if not counts.launches:
        return await _without(job, context, finished, counts)
    known = {resources.symbol: resources for resources in built.built.resources}
    authorship = Authorship(job.path, tuple(built.built.files))
    profiles = await asyncio.to_thread(program_counts.profiles_of, counts, authorship, cupti.release, known)
    remarks = [*finished.remarks, *counts.remarks]
    if finished.outcome == "timed out":
        remarks.append(
            f"the program was ended at its limit of {job.run_timeout_s:g} s, after the launches shown"
        )
        finished = replace(finished, outcome="ok", failure=None, exit_code=None)
    packed = await asyncio.to_thread(program_counts.dumps_of, counts, known, listings, remarks, built.ptx)
    return replace(
        finished,
        profiles=profiles,
        dumps=packed,
        remarks=tuple(dict.fromkeys(remarks)),
        toolchain=finished.toolchain | {"cupti": cupti.release},
    )


async def _without(
    job: Job, context: WorkerContext, finished: c.Finished, counts: ProgramCounts
) -> c.Finished:
    """Return the end of a run in which nothing of the program was counted. Raises UncountedError."""
    if counts.uncounted:
        raise UncountedError(counts.uncounted)
    if finished.exit_code is not None and finished.exit_code < 0:
        raise UncountedError("the program ended by a signal while CUPTI was in it")
    if counts.failed:  # an ordinary run says where
        return await plain_action.build_or_run(replace(job, action="run"), context)
    if finished.outcome == "timed out" and counts.counting:
        name = symbols.short_name(counts.counting)
        remark = f"the limit was reached while {name} was launched again and again, to be counted"
        return replace(finished, remarks=(*finished.remarks, remark))
    if finished.outcome not in ("ok", "wrong answer"):
        return finished
    remark = kernel_selection.not_launched(job, list(map(symbols.short_name, counts.launched)))
    return replace(finished, remarks=(*finished.remarks, remark))
