"""The action `profile`: the GPU counts one launch of a kernel in each of its configurations.

If counters are not available, the same job runs as any other, and the profile has its times and the reason.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_remote.child import child_main
from orbit_remote.common import limits, regular_files, symbols
from orbit_remote.common import messages as c
from orbit_remote.common.measurements import Telemetry
from orbit_remote.common.requests import DriverStart, Job, SpecStart
from orbit_remote.counters import kernel_selection, profiler
from orbit_remote.counters.profiler import UncountedError
from orbit_remote.ncu import compiler_dumps, counter_permission, ncu_options
from orbit_remote.ncu.counter_permission import CounterPermission
from orbit_remote.ncu.ncu_log import PERMISSION, Log
from orbit_remote.ncu.ncu_options import DURATION, MOST_RESULTS, Tool
from orbit_remote.ncu.ncu_run import Under
from orbit_remote.ncu.report_reader import ReportAnswer, ReportRequest
from orbit_remote.process import program
from orbit_remote.recording import injection, run_outcome, telemetry
from orbit_remote.toolchain import dumps
from orbit_remote.worker import gpu, own_files
from orbit_remote.worker.actions import builds, plain_action, python_action
from orbit_remote.worker.context import WorkerContext

if TYPE_CHECKING:
    from orbit_remote.worker.actions import spec_action

_MOST_REPORT = 24 << 20
"""Characters of a report in base64 that travel; a full report of 16 launches has about 8 MiB."""
_NO_TOOL = (
    "Nsight Compute is not installed where the kernel runs; to enable counters: install it (it is part of the CUDA "
    "toolkit: nsight-compute) so that `ncu` is on the path"
)


async def profile(job: Job, context: WorkerContext) -> c.Finished:
    device = await asyncio.to_thread(gpu.of, job)
    if device is None:
        return gpu.no_gpu(job)
    finished = await _profiled(job, context, device)
    remark = gpu.divided(device)
    if not remark or not any(profile.tier == "counters" for profile in finished.profiles):
        return finished
    return replace(finished, remarks=(*finished.remarks, remark))


async def _profiled(job: Job, context: WorkerContext, device: c.Device) -> c.Finished:
    if sys.platform != "linux":  # processes that can be interrupted in groups, and files of /proc
        return await _times(job, context, "profiles are taken on Linux only")
    tool = await asyncio.to_thread(ncu_options.find)
    folder = context.counters
    usable = tool is not None and not tool.too_old
    known = (
        await asyncio.to_thread(counter_permission.known, folder, device, tool)
        if tool and usable
        else CounterPermission()
    )
    uncounted = ""
    if counts_by_cupti(job) and known.why != PERMISSION.sentence:
        finished = await _counted_here(job, context, device)
        uncounted = _uncounted(job, finished)
        if not uncounted:
            return finished
    if tool is None or not usable:
        why = tool.too_old if tool else _NO_TOOL
        return await _times(job, context, f"CUPTI: {uncounted}. {why}" if uncounted else why)
    if known.permitted is False:
        return await _times(job, context, known.why)
    warming = asyncio.ensure_future(context.reports.prepare(tool.readers))
    try:
        attempt = _Attempt(job, context, device, tool)
        finished = await attempt.finished()
    finally:
        await asyncio.gather(warming, return_exceptions=True)
    if attempt.learned.permitted is not None and attempt.learned != known:
        await asyncio.to_thread(counter_permission.remember, folder, device, tool, attempt.learned)
    if uncounted and any(profile.tier == "counters" for profile in finished.profiles):
        remark = f"counted by Nsight Compute, which takes longer: {uncounted}"
        finished = replace(finished, remarks=(*finished.remarks, remark))
    return finished


def counts_by_cupti(job: Job) -> bool:
    """Say whether CUPTI may count it. A report, rules and chosen sections need Nsight Compute."""
    ours = job.is_program or isinstance(job.start, SpecStart | DriverStart)
    return job.detail == "click" and not job.sections and ours


async def _counted_here(job: Job, context: WorkerContext, device: c.Device) -> c.Finished:
    """Count launches by CUPTI in the process that makes them: of a launch spec, a driver or a program."""
    building = asyncio.ensure_future(asyncio.to_thread(_build_profiler, context.home / "cupti", job))
    try:
        return await _counted_by_cupti(job, context, device)
    finally:
        await asyncio.gather(building, return_exceptions=True)


def _build_profiler(cache: Path, job: Job) -> None:
    """Build the profiler. The first time it takes seconds, in which the kernel is built too. The process that counts
    reports what is missing.
    """
    with contextlib.suppress(injection.RecorderUnavailableError, UncountedError):
        profiler.library(cache, injection.find(nvcc=job.nvcc, in_this_process=not job.is_program))


async def _counted_by_cupti(job: Job, context: WorkerContext, device: c.Device) -> c.Finished:
    if job.is_program:
        from orbit_remote.worker.actions import program_counting

        try:
            finished = await program_counting.counted(job, context, device)
        except UncountedError as uncounted:
            finished = c.ok(job.run, profiles=(c.Profile("", "", "times", str(uncounted)),))
    elif isinstance(job.start, SpecStart) and job.language == "cuda":
        from orbit_remote.worker.actions import spec_action

        finished, made = await spec_action.launched(job, context, device)
        remarks = list(finished.remarks)
        ptx = made.build.ptx.encode("utf-8", "surrogateescape") if made else b""
        kernels = {each.symbol: each.name for each in finished.dumps} if ptx else {}
        texts = [dumps.DumpedInstance(symbol, name, {}, {"ptx": ptx}) for symbol, name in kernels.items()]
        packed = dumps.packed(texts, remarks)
        finished = replace(finished, dumps=(*packed, *finished.dumps), remarks=tuple(remarks))
    else:
        finished = await python_action.follow(job, context, device)
    known = _without_namesakes(finished.resources)
    return replace(finished, profiles=tuple(_named(each, known, job) for each in finished.profiles))


def _uncounted(job: Job, finished: c.Finished) -> str:
    """Return why CUPTI counted nothing. Return "" if it did, or if the launches themselves failed."""
    if finished.outcome == "ok":
        return next((profile.why for profile in finished.profiles if profile.tier == "times"), "")
    ended = not job.is_program and finished.exit_code is not None and finished.exit_code < 0
    return "the process in which CUPTI counts ended" if ended else ""


async def _times(job: Job, context: WorkerContext, why: str) -> c.Finished:
    """Run the job in the ordinary way in place of a profile."""
    finished = await plain_action.build_or_run(replace(job, action="run"), context)
    return _with_times(finished, finished.launches, why)


def _with_times(finished: c.Finished, launches: Sequence[c.Launches], why: str) -> c.Finished:
    profiles = tuple(
        c.Profile(
            launch.symbol, launch.name, "times", why, grid=launch.grid, block=launch.block, place=launch.place
        )
        for launch in launches
    )
    return replace(finished, profiles=profiles, remarks=(*finished.remarks, f"no counters: {why}"))


class _Attempt:
    """One try to profile a job with counters."""

    def __init__(self, job: Job, context: WorkerContext, device: c.Device, tool: Tool) -> None:
        self.learned = CounterPermission()
        self._job = job
        self._context = context
        self._device = device
        self._tool = tool

    async def finished(self) -> c.Finished:
        async with self._context.scratch() as scratch:
            if self._job.is_program:
                return await self._program(scratch)
            return await self._child(scratch)

    # -- a program of the author's ------------------------------------------------------------------

    async def _program(self, scratch: Path) -> c.Finished:
        job, context = self._job, self._context
        built = await builds.build_file(job, self._device, context, scratch)
        if isinstance(built, c.Finished):
            return built
        self._job = job = built.job or job
        wanted = kernel_selection.chosen(job, built.built.resources)
        under = Under.make(
            self._tool,
            scratch,
            job.run_timeout_s,
            symbols=tuple(resources.symbol for resources in wanted),
            pattern=kernel_selection.pattern(job),
            sources=_is_saved(job),
            detail=job.detail,
            sections=job.sections,
        )
        async with context.gpu(job):
            context.stage(job, "profiling")
            folder = job.working_folder
            ended, watched = await self._run(
                under, [str(built.executable), *job.arguments], folder, job.stdin
            )
        answer = await self._read(under, tuple(built.built.files), users=False)
        known = {resource.symbol: resource for resource in built.built.resources}
        finished = c.ok(
            job.run,
            resources=built.built.resources,
            device=self._device,
            telemetry=watched,
            toolchain=built.toolchain,
            exit_code=None if under.stopped else under.log().status or (0 if ended.status == 0 else None),
            build_s=built.built.seconds,
            run_s=ended.seconds,
            stdout=ended.stdout,
            stderr=ended.stderr,
            truncated=ended.truncated,
            files=own_files.read(job, built.built),
            remarks=built.remarks,
        )
        finished = self._judged(finished, under, ended, known)
        return await self._concluded(finished, under, answer, known, built.ptx)

    async def _run(
        self, under: Under, command: Sequence[str | Path], folder: str, stdin: str
    ) -> tuple[program.EndedProgram, Telemetry | None]:
        job, context = self._job, self._context
        environment = context.environment(job)
        if job.is_program:
            environment |= gpu.visible_gpu(job)
        groups = context.groups(job)
        with ExitStack() as stack:
            sampler = stack.enter_context(telemetry.Sampler(self._device.uuid or self._device.index))
            watching: asyncio.Task[None] | None = None

            def started(pgid: int, alive: bool) -> None:
                nonlocal watching
                groups(pgid, alive)
                if alive:
                    watching = asyncio.ensure_future(under.watch(pgid))

            began = time.time_ns()
            try:
                ended = await program.run(
                    under.command(command),
                    cwd=folder,
                    env=environment,
                    stdin=stdin,
                    timeout_s=under.limit_with_writing_s,
                    started=started,
                    output=context.output(job),
                )
            finally:
                if watching is not None:
                    watching.cancel()
            return ended, sampler.telemetry(began, time.time_ns())

    def _judged(
        self,
        finished: c.Finished,
        under: Under,
        ended: program.EndedProgram,
        known: Mapping[str, c.Resources],
    ) -> c.Finished:
        """Return how the program's own run went, as far as the tool says."""
        log = under.log()
        if ended.status is None or under.stopped == "limit":
            late = run_outcome.of_program(self._job, replace(ended, status=None), None, known)
            return replace(finished, outcome=late.outcome, failure=late.failure)
        if log.ended_it and not under.stopped:
            text = f"Nsight Compute ended the program: {'; '.join(log.errors[:3]) or 'it does not say why'}"
            return replace(finished, exit_code=None, remarks=(*finished.remarks, text))
        if under.stopped or not log.status:
            return finished
        verdict = run_outcome.of_program(self._job, replace(ended, status=log.status), None, known)
        return replace(finished, outcome=verdict.outcome, failure=verdict.failure, problems=verdict.problems)

    # -- a process of ours --------------------------------------------------------------------------

    async def _child(self, scratch: Path) -> c.Finished:
        job, context = self._job, self._context
        made: spec_action.BuiltSpec | None = None
        if job.language == "cuda" and job.start.through != "driver":
            from orbit_remote.worker.actions import spec_action

            built = await spec_action.build_kernels(job, self._device, context, scratch)
            if isinstance(built, c.Finished):
                return built
            made = built
        by_name = job.start.through in ("program", "driver")
        under = Under.make(
            self._tool,
            scratch,
            job.run_timeout_s,
            pattern=kernel_selection.pattern(job) if by_name else "",
            marked=True,
            sources=_is_saved(job),
            detail=job.detail,
            sections=job.sections,
        )
        image = made.image if made else None
        command = child_main.command(scratch, context.home / "cupti", job, image, str(under.compiled))
        async with context.gpu(job):
            context.stage(job, "profiling")
            ended, watched = await self._run(under, command, str(scratch), "")
        finished = child_main.outcome(scratch)
        if finished is None:
            failed = self._judged(c.ok(job.run), under, ended, {})
            finished = replace(failed, device=self._device, run_s=ended.seconds)
        else:
            finished = python_action.reported(job, context, finished, ended, self._device, watched)
        if under.stopped == "limit":  # whatever it made of being interrupted
            late = self._judged(finished, under, ended, {})
            finished = replace(late, problems=(), exit_code=None)
        finished = made.completed(finished) if made else finished
        answer = await self._read(under, (), users=job.language == "triton")
        if under.stopped == "enough" and answer.profiles:
            # it was ended by us, and that is not its failure
            finished = replace(finished, outcome="ok", failure=None, problems=(), exit_code=None)
        refused = under.log().refusal if not under.stopped else None
        if finished.outcome != "ok" and not answer.profiles and refused is None:
            return finished
        known = _without_namesakes(finished.resources)
        return await self._concluded(finished, under, answer, known, made.build.ptx if made else "")

    # -- from report to result ----------------------------------------------------------------------

    async def _read(self, under: Under, files: Sequence[str], *, users: bool) -> ReportAnswer:
        if under.report is None:
            return ReportAnswer()
        request = ReportRequest(
            str(under.report),
            self._job.path,
            tuple(files),
            users,
            str(under.compiled),
            MOST_RESULTS,
            under.tool.version,
        )
        return await self._context.reports.read(under.tool.readers, request)

    async def _concluded(
        self,
        finished: c.Finished,
        under: Under,
        answer: ReportAnswer,
        known: Mapping[str, c.Resources],
        ptx: str,
    ) -> c.Finished:
        log = under.log()
        remarks = list(finished.remarks)
        if answer.problem:
            text = f"{answer.problem}; the profiler's own report is kept"
            return self._with_report(replace(finished, remarks=(*remarks, text)), under)
        profiles = [_named(collected, known, self._job) for collected in answer.profiles]
        if profiles and not any(DURATION in collected.metrics for collected in profiles):
            why = (
                f"Nsight Compute {under.tool.version} read no numbers (all of them were NaN); to enable counters: "
                "use another version of it (on Modal 2025.2.1)"
            )
            self.learned = CounterPermission(False, why)
            return await _times(self._job, self._context, why)
        if not profiles:
            return await self._without(log) if not under.stopped else finished
        self.learned = CounterPermission(True)
        if under.stopped == "enough" or answer.left_out:
            remarks.append(
                f"profiling was ended after {MOST_RESULTS} launches, each of another configuration"
            )
        if under.stopped == "limit":
            remarks.append(
                f"the program was ended at its limit of {self._job.run_timeout_s:g} s, after the launches shown"
            )
            finished = replace(finished, outcome="ok", failure=None)
        if not any(collected.lines for collected in profiles) and any(
            collected.samples for collected in profiles
        ):
            remarks.append(
                "no line is known of the code that ran: it was built without line information (-lineinfo)"
            )
        if not under.order.sources:
            remarks.append("the saved file differs from what ran, so the report contains no source")
        whole = replace(
            finished,
            profiles=tuple(profiles),
            remarks=tuple(dict.fromkeys(remarks)),
            toolchain=finished.toolchain | {"ncu": under.tool.version},
        )
        named = replace(answer, profiles=whole.profiles)
        made = await asyncio.to_thread(compiler_dumps.collect, named, under.report, under.compiled, ptx)
        whole = replace(whole, dumps=made.dumps, remarks=(*whole.remarks, *made.remarks))
        return self._with_report(whole, under)

    async def _without(self, log: Log) -> c.Finished:
        """Return the end of a run without a profiled launch: find out what prevented it."""
        refusal = log.refusal
        if refusal is not None:
            if refusal.lasting:
                self.learned = CounterPermission(False, refusal.sentence)
            return await _times(self._job, self._context, refusal.sentence)
        # the same without the tool says whether it was the program or the tool, and what was launched
        ordinary = await plain_action.build_or_run(replace(self._job, action="run"), self._context)
        if ordinary.outcome not in ("ok", "wrong answer"):
            return ordinary
        symbols_ = {resources.symbol for resources in kernel_selection.chosen(self._job, ordinary.resources)}
        if other := kernel_selection.other_kernel(self._job):
            symbols_ |= {launch.symbol for launch in ordinary.launches if launch.name == other.qualified}
        wanted = [launch for launch in ordinary.launches if launch.symbol in symbols_]
        if not wanted and self._job.start.through in ("program", "driver"):
            names = [launch.name for launch in ordinary.launches] or map(symbols.short_name, log.launched)
            remark = kernel_selection.not_launched(self._job, list(names))
            return replace(ordinary, remarks=(*ordinary.remarks, remark))
        reason = f": {log.errors[0]}" if log.errors else ""
        ended = f" (it ended with exit code {log.status} under it)" if log.status else ""
        why = f"Nsight Compute profiled no launch, though the program makes some without it{ended}{reason}"
        return _with_times(ordinary, wanted or ordinary.launches, why)

    def _with_report(self, finished: c.Finished, under: Under) -> c.Finished:
        if under.report is None:
            return finished
        content = regular_files.read(under.report, limits.REPORT)
        packed = base64.b64encode(zlib.compress(content)).decode("ascii")
        if len(packed) > _MOST_REPORT:
            size = under.report.stat().st_size >> 20
            text = f"the profiler's own report of {size} MiB is too large to be kept"
            return replace(finished, remarks=(*finished.remarks, text))
        return replace(finished, report=packed)


