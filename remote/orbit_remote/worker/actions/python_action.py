"""Runs a job in a warm Python process, from start to outcome: every `.py` file, and launch specs of `.cu` files."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from orbit_remote.child import child_main, python_job
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Telemetry
from orbit_remote.common.requests import Job
from orbit_remote.process import python_stack
from orbit_remote.process.program import EndedProgram, Printed
from orbit_remote.recording import injection, run_outcome, telemetry
from orbit_remote.recording.first_context import FirstContext
from orbit_remote.recording.injection import UNKNOWN
from orbit_remote.sanitizer.sanitizer_findings import Own
from orbit_remote.toolchain.spec_instances import Image
from orbit_remote.worker import disk_watch, gpu, own_files, prefork
from orbit_remote.worker.children import Child, Forked
from orbit_remote.worker.context import WorkerContext
from orbit_remote.worker.faults import second_look


async def run_python(job: Job, context: WorkerContext) -> c.Finished:
    """Run or compile a `.py` file, or run a driver."""
    device = await asyncio.to_thread(gpu.of, job) if job.action == "run" else None
    can_do_without = job.is_traced or job.start.through == "driver"
    if job.action == "run" and device is None and not (can_do_without and gpu.dispensable(job)):
        return gpu.no_gpu(job)
    finished = await follow(job, context, device)
    if device is None and job.start.through == "driver":
        return gpu.run_without(job, finished)
    return finished


async def follow(
    job: Job,
    context: WorkerContext,
    device: c.Device | None,
    image: Image | None = None,
    own: Own | None = None,
) -> c.Finished:
    """Follow a job. `device` is None for a job that only compiles. `image` is what a launch spec of a `.cu` file
    launches. `own` says which files are the author's, if the rule is not Python's.
    """
    late = (
        device is not None
        and job.start.through == "driver"
        and job.action in ("run", "profile")
        and prefork.FORKS
    )
    async with AsyncExitStack() as held, AsyncExitStack() as watching:
        lease = await held.enter_async_context(AsyncExitStack())
        if device and not late:
            await lease.enter_async_context(context.gpu(job, in_spare=not job.is_refereed))
        context.stage(job, "starting", "a Python with torch and triton")
        # a launch spec's process looks at the clocks itself: launches at a low one are not counted
        sampler = (
            telemetry.Sampler(device.uuid or device.index) if device and job.start.through != "spec" else None
        )
        overhead = UNKNOWN
        if device and job.start.through in ("program", "exec", "driver") and not job.is_traced:
            if late and not context.overheads.settled(device):
                async with context.gpu(job):
                    await context.overheads.overhead(device, context.environment())
            overhead = await context.overheads.overhead(device, context.environment())
        ahead = device is not None and _another_follows(job, device)
        environment = context.environment(job)
        if late:
            visible = {**environment, **gpu.visible_gpu(job)}
            child = await context.spares.take(
                replace(job, device=0), environment, overhead=overhead, role="driver", own=visible
            )
        else:
            child = await context.spares.take(job, environment, image, overhead, ahead=ahead)
        followed: _Followed | None = None
        held.push_async_callback(lambda: asyncio.shield(_leave(context, child, followed)))
        disk = disk_watch.DiskWatch(job, context, child.folder)
        told = disk.started(context.groups(job))
        watching.callback(disk.over)
        told(child.pid, True)
        if isinstance(child, Forked) and child.first_context:
            asking = _lease_when_asked(job, context, child.first_context, lease, watching, sampler)
            await watching.enter_async_context(_beside(asking))
        elif sampler:
            watching.enter_context(sampler)
        since = time.time_ns()
        followed = await _follow(job, context, child, at_once=ahead and job.start.through == "contract")
        told(child.pid, False)
        finished, ended = followed.finished, followed.ended
        if disk.failure:
            finished = c.failed(job.run, disk.failure)
        series = await asyncio.to_thread(child.fresh) if sampler else []
        if finished is None:
            recorded = await asyncio.to_thread(injection.read, child.launches, overhead)
            finished = _crashed(job, ended, recorded.since(since) if child.served else recorded)
            finished = _located(finished, followed)
        finished = _asserted(job, finished, ended.stderr)
        unleased = (
            isinstance(child, Forked) and child.first_context is not None and not child.first_context.allowed
        )
        if device and not unleased and second_look.wanted(job, finished):
            child.kill()  # it may hold all of the GPU's memory
            await child.wait()
            first, again = second_look.since(since, child.launches), second_look.child_of(job, context, image)
            own = own or own_files.of_python(job)
            finished = await second_look.explained(job, context, finished, first, again, own)
        elif followed.leaves:
            context.later(held.pop_all().aclose())
    watched = gpu.watched(sampler, series) if sampler and series else None
    if sampler:
        more = (*gpu.beyond(job, series), *sampler.remarks)
        finished = replace(finished, remarks=(*finished.remarks, *more))
        if sampler.disturbed:
            finished = undecided(finished)
    return reported(job, context, finished, ended, device, watched)


async def _lease_when_asked(
    job: Job,
    context: WorkerContext,
    first_context: FirstContext,
    lease: AsyncExitStack,
    watching: AsyncExitStack,
    sampler: telemetry.Sampler | None,
) -> None:
    """Take the GPU's lease once a process of the job is about to open CUDA, and then watch the GPU. The processes
    wait for the lease; that time counts for no limit.
    """
    asked, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(first_context, asked.set)
    try:
        await asked.wait()
    finally:
        loop.remove_reader(first_context)
    try:
        with context.uncounted(job):
            if await lease.enter_async_context(context.gpu(job)):
                context.stage(job, "running")
    except OSError:  # it runs without, as one does whose lock was taken away
        context.unguarded.add(job.run)
    if sampler:
        watching.enter_context(sampler)
    first_context.allow()


@contextlib.asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Do work beside the block, and cancel it at the block's end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _another_follows(job: Job, device: c.Device) -> bool:
    """Say whether another job is likely to follow in a separate process, which may open its context beside this one."""
    stays = job.start.through == "spec" and job.language == "cuda"
    return job.batch and not (stays or job.is_refereed or device.exclusive)


async def _leave(context: WorkerContext, child: Child, followed: _Followed | None) -> None:
    if followed and followed.killed:
        context.spares.let_go(child)
    elif not (followed and followed.stays and context.spares.give_back(child)):
        await child.close()


def undecided(finished: c.Finished) -> c.Finished:
    """Weaken a report about a candidate to what is certain: beside other processes on the GPU, clocks that disagree
    prove nothing.
    """
    if not (finished.judged and finished.judged.suspicious):
        return finished
    failure = c.Failure(
        "infrastructure",
        f"other processes used the GPU while the candidate was judged, and the result is suspicious: {finished.judged.suspicious}",
        "submit it again when the GPU is free",
        retryable=True,
    )
    judged = replace(finished.judged, suspicious="")
    return replace(finished, outcome="infrastructure", failure=failure, problems=(), judged=judged)


@dataclass(frozen=True, slots=True)
class _Followed:
    """What the child said last, and how it ended. It may wait for another job. It may have been killed once it had
    succeeded. Or it leaves by itself, and only the next job on its GPU waits for that.
    """

    finished: c.Finished | None
    ended: EndedProgram
    stays: bool = False
    killed: bool = False
    leaves: bool = False
    at: tuple[c.Place, str] | None = None
    """The line of the author's on which it was when it reached its limit, and the function."""
    doing: str = ""
    """What it did then, as in *compiling softmax_kernel*, where that is known."""


