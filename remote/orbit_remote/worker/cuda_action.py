"""A `.cu` file: compile it, or build it, run it as it is, and file every launch under its kernel."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_remote.common import architectures, measure
from orbit_remote.common import messages as c
from orbit_remote.process import program
from orbit_remote.recording import injection, run_outcome, telemetry
from orbit_remote.toolchain import build
from orbit_remote.worker import probe

if TYPE_CHECKING:
    from orbit_remote.worker.main import Context

_DEFAULT_ARCHITECTURE = "sm_90a"
_SAMPLE_NS = int(1.5e9 * telemetry.PERIOD_S)


async def carry_out(job: c.Job, context: Context) -> c.Finished:
    device = await asyncio.to_thread(probe.device, job.device) if job.action == "run" else None
    if job.action == "run" and device is None:
        # said before anything is built: the build cannot be run
        return no_gpu(job)
    architecture = job.architecture or architecture_of(device)
    async with context.scratch() as scratch:
        async with context.build(job):
            if job.action != "compile":
                await context.ahead.join(job)
            built = await _build(job, architecture, context, scratch)
        context.send(built.built)
        if built.failure:
            return c.Finished(
                job.run, built.failure.category, built.failure, resources=built.built.resources,
                toolchain=built.toolchain, build_s=built.built.seconds,
            )  # fmt: skip
        if job.action != "run":
            if job.action == "compile":
                context.ahead.compiled(job)
            return c.Finished(
                job.run, "ok", resources=built.built.resources, toolchain=built.toolchain,
                build_s=built.built.seconds,
            )  # fmt: skip
        assert built.executable is not None
        assert device is not None
        async with context.gpu(job):
            context.stage(job, "running")
            return await _run(job, context, built, device, scratch)


async def _build(job: c.Job, architecture: str, context: Context, scratch: Path) -> build.Build:
    if job.action == "compile" and job.templates:
        from orbit_remote.worker import spec_action

        return await spec_action.compile_with_templates(
            job, lambda one: nvcc(one, architecture, context, scratch)
        )
    return await nvcc(job, architecture, context, scratch)


async def nvcc(job: c.Job, architecture: str, context: Context, scratch: Path) -> build.Build:
    """One build; the caller holds a place for it (`Context.build`)."""
    with context.intermediate() as intermediates:
        return await build.build(
            job,
            architecture=architecture,
            started=context.groups(job),
            cache=context.cache,
            scratch=scratch,
            intermediates=intermediates,
        )


async def build_ahead(job: c.Job, context: Context) -> None:
    """Put the executable of a run that has not been asked for into the cache; problems are kept quiet."""
    architecture = job.architecture or architecture_of(await asyncio.to_thread(probe.device, job.device))
    async with context.scratch() as scratch:
        await _build(job, architecture, context, scratch)


def visible_gpu(job: c.Job) -> dict[str, str]:
    """What makes the job's GPU the first of its program, where it is not anyway; numbers are NVML's."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": str(job.device)} if job.device else {}


async def _run(
    job: c.Job, context: Context, built: build.Build, device: c.Device, scratch: Path
) -> c.Finished:
    environment = context.environment() | visible_gpu(job)
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
        telemetry=watched(sampler, recorded.records),
        toolchain=built.toolchain,
        exit_code=ended.status,
        build_s=built.built.seconds,
        run_s=ended.seconds,
        stdout=ended.stdout,
        stderr=ended.stderr,
        truncated=ended.truncated,
        remarks=tuple(remarks),
    )


def watched(sampler: telemetry.Sampler, records: Sequence[measure.LaunchRecord]) -> c.Telemetry | None:
    """What NVML said while the kernels ran: clocks of the idle GPU before and after would be others."""
    timed = [record for record in records if record.timed]
    if not timed:
        return None
    first, last = min(r.start_ns for r in timed), max(r.end_ns for r in timed)
    found = sampler.telemetry(first - _SAMPLE_NS, last + _SAMPLE_NS)
    return found if found and found.samples else None


def prepare(home: Path) -> None:
    """Compile the launch recorder before a first run needs it."""
    with contextlib.suppress(injection.Unavailable):  # a run says so, at its place
        injection.environment(home / "cupti", cache=home / "cupti")


def no_room(error: OSError) -> c.Failure:
    """A file that could not be written or read, in a sentence."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return c.Failure("infrastructure", f"the disk is full{where}", "free some space and run it again")
    return c.Failure("infrastructure", f"{os.strerror(error.errno or 0)}{where}", "", retryable=True)


def architecture_of(device: c.Device | None) -> str:
    if device is None or device.capability is None:
        return _DEFAULT_ARCHITECTURE
    return architectures.architecture_of(device.capability)


def no_gpu(job: c.Job) -> c.Finished:
    return c.Finished(
        job.run,
        "infrastructure",
        c.Failure(
            "infrastructure",
            "there is no NVIDIA GPU in this machine to run it on"
            if job.device == 0
            else f"this machine has no GPU number {job.device}",
            "`orbit-lsp doctor` says what is missing; static figures and compile errors need no GPU",
        ),
    )
