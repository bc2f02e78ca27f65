"""A `.cu` file: compile it, or build it, run it as it is, and file every launch under its kernel."""

from __future__ import annotations

import asyncio
from pathlib import Path

from orbit_remote.common import measure
from orbit_remote.common import messages as c
from orbit_remote.process import program
from orbit_remote.recording import injection, run_outcome, telemetry
from orbit_remote.toolchain import build
from orbit_remote.worker import builds, gpu, probe
from orbit_remote.worker.context import Context


async def compile_or_run(job: c.Job, context: Context) -> c.Finished:
    device = await asyncio.to_thread(probe.device, job.device) if job.action == "run" else None
    if job.action == "run" and device is None:
        # said before anything is built: the build cannot be run
        return gpu.no_gpu(job)
    architecture = job.architecture or gpu.architecture_of(device)
    async with context.scratch() as scratch:
        async with context.build(job):
            if job.action != "compile":
                await context.ahead.join(job)
            built = await builds.build_file(job, architecture, context, scratch)
        context.send(built.built)
        if built.failure:
            return c.failed(
                job.run, built.failure, resources=built.built.resources,
                toolchain=built.toolchain, build_s=built.built.seconds,
            )  # fmt: skip
        if job.action != "run":
            if job.action == "compile":
                context.ahead.compiled(job)
            return c.ok(
                job.run, resources=built.built.resources, toolchain=built.toolchain,
                build_s=built.built.seconds,
            )  # fmt: skip
        assert built.executable is not None
        assert device is not None
        async with context.gpu(job):
            context.stage(job, "running")
            return await _run(job, context, built, device, scratch)


async def _run(
    job: c.Job, context: Context, built: build.Build, device: c.Device, scratch: Path
) -> c.Finished:
    environment = context.environment() | gpu.visible_gpu(job)
    remarks = list(built.remarks)
    folder = scratch / "launches"
    try:
        environment |= await asyncio.to_thread(
            injection.environment, folder, cache=context.home / "cupti", nvcc=job.nvcc
        )
    except injection.Unavailable as error:
        # the program still runs; its times are absent, and this says why
        remarks.append(f"{error.message}; {error.remedy}")
    with telemetry.Sampler(device.uuid or device.index) as sampler:
        ended = await program.run(
            [str(built.executable), *job.arguments],
            cwd=job.directory or str(Path(job.path).parent),
            env=environment,
            stdin=job.stdin,
            timeout_s=job.run_timeout_s,
            started=context.groups(job),
            output=lambda stream, text: context.send(c.Output(job.run, stream, text)),
        )
    recorded = await asyncio.to_thread(injection.read, folder)
    symbols = {resources.symbol: resources for resources in built.built.resources}
    found = run_outcome.of_program(job, ended, recorded, symbols)
    launches = measure.group(recorded.records, symbols)
    remarks += [*recorded.remarks, *measure.remarks(recorded.records), *found.remarks]
    if sampler.problem:
        remarks.append(sampler.problem)
    return c.Finished(
        run=job.run,
        outcome=found.outcome,
        failure=found.failure,
        problems=found.problems,
        launches=launches,
        resources=built.built.resources,
        device=device,
        telemetry=gpu.watched(sampler, recorded.records),
        toolchain=built.toolchain,
        exit_code=ended.status,
        build_s=built.built.seconds,
        run_s=ended.seconds,
        stdout=ended.stdout,
        stderr=ended.stderr,
        truncated=ended.truncated,
        remarks=tuple(remarks),
    )