async def _follow(job: Job, context: WorkerContext, child: Child, *, at_once: bool) -> _Followed:
    """Follow a child. `at_once`: a child that has succeeded is killed, so that the next job need not wait until it
    has freed its memory.
    """
    began = time.perf_counter()
    printed = Printed(child.stdout, child.stderr, context.output(job))
    finished: c.Finished | None = None
    status: int | None = None
    stays = killed = leaves = False
    at: tuple[c.Place, str] | None = None
    doing = ""
    compilations = _Compilations(job, context)
    try:
        # a debugger waits for its author, and ends with whoever asked for it
        limits = {"run": job.run_timeout_s, "profile": job.run_timeout_s, "debug": None}
        async with context.limit(job, limits.get(job.action, job.build_timeout_s)):
            async for event in child.events():
                if isinstance(event, c.Finished):
                    finished = event
                    if (
                        job.start.through == "contract"
                    ):  # others may stay, or time what the program does as it ends
                        context.spares.measured(child)
                elif compilations.heard(event):
                    context.send(event)
                if isinstance(event, c.Stage) and event.why == child_main.TIMED and job.batch:
                    context.judge_follows(child, job)
            killed = at_once and finished is not None and finished.outcome == "ok"
            if killed:
                await child.printed()
            afterwards = await child.afterwards() if finished is not None and not killed else None
            stays, leaves = afterwards == "stays", isinstance(afterwards, int)
            if isinstance(afterwards, int):
                status = afterwards
            else:
                status = 0 if stays or killed else await child.wait()
    except TimeoutError:
        finished, doing = None, compilations.what
        if isinstance(child, Forked) and child.alive:
            at = await asyncio.to_thread(python_stack.ask, child.pid, child.launches, job.path)
    finally:
        compilations.over()
        if stays or killed or leaves:
            printed.stop()
        if not stays:
            child.kill()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(printed.read_out())
    ended = printed.ended(status, time.perf_counter() - began)
    return _Followed(finished, ended, stays, killed, leaves, at, doing)