def _is_saved(job: Job) -> bool:
    """Say whether the source on the disk, which the tool finds, is what runs."""
    try:
        return regular_files.read(job.path, limits.SOURCE).decode("utf-8") == job.text
    except (OSError, ValueError):
        return False


def _without_namesakes(resources: Sequence[c.Resources]) -> dict[str, c.Resources]:
    """Return resources by symbol. If Triton functions in several places have one name, a profile's own lines say
    which it is of.
    """
    known: dict[str, c.Resources] = {}
    for each in resources:
        other = known.get(each.symbol, each)
        known[each.symbol] = each if other.place == each.place else replace(each, place=None)
    return known


def _named(profile: c.Profile, known: Mapping[str, c.Resources], job: Job) -> c.Profile:
    """Return a profile under the name and at the place by which the rest of the result knows the kernel."""
    if other := symbols.find(profile.symbol, job.other_kernels):
        return replace(profile, name=other.qualified, place=c.Place(job.path, other.line))
    resources = known.get(profile.symbol)
    if resources is None:
        return replace(profile, name=symbols.short_name(profile.symbol), place=_place(profile, job))
    return replace(profile, name=resources.name, place=resources.place or _place(profile, job))


def _place(profile: c.Profile, job: Job) -> c.Place | None:
    """Return the first line of the profile's code in the author's file, or else in the first other file: then it is
    no kernel of this file.
    """
    files = [line.file for line in profile.lines]
    file = job.path if job.path in files else next(iter(files), None)
    return c.Place(file, min(line.line for line in profile.lines if line.file == file)) if file else None
