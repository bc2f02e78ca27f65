"""*Capture* of a CUDA kernel: a driver runs, and the recorder takes one launch out of it. A launch spec is made from
that, with the kernel compiled from its file.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

from orbit_remote.child.capture import capturing, cuda_arguments
from orbit_remote.child.capture.launch_watch import Form, NotCapturedError
from orbit_remote.common import messages as c
from orbit_remote.common import symbols
from orbit_remote.common.requests import Capture, DriverStart, Job, SpecStart
from orbit_remote.recording import taken_launch
from orbit_remote.recording.taken_launch import NotTakenError, TakenLaunch
from orbit_remote.spec import launch_spec
from orbit_remote.spec.signature import Parameter
from orbit_remote.worker import gpu
from orbit_remote.worker.actions import plain_action, spec_action
from orbit_remote.worker.context import WorkerContext

_SPELLED_TYPES = re.compile(r"\((?:unsigned |signed )?(?:int|long|short|char|bool)\)(?=-?\d)")


async def capture(job: Job, wanted: Capture, context: WorkerContext) -> c.Finished:
    """Return the end of the driver's run, with what was captured, or why nothing was."""
    assert isinstance(job.start, DriverStart)
    assert job.definition
    if (device := await asyncio.to_thread(gpu.of, job)) is None:
        return gpu.no_gpu(job)
    async with context.scratch() as folder:
        await asyncio.to_thread(taken_launch.ask, folder, job.definition.name, job.text, wanted)
        variables = (*job.variables, f"{taken_launch.VARIABLE}={folder}")
        plain = replace(job, start=replace(job.start, capture=None), variables=variables)
        finished = await plain_action.build_or_run(plain, context)
        if finished.outcome == "cancelled":
            return finished
        name = job.definition.name
        seen = sum(each.count for each in finished.launches if symbols.base_name(each.symbol) == name)
        try:
            launch = await asyncio.to_thread(taken_launch.read, folder)
            if launch is None:
                raise _not_made(seen, wanted)
            captured = await _spec_of(job, launch, folder, device, context)
        except (NotTakenError, NotCapturedError) as why:
            captured = c.Captured(name, why=str(why), remedy=why.remedy)
    return replace(finished, captured=replace(captured, seen=seen))


def _not_made(seen: int, wanted: Capture) -> NotTakenError:
    """Return why no launch was taken, from the number of launches in the run's records."""
    if not seen:
        return NotTakenError(
            "the driver did not launch it",
            "name another one with --through: `orbit-lsp drivers` lists them",
        )
    if wanted.launch and wanted.launch > seen:
        times = "once" if seen == 1 else f"{seen:,} times"
        return NotTakenError(
            f"it was launched {times}: there is no launch {wanted.launch}", f"name one from 1 to {seen:,}"
        )
    if wanted.launch:
        return NotTakenError(*taken_launch.IN_GRAPH)
    return NotTakenError("no launch had the grid and block of the run before", "name a launch with --launch")


async def _spec_of(
    job: Job, launch: TakenLaunch, folder: Path, device: c.Device, context: WorkerContext
) -> c.Captured:
    """Raises NotCapturedError."""
    text, definition = capturing.above(job, first_statements(job, launch))
    start = SpecStart(definition, record=str(folder))
    # the project's folder is where its program ran; the spec's own run stands in that of the file
    spec = replace(job, text=text, start=start, tool_kernel=None)
    finished, _ = await spec_action.launched(spec, context, device)
    if finished.captured is None:
        why = (
            finished.failure.message.partition("\n")[0]
            if finished.failure
            else "its process ended without an answer"
        )
        raise NotCapturedError(f"its file could not be compiled for a launch spec, or launched: {why}")
    return finished.captured


def first_statements(job: Job, launch: TakenLaunch) -> list[str]:
    """Return a launch spec that names the instance and has the launch's own numbers. Tensors only have names. Raises
    NotCapturedError.
    """
    assert job.definition
    own, named = job.definition.qualified, symbols.qualified_name(launch.symbol)
    if named not in (own, job.definition.name):
        raise NotCapturedError(
            f"a kernel of the same name was launched, {named}, and not {own}",
            "name another launch with --launch",
        )
    header = launch_spec.check(job.text, launch_spec.target_of(job.definition, "cuda")).signature
    if header is None:
        raise NotCapturedError("its parameters could not be read from its text")
    templates, types = cuda_arguments.instance(launch.symbol)
    parameters = cuda_arguments.signature_of(header, types).parameters
    arguments = cuda_arguments.read(launch, parameters)
    tensors = [f"{name} = empty(1)" for name, value in arguments.values.items() if isinstance(value, Form)]
    shown = ", ".join(_passed(each, arguments.values[each.name]) for each in parameters)
    name = job.definition.name + _SPELLED_TYPES.sub("", templates)
    grid, block = (f"dim3({', '.join(map(str, each))})" for each in (launch.grid, launch.block))
    more = " cooperative" if launch.cooperative else ""
    if launch.cluster:
        more += f" cluster({', '.join(map(str, launch.cluster))})"
    return [*tensors, f"launch {name}<<<{grid}, {block}, {launch.shared}>>>({shown}){more}"]


def _passed(parameter: Parameter, value: cuda_arguments.Argument) -> str:
    if value is None:
        return "nullptr"
    return parameter.name if isinstance(value, Form) else cuda_arguments.shown(value, parameter.element)
