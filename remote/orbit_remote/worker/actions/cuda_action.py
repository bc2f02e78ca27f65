"""Handles a `.cu` file: compiles it, or builds it, runs it unchanged, and reports every launch under its kernel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from orbit_remote.common import architectures, measure
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.process import program
from orbit_remote.recording import injection, run_outcome, telemetry
from orbit_remote.toolchain import build
from orbit_remote.worker import disk_watch, gpu, own_files
from orbit_remote.worker.actions import builds
from orbit_remote.worker.context import WorkerContext
from orbit_remote.worker.faults import second_look

LAUNCHES = "launches"
"""The folder of a run's records, in its scratch folder."""
_TELL_S = 1.0
"""The shortest time between two reports of the launches of a program that still runs."""


async def compile_or_run(job: Job, context: WorkerContext) -> c.Finished:
    device = await asyncio.to_thread(gpu.of, job) if job.action == "run" else None
    if job.action == "run" and device is None and not (job.project_program and gpu.dispensable(job)):
        # said before anything is built: the build cannot be run
        return gpu.no_gpu(job)
    async with context.scratch() as scratch:
        built = await builds.build_file(job, device, context, scratch)
        if isinstance(built, c.Finished):
            return built
        job = built.job or job
        if job.action == "compile" and len(architectures.asked_for(job.flags)) < 2:  # else it is of no run
            context.ahead.compiled(job)
        if job.action == "compile" and job.levels:
            from orbit_remote.worker.actions import disassemble_action

            return await disassemble_action.of_build(job, built, context)
        if job.action != "run":
            return builds.finished(job, built)
        if device is None:
            return await _run_without(job, context, built, scratch)
        async with context.gpu(job):
            context.stage(job, "running")
            return await run_built(job, context, built, device, scratch)


async def _run_without(
    job: Job, context: WorkerContext, built: build.BuildResult, scratch: Path
) -> c.Finished:
    """Run a program of the project on a machine without a GPU. It may do without one, as a Python driver may."""
    context.stage(job, "running")
    command = (str(built.executable), *job.arguments)
    ended, recorded, _ = await run_recorded(job, context, command, {}, scratch)
    verdict = run_outcome.of_program(job, ended, recorded, {}, _name(job))
    finished = c.Finished(
        job.run, verdict.outcome, verdict.failure, problems=verdict.problems, toolchain=built.toolchain,
        exit_code=ended.status, build_s=built.built.seconds, run_s=ended.seconds, stdout=ended.stdout, stderr=ended.stderr,
        truncated=ended.truncated, files=own_files.read(job, built.built), remarks=(*built.remarks, *verdict.remarks),
    )  # fmt: skip
    return gpu.run_without(job, finished)


def _name(job: Job) -> str:
    """Return the program's name for messages about its end."""
    return job.driver.short if job.driver else "main"


async def run_built(
    job: Job,
    context: WorkerContext,
    built: build.BuildResult,
    device: c.Device,
    scratch: Path,
    counting: Mapping[str, str] | None = None,
) -> c.Finished:
    """Run a program. `counting` has the variables with which its launches are counted and not timed."""
    command = (str(built.executable), *job.arguments)
    visible = {**gpu.visible_gpu(job), **(counting or {})}
    overhead = injection.UNKNOWN
    if not counting:
        overhead = await context.overheads.overhead(device, context.environment())
    symbols = {resources.symbol: resources for resources in built.built.resources}
    began = time.time_ns()
    telling = asyncio.create_task(_tell(job, context, scratch / LAUNCHES, overhead, symbols))
    try:
        with sampler_of(device, scratch) as sampler:
            ended, recorded, why = await run_recorded(job, context, command, visible, scratch, overhead)
    finally:
        telling.cancel()
    if job.project_program:  # its build does not say what the compiler makes
        symbols = run_outcome.named(recorded) | symbols
    verdict = run_outcome.of_program(job, ended, recorded, symbols, _name(job))
    launches = measure.group(recorded.series, symbols)
    remarks = [*built.remarks, *([why] if why else ())]
    remarks += [*recorded.remarks, *measure.remarks(recorded.series), *verdict.remarks]
    remarks += [
        *gpu.beyond(job, recorded.series),
        *sampler.remarks,
        *([sampler.problem] if sampler.problem else []),
    ]
    finished = c.Finished(
        run=job.run,
        outcome=verdict.outcome,
        failure=verdict.failure,
        problems=verdict.problems,
        launches=launches,
        resources=built.built.resources,
        device=device,
        telemetry=sampler.telemetry(began, time.time_ns())
        if counting
        else gpu.watched(sampler, recorded.series),
        toolchain=built.toolchain,
        exit_code=ended.status,
        build_s=built.built.seconds,
        run_s=ended.seconds,
        stdout=ended.stdout,
        stderr=ended.stderr,
        truncated=ended.truncated,
        files=own_files.read(job, built.built),
        remarks=tuple(remarks),
    )
    if not second_look.wanted(job, finished):
        return finished
    first = second_look.since(began, scratch / LAUNCHES)
    again = second_look.program_of(job, context, command, visible)
    own = own_files.of_build(job, built.built)
    return await second_look.explained(job, context, finished, first, again, own)


def sampler_of(device: c.Device, scratch: Path) -> telemetry.Sampler:
    """Return the sampler for a program that `run_recorded` runs with the same `scratch`."""
    has_context = partial(injection.has_context, scratch / LAUNCHES)
    return telemetry.Sampler(device.uuid or device.index, has_context=has_context)


async def _tell(
    job: Job,
    context: WorkerContext,
    folder: Path,
    overhead: injection.Overhead,
    symbols: Mapping[str, c.Resources],
) -> None:
    """Report what has been launched, from time to time while the program runs. Reporting takes at most a twentieth of
    the time.
    """
    known, pause = 0, _TELL_S
    while True:
        await asyncio.sleep(pause)
        began = time.monotonic()
        series = (await asyncio.to_thread(injection.read, folder, overhead)).series
        if (count := sum(launched.count for launched in series)) > known:
            known = count
            groups = await asyncio.to_thread(measure.group, series, symbols)
            context.send(
                c.Launched(
                    job.run,
                    tuple(
                        replace(launched, timing=replace(launched.timing, samples=())) for launched in groups
                    ),
                )
            )
        pause = max(_TELL_S, 20 * (time.monotonic() - began))


async def run_recorded(
    job: Job,
    context: WorkerContext,
    command: Sequence[str],
    environment: Mapping[str, str],
    scratch: Path,
    overhead: injection.Overhead = injection.UNKNOWN,
) -> tuple[program.EndedProgram, injection.RecordedRun, str]:
    """Run a job's program unchanged, and record its launches. If launches cannot be recorded it still runs, its times
    are absent, and the text says why. `overhead` is subtracted from the times.
    """
    folder, why = scratch / LAUNCHES, ""
    variables = {**context.environment(job), **environment}
    try:
        variables |= await asyncio.to_thread(
            injection.environment, folder, cache=context.home / "cupti", nvcc=job.nvcc
        )
    except injection.RecorderUnavailableError as error:
        why = f"{error.message}; {error.remedy}"
    disk = disk_watch.DiskWatch(job, context)
    ended = await program.run(
        command,
        cwd=job.working_folder,
        env=variables,
        stdin=job.stdin,
        timeout_s=job.run_timeout_s,
        limit=context.limit(job, job.run_timeout_s),
        started=disk.started(context.groups(job)),
        output=context.output(job),
    )
    ended = replace(ended, failure=disk.failure)
    return ended, await asyncio.to_thread(injection.read, folder, overhead), why