_SHOWN_EVERY_S = 1.0


class _Compilations:
    """The time in which a driver's process compiles kernels. It counts for the limit of a build, and not for that of
    a run.
    """

    def __init__(self, job: Job, context: WorkerContext) -> None:
        self._job = job
        self._context = context
        self._left_s = job.build_timeout_s
        self._since = self._shown = 0.0
        self._is_shown = True
        self._uncounted = contextlib.ExitStack()
        self.what = ""
        """What is compiled at present, as in *compiling softmax_kernel*."""

    def heard(self, event: c.Event) -> bool:
        """Return whether the client is to be told: of hundreds of compilations not of each."""
        if not isinstance(event, c.Stage):
            return True
        now = time.monotonic()
        if event.state != "building":
            self.over()
            shown, self._is_shown = self._is_shown, False
            return shown
        if not self.what and self._left_s > 0:
            self._since = now
            self._uncounted.enter_context(self._context.uncounted(self._job, self._left_s))
        self.what = event.why
        if now - self._shown < _SHOWN_EVERY_S:
            return False
        self._shown, self._is_shown = now, True
        return True

    def over(self) -> None:
        if self.what:
            self._left_s -= time.monotonic() - self._since
            self._uncounted.close()
            self.what = ""


def _located(finished: c.Finished, followed: _Followed) -> c.Finished:
    """Add to a run that reached its limit what it did then, and the line on which its Python was."""
    if finished.failure is None or finished.outcome != "timed out":
        return finished
    text, place = finished.failure.message, None
    if followed.doing:
        text += f" while it was {followed.doing}"
    if followed.at:
        place, function = followed.at
        text += f"; Python was at {Path(place.file).name}:{place.line}, in {function}"
    return replace(finished, failure=replace(finished.failure, message=text, place=place))


def _asserted(job: Job, finished: c.Finished, stderr: str) -> c.Finished:
    """Return a failed device assertion on its line, with its text, as the CUDA runtime printed it."""
    said = next((problem for problem in finished.problems if problem.code == "CUDA_ERROR_ASSERT"), None)
    asserted = run_outcome.assertion(job, stderr) if said else None
    if said is None or asserted is None or finished.failure is None:
        return finished
    place, text = asserted
    problem = replace(said, message=text, place=place)
    failure = replace(finished.failure, message=text, remedy="", place=place)
    problems = tuple(problem if each is said else each for each in finished.problems)
    return replace(finished, problems=problems, failure=failure)


def _crashed(job: Job, ended: EndedProgram, recorded: injection.RecordedRun | None) -> c.Finished:
    """Return the end of a child that ended without a word, or had to be ended. What was recorded until then is kept."""
    if ended.status is None and job.action == "compile":
        message = f"compiling was ended at its limit of {job.build_timeout_s:g} s"
        failure = c.Failure(
            "timed out", message, "raise the setting `orbit.build_timeout_s` (option --build-timeout)"
        )
        return c.failed(job.run, failure)
    finished = python_job.crashed(job, ended.status or 0, recorded or injection.RecordedRun())
    if ended.status is not None:
        return finished
    late = run_outcome.of_program(job, ended, recorded, {})
    return replace(finished, outcome=late.outcome, failure=late.failure, problems=(), exit_code=None)


def reported(
    job: Job,
    context: WorkerContext,
    finished: c.Finished,
    ended: EndedProgram,
    device: c.Device | None,
    watched: Telemetry | None,
) -> c.Finished:
    """Return the child's report with what only the worker saw. What the compiler said is sent as a build."""
    errors = sum(problem.severity == "error" for problem in finished.problems)
    if job.action == "compile" and finished.outcome == "ok" and errors:
        name, count = Path(job.path).name, "1 error" if errors == 1 else f"{errors} errors"
        failure = c.Failure("compile error", f"{name} does not compile: {count}")
        finished = replace(finished, outcome="compile error", failure=failure)
    of_build = job.language == "triton" and (finished.outcome == "compile error" or job.action == "compile")
    if job.language == "triton" and job.action != "debug":  # nvcc's report on a `.cu` file was sent before
        context.send(
            c.Built(
                job.run,
                finished.problems if of_build else (),
                finished.resources,
                finished.files,
                finished.build_s or 0.0,
                complete=finished.outcome != "infrastructure",
            )
        )
    return replace(
        finished,
        problems=() if of_build else finished.problems,
        device=device,
        telemetry=watched or finished.telemetry,
        exit_code=finished.exit_code if finished.exit_code is not None else ended.status,
        run_s=finished.run_s if finished.run_s is not None else ended.seconds,
        stdout=ended.stdout,
        stderr=ended.stderr,
        truncated=ended.truncated,
    )
