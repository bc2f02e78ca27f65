"""Runs a kernel of a `.cu` file through its launch spec: builds its instances and hands them to a child."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from orbit_remote.common import architectures, limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Job
from orbit_remote.spec import launch_spec
from orbit_remote.toolchain import build, spec_instances
from orbit_remote.toolchain.spec_instances import Image
from orbit_remote.worker import gpu, own_files
from orbit_remote.worker.actions import builds, python_action
from orbit_remote.worker.context import WorkerContext

_NO_HOST_CODE = (
    "referee: a launch spec of a .cu file runs no host code of it: its device code is compiled to a cubin, which our process loads, "
    "launches, times and checks"
)


async def run_spec(job: Job, context: WorkerContext) -> c.Finished:
    device = await asyncio.to_thread(gpu.of, job)
    if job.action == "build":
        async with context.scratch() as scratch:
            made = await build_kernels(job, device, context, scratch)
        return made if isinstance(made, c.Finished) else made.completed(c.ok(job.run))
    if device is None:
        return gpu.no_gpu(job)
    finished, made = await launched(job, context, device)
    return replace(finished, judged=c.Judged("referee", _NO_HOST_CODE)) if made else finished


async def launched(job: Job, context: WorkerContext, device: c.Device) -> tuple[c.Finished, BuiltSpec | None]:
    """Build what a job launches, and launch it in a process that is kept ready. Return the end of the job and what
    was built; None if the build failed.
    """
    # a spare needs seconds where none is ready; meanwhile the compiler works
    warming = asyncio.create_task(context.spares.prepare(context.environment()))
    try:
        async with context.scratch() as scratch:
            made = await build_kernels(job, device, context, scratch)
            if isinstance(made, c.Finished):
                return made, None
            own = own_files.of_build(job, made.build.built)
            finished = await python_action.follow(job, context, device, made.image, own)
        return made.completed(finished), made
    finally:
        await asyncio.gather(warming, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class BuiltSpec:
    """The kernels of a launch spec, in a file of the job's scratch folder."""

    image: Image
    build: build.BuildResult

    def completed(self, finished: c.Finished) -> c.Finished:
        """Return a job's end, with the facts that only its build knows."""
        return replace(
            finished,
            toolchain=self.build.toolchain | finished.toolchain,
            build_s=self.build.built.seconds,
            resources=self.build.built.resources,
            remarks=(*self.build.remarks, *finished.remarks),
        )


async def build_kernels(
    job: Job, device: c.Device | None, context: WorkerContext, scratch: Path
) -> BuiltSpec | c.Finished:
    """Compile what the launch spec launches, and report the build. Return the job's end if there is nothing to
    launch.

    Without a `device` it is for the architecture that the job names.
    """
    assert job.definition is not None
    checked = launch_spec.check(job.text, launch_spec.target_of(job.definition, "cuda"))
    if refused := faulty(job, checked):
        return refused
    # a build may name several architectures, none of which this GPU can load
    architecture = gpu.architecture_of(device) if device else job.architecture
    if architecture:
        job = replace(job, flags=architectures.for_one(job.flags, architecture))
    # one that was begun while the text was being typed is waited for, and then found
    async with context.alone((job.path, job.text, job.definition, job.flags)), context.build(job):
        made, image = await _build(job, checked, device, context, scratch)
    context.send(made.built)
    return BuiltSpec(image, made) if image else builds.finished(job, made)


def faulty(job: Job, checked: launch_spec.EvaluatedSpec) -> c.Finished | None:
    """Return the end of a job whose launch spec has an error. Return None if it has none."""
    errors = [fault for fault in checked.faults if fault.severity == "error"]
    if not checked.spec.launches and not errors:
        name = job.definition.name if job.definition else "the kernel"
        failure = c.Failure(
            "compile error", f"the launch spec of {name} has no launch", "add a `launch` line"
        )
        return c.failed(job.run, failure)
    if not errors:
        return None
    problems = tuple(
        c.Problem("error", error.message, "orbit", error.span.place(job.path)) for error in errors
    )
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    failure = c.Failure(
        "compile error", f"the launch spec: {errors[0].message}{more}", place=problems[0].place
    )
    return c.failed(job.run, failure, problems=problems)


async def _build(
    job: Job,
    checked: launch_spec.EvaluatedSpec,
    device: c.Device | None,
    context: WorkerContext,
    scratch: Path,
) -> tuple[build.BuildResult, Image | None]:
    """Build the launch spec. This raises nothing: without an image, the build says what went wrong."""
    names = spec_instances.instances(checked)
    made = await _compile(job, checked, names, device, context, scratch, "")
    if any("overloaded" in problem.message for problem in made.built.problems) and checked.signature:
        # the types as the text has them tell the kernel from its namesakes; typedefs are not resolved
        types = ", ".join(parameter.type for parameter in checked.signature.parameters)
        made = await _compile(job, checked, names, device, context, scratch, types)
    made = replace(made, built=_without_own_parts(made.built, job, checked))
    if made.failure:
        first = next((problem for problem in made.built.problems if problem.severity == "error"), None)
        place = first.place if first and made.failure.category == "compile error" else made.failure.place
        return replace(made, failure=replace(made.failure, place=place)), None
    if made.cubin is None or made.cubin.suffix != ".cubin":
        text = "a launch spec is built for one architecture, and the flags ask for several"
        failure = c.Failure("compile error", text, "remove -gencode or -arch=all from the flags")
        return replace(made, failure=failure), None
    try:
        kernels = spec_instances.read(
            await asyncio.to_thread(regular_files.read, made.cubin, limits.BUILD), names
        )
    except (OSError, ValueError) as error:
        failure = c.Failure("infrastructure", f"the compiled kernel is not understood: {error}")
        return replace(made, failure=failure), None
    return made, Image(str(made.cubin), kernels, made.built.resources)


async def _compile(
    job: Job,
    checked: launch_spec.EvaluatedSpec,
    names: list[str],
    device: c.Device | None,
    context: WorkerContext,
    scratch: Path,
    overload: str,
) -> build.BuildResult:
    assert job.definition is not None
    line = checked.spec.launches[0].span.line + 1
    text = spec_instances.source(job.text, job.path, line, names, job.definition, overload)
    return await builds.nvcc(replace(job, text=text, action="compile"), device, context, scratch)


def _without_own_parts(built: c.Built, job: Job, checked: launch_spec.EvaluatedSpec) -> c.Built:
    """Return a build for the author's file: without what we added to it."""
    own = c.content_hash(job.text.encode("utf-8", "replace"))
    return replace(
        built,
        problems=spec_instances.at_launch(built.problems, job.path, checked.spec.launches[0]),
        resources=tuple(resource for resource in built.resources if not spec_instances.is_ours(resource)),
        files=built.files | {job.path: own},
    )
