"""Builds a `.cu` file: one nvcc call, with the worker's cache and folders."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_remote.common import architectures
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job, KernelDefinition
from orbit_remote.toolchain import build
from orbit_remote.worker import probe
from orbit_remote.worker.context import WorkerContext
from orbit_remote.worker.gpu import architecture_of
from orbit_remote.worker.programs import project_build

if TYPE_CHECKING:
    from orbit_remote.spec.syntax_tree import SpecLaunch


async def nvcc(job: Job, device: c.Device | None, context: WorkerContext, scratch: Path) -> build.BuildResult:
    """Build once, for the architecture that the job names or else the device's. The caller holds a place for it
    (`WorkerContext.build`).
    """
    architecture = job.architecture or architecture_of(device)
    if job.action != "compile":  # a build may be for other GPUs than this one
        job = replace(job, flags=architectures.for_gpu(job.flags, architecture))
    with context.intermediate() as intermediates:
        return await build.build(
            job,
            architecture=architecture,
            started=context.groups(job),
            cache=context.cache,
            scratch=scratch,
            intermediates=intermediates,
        )


async def build_file(
    job: Job, device: c.Device | None, context: WorkerContext, scratch: Path
) -> build.BuildResult | c.Finished:
    """Build what the job asks for, and return it. The build is sent as an event, except for a program of the project.
    If it fails, return the job's end.
    """
    if job.project_program:
        made = await _of_project(job, device, context, scratch)
        return finished(job, made) if made.failure else made
    async with context.build(job):
        if job.action not in ("compile", "sanitize"):
            await context.ahead.join(job)
        if job.action == "compile" and job.templates:
            made = await _compile_with_templates(job, lambda job: nvcc(job, device, context, scratch))
        else:
            made = await nvcc(job, device, context, scratch)
    context.send(made.built)
    return finished(job, made) if made.failure else made


def finished(job: Job, made: build.BuildResult) -> c.Finished:
    """Return the end of a job that is only a build, or whose build failed."""
    outcome = made.failure.category if made.failure else "ok"
    return c.Finished(
        job.run, outcome, made.failure, resources=made.built.resources,
        toolchain=made.toolchain, build_s=made.built.seconds, report=made.kept,
        remarks=made.remarks, problems=made.built.problems if job.project_program else (),
    )  # fmt: skip


async def _of_project(
    job: Job, device: c.Device | None, context: WorkerContext, scratch: Path
) -> build.BuildResult:
    """Build a program of the author's project. Its build says nothing about the file that was asked for, so no event
    reports it.
    """
    assert job.driver
    async with context.build(job):
        if job.driver.tool != "nvcc":
            return await project_build.built(job, context, job.architecture or architecture_of(device))
        single = await asyncio.to_thread(project_build.alone, job)
        if isinstance(single, c.Failure):
            return build.BuildResult(c.Built(job.run, complete=False), failure=single)
        return await nvcc(single, device, context, scratch)


async def build_ahead(job: Job, context: WorkerContext) -> None:
    """Put the executable of a run that has not been asked for into the cache; problems are kept quiet."""
    device = None if job.architecture else await asyncio.to_thread(probe.device, job.device)
    async with context.scratch() as scratch:
        await nvcc(job, device, context, scratch)


async def _compile_with_templates(
    job: Job, nvcc: Callable[[Job], Awaitable[build.BuildResult]]
) -> build.BuildResult:
    """Compile a file with the instances that its launch specs launch from its templates. Nothing else in the file may
    mention them.
    """
    from orbit_remote.spec import launch_spec  # with the language of launch specs: 80 ms of a start
    from orbit_remote.toolchain import spec_instances

    wanted: list[tuple[KernelDefinition, int, list[str]]] = []
    launches: list[SpecLaunch] = []
    for definition in job.templates:
        checked = launch_spec.check(job.text, launch_spec.target_of(definition, "cuda"))
        if checked.spec.launches and (names := spec_instances.instances(checked)):
            launches.append(checked.spec.launches[0])
            wanted.append((definition, launches[-1].span.line + 1, names))
    made = await nvcc(replace(job, text=spec_instances.used(job.text, job.path, wanted), templates=()))
    problems = made.built.problems
    for launch in launches:
        problems = spec_instances.at_launch(problems, job.path, launch)
    own = c.content_hash(job.text.encode("utf-8", "replace"))
    built = replace(made.built, problems=problems, files=made.built.files | {job.path: own})
    return replace(made, built=built)
