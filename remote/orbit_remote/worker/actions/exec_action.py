"""`exec`: runs a script or any program unchanged, in a copy of the author's folder, and records its launches."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from orbit_remote.common import (
    brought_files,
    codec,
    content_store,
    measure,
    regular_files,
)
from orbit_remote.common import messages as c
from orbit_remote.common.requests import ExecStart, Job
from orbit_remote.process import program
from orbit_remote.process.author_paths import Paths
from orbit_remote.recording import injection, run_outcome, telemetry
from orbit_remote.worker import gpu, own_files
from orbit_remote.worker.actions import cuda_action
from orbit_remote.worker.context import WorkerContext
from orbit_remote.worker.faults import second_look


async def execute(job: Job, context: WorkerContext) -> c.Finished:
    """Run the program. On the author's own machine, a program that needs no GPU runs without one."""
    assert isinstance(job.start, ExecStart)
    device = await asyncio.to_thread(gpu.of, job)
    if device is None and not await asyncio.to_thread(gpu.dispensable, job):
        return gpu.no_gpu(job)
    async with _mounted(job, job.start, context) as (there, paths):
        finished = await (_script if job.is_script else _program)(there, context, device)
        if paths.pairs:
            finished = codec.build(c.Finished, paths.event(codec.read_json(c.encode(finished))))
        remarks = finished.remarks if device else (*finished.remarks, gpu.WITHOUT)
        brought: tuple[c.Brought, ...] = ()
        if job.start.bring:
            folder = Path(there.directory or "")
            brought, left = await asyncio.to_thread(brought_files.collect, folder, job.start.bring)
            remarks += left
        return replace(finished, brought=brought, remarks=remarks)


async def _script(job: Job, context: WorkerContext, device: c.Device | None) -> c.Finished:
    from orbit_remote.worker.actions import python_action

    return await python_action.follow(job, context, device)


async def _program(job: Job, context: WorkerContext, device: c.Device | None) -> c.Finished:
    async with AsyncExitStack() as held:
        scratch = await held.enter_async_context(context.scratch())
        overhead, watching = injection.UNKNOWN, nullcontext()
        if device:
            await held.enter_async_context(context.gpu(job))
            overhead = await context.overheads.overhead(device, context.environment())
            watching = cuda_action.sampler_of(device, scratch)
        context.stage(job, "running")
        command, visible, began = (job.path, *job.arguments), gpu.visible_gpu(job), time.time_ns()
        with watching as sampler:
            ended, recorded, why = await cuda_action.run_recorded(
                job, context, command, visible, scratch, overhead
            )
        first = second_look.since(began, scratch / cuda_action.LAUNCHES)
        finished = _finished(job, ended, recorded, why, device, sampler)
        if not (device and second_look.wanted(job, finished)):
            return finished
        again = second_look.program_of(job, context, command, visible)
        return await second_look.explained(job, context, finished, first, again, own_files.of_program(job))


def _finished(
    job: Job,
    ended: program.EndedProgram,
    recorded: injection.RecordedRun,
    why: str,
    device: c.Device | None,
    sampler: telemetry.Sampler | None,
) -> c.Finished:
    known = run_outcome.named(recorded)
    verdict = run_outcome.of_program(job, ended, recorded, known, Path(job.path).name)
    remarks = [*recorded.remarks, *measure.remarks(recorded.series), *verdict.remarks]
    if sampler:
        remarks += [*([why] if why else []), *gpu.beyond(job, recorded.series), *sampler.remarks]
    return c.Finished(
        job.run,
        verdict.outcome,
        verdict.failure,
        problems=verdict.problems,
        launches=measure.group(recorded.series, known),
        device=device,
        telemetry=gpu.watched(sampler, recorded.series) if sampler else None,
        exit_code=ended.status,
        run_s=ended.seconds,
        stdout=ended.stdout,
        stderr=ended.stderr,
        truncated=ended.truncated,
        remarks=tuple(remarks),
    )


# -- the copy -----------------------------------------------------------------------------------------


@asynccontextmanager
async def _mounted(job: Job, start: ExecStart, context: WorkerContext) -> AsyncGenerator[tuple[Job, Paths]]:
    """Give the job in a copy of its files, which is deleted when it ends, whatever the program made of it. Nothing is
    copied on a machine to which the files were sent, or if the job runs in place.
    """
    if not start.files:
        yield job, Paths(())
        return
    async with context.scratch() as scratch:
        copy = scratch / (Path(start.mount).name or "root")
        stop = threading.Event()
        copying = asyncio.ensure_future(asyncio.to_thread(_copy, job, start, copy, stop))
        try:
            await asyncio.shield(copying)
            paths = Paths(((start.mount, str(copy)),))
            yield replace(paths.job(job, str(copy)), device=job.device, nvcc=job.nvcc), paths
        finally:
            stop.set()
            await asyncio.shield(asyncio.gather(copying, return_exceptions=True))
            await asyncio.shield(asyncio.to_thread(content_store.remove, scratch))


def _copy(job: Job, start: ExecStart, into: Path, stop: threading.Event) -> None:
    """Raises OSError."""
    into.mkdir()
    for place in start.files:
        if stop.is_set():
            return
        if why := content_store.unusable(place):
            raise OSError(0, f"a file to copy {why}", place)
        source, target = Path(start.mount, place), into / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if job.is_script and str(source) == job.path:
            target.write_text(job.text, encoding="utf-8", errors="surrogatepass")
            continue
        with regular_files.opened(source) as file, target.open("wb") as to:
            shutil.copyfileobj(file, to, 1 << 20)
            os.fchmod(
                to.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) | stat.S_IRUSR | stat.S_IWUSR
            )
