"""Runs a program again whose kernel failed, without the recorder and with the driver's GPU core dumps, to find the
line.

The driver writes no dump while CUPTI is in the process, before or after a context is opened, nor if
`CUDA_INJECTION64_PATH` is set (driver 580: "CUDA coredump is not supported with other developer tools"). So the
measured run has no dump, and its times are not affected. A second run of the same program shows what failed. Linux
only.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Job
from orbit_remote.process import host_stack, process_groups, program
from orbit_remote.sanitizer import sanitizer_findings, sanitizer_records, sanitizer_tool
from orbit_remote.sanitizer.sanitizer_findings import Own
from orbit_remote.toolchain import gpu_dump
from orbit_remote.worker import disk_watch
from orbit_remote.worker.context import WorkerContext
from orbit_remote.worker.faults import dump_folder, fault_report

if TYPE_CHECKING:
    from orbit_remote.toolchain.spec_instances import Image

_LONGEST_S = 10.0
"""A run that took longer until it failed is not made again: nobody waits twice for it."""
_LATER_S = 15.0
"""How much longer than the first the second run may take: it may read again what was in memory."""
_MARGIN_S = (1.0, 4.0)
"""How long after the first run's last sign of life its kernel is looked at; later where it had not begun."""
_SLOWER = 30
"""How many times longer than alone a run may take under compute-sanitizer."""
_LOOK_S = 0.02
_UNSEEN = "the second run, in which the line was looked for, "


@dataclass(frozen=True, slots=True)
class SecondRun:
    """A process of the second run. `kill` ends it, `ended` returns when it has ended, `group` is the process group of
    a program.
    """

    kill: Callable[[], None]
    ended: Callable[[], Awaitable[object]]
    group: Callable[[], int | None] = lambda: None


Process = Callable[[Mapping[str, str], float], AbstractAsyncContextManager[SecondRun]]
"""What starts the second run, with more variables - an empty one is unset - and a limit in seconds."""


@dataclass(frozen=True, slots=True)
class Again:
    """How a run is made again: by `process`, or under a tool by what `command` returns for a scratch folder."""

    process: Process
    command: Callable[[Path], Sequence[str]]
    environment: Mapping[str, str]
    stdin: str = ""


@dataclass(frozen=True, slots=True)
class First:
    """What is known of the run that failed: how long it took in seconds, and until its last sign of life."""

    took_s: float
    alive_s: float


def since(began_ns: int, launches: Path) -> First:
    """Return what is known of a run that began at this time (ns) and recorded into the folder `launches`."""
    now = time.time_ns()
    written: list[int] = []
    with contextlib.suppress(OSError):
        written = [path.stat().st_mtime_ns for path in launches.iterdir()]
    alive = max((at for at in written if began_ns <= at <= now), default=began_ns)
    return First((now - began_ns) / 1e9, (alive - began_ns) / 1e9)


def program_of(
    job: Job, context: WorkerContext, command: Sequence[str], environment: Mapping[str, str]
) -> Again:
    """Return how to start a program of the author's again in the same way. Its output has been shown before."""
    own = {**context.environment(job), **environment}

    @asynccontextmanager
    async def start(variables: Mapping[str, str], limit_s: float) -> AsyncGenerator[SecondRun]:
        groups: list[int] = []
        told = disk_watch.DiskWatch(job, context).started(context.groups(job))

        def started(pgid: int, alive: bool) -> None:
            told(pgid, alive)
            groups.append(pgid)

        def kill() -> None:
            for group in groups:
                process_groups.kill_group(group)

        running = asyncio.ensure_future(
            program.run(
                # the driver aborts the process, which is not to leave a core file in the author's folder
                ("/bin/sh", "-c", 'ulimit -c 0; exec "$@"', "sh", *command),
                cwd=job.working_folder,
                env=_with(own, variables),
                stdin=job.stdin,
                timeout_s=limit_s,
                started=started,
                output=lambda _stream, _text: None,
            )
        )
        try:
            yield SecondRun(kill, lambda: asyncio.shield(running), lambda: groups[0] if groups else None)
        finally:
            kill()
            await asyncio.gather(running, return_exceptions=True)

    return Again(start, lambda _: command, _with(own, dump_folder.UNSET), job.stdin)


def child_of(job: Job, context: WorkerContext, image: Image | None = None) -> Again:
    """Return how to do a job of a Python process of ours again, in a new process."""

    @asynccontextmanager
    async def start(variables: Mapping[str, str], _limit_s: float) -> AsyncGenerator[SecondRun]:
        own = context.environment(job)
        child = await context.spares.take(job, own, image, role="unrecorded", own=_with(own, variables))
        told = disk_watch.DiskWatch(job, context).started(context.groups(job))
        told(child.pid, True)
        printed = program.Printed(child.stdout, child.stderr, lambda _stream, _text: None)
        ended = asyncio.ensure_future(child.wait())
        try:
            yield SecondRun(child.kill, lambda: asyncio.shield(ended))
        finally:
            child.kill()
            await asyncio.gather(ended, return_exceptions=True)
            await printed.read_out()
            told(child.pid, False)
            await child.close()

    def command(scratch: Path) -> list[str]:
        from orbit_remote.child import child_main

        return child_main.command(scratch, context.home / "cupti", replace(job, action="sanitize"), image)

    return Again(start, command, _with(context.environment(job), dump_folder.UNSET))


def _with(environment: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in {**environment, **variables}.items() if variables.get(name, value)}


def wanted(job: Job, finished: c.Finished) -> bool:
    """Return whether a second run can say more: a kernel failed, or the run was ended at its limit."""
    code = fault_report.crash_code(finished)
    told = code == "CUDA_ERROR_ASSERT" and any(
        "assertion `" in problem.message for problem in finished.problems
    )
    failed = (code and not told) or finished.outcome == "timed out"
    return (
        sys.platform == "linux" and job.start.through != "contract" and job.action == "run" and bool(failed)
    )


async def explained(
    job: Job, context: WorkerContext, finished: c.Finished, first: First, again: Again, own: Own
) -> c.Finished:
    """Return the end of a run that is `wanted`, with the line on which its kernel failed or its warps stood, if a
    second run shows it.
    """
    crashed = finished.outcome != "timed out"
    if not crashed and context.ended_early(job) and finished.failure:
        text = f"the run was ended after {first.took_s:.1f} s, to see where its kernel was"
        _, python, where = finished.failure.message.partition("; Python was at ")
        finished = replace(
            finished, failure=replace(finished.failure, message=f"{text}{python}{where}", remedy="")
        )
    if (until := first.took_s if crashed else first.alive_s) > _LONGEST_S:
        advice = "; `orbit-lsp check` finds the line of a memory fault" if crashed else ""
        return _remarked(
            finished, f"it was not run again to find the line, because that takes {until:.0f} s{advice}"
        )
    context.stage(job, "running", "once more, to find the line")
    host: list[tuple[str, c.Place | None]] = []
    try:
        async with context.scratch() as scratch:
            if crashed:
                dump = await _crash(scratch, job, first, again.process)
            else:
                dump, host = await _hang(scratch, job, first, again.process, own)
    except (OSError, ValueError) as error:
        return _remarked(finished, f"{_UNSEEN}left no usable GPU core dump: {error}")
    if not crashed and (dump is None or not dump.grids):
        return _of_host(finished, first, dump, host)
    if crashed and not (dump and dump.faults):
        return await _checked(job, context, finished, first, again, own)
    assert dump is not None
    report = fault_report.with_fault if crashed else fault_report.with_standing
    return _remarked(
        report(finished, dump, own), "the line was found in a second run, which measured nothing"
    )


def _of_host(
    finished: c.Finished,
    first: First,
    dump: gpu_dump.CoreDump | None,
    host: Sequence[tuple[str, c.Place | None]],
) -> c.Finished:
    """Return a run at its limit in whose second run no kernel was seen, with what its host code did then (`host`)."""
    words, place = next((each for each in reversed(host) if each[0]), ("", None))
    if dump is None and not words:
        return finished
    seconds = f"{first.alive_s + _MARGIN_S[-1]:.0f} s" if dump else "some seconds"
    remark = f"no kernel was running {seconds} into a second run: look at host code"
    if not words:
        return _remarked(finished, remark)
    at = f" ({Path(place.file).name}:{place.line})" if place else ""
    failure = finished.failure
    if failure:
        text = f"{failure.message}. No kernel was running: host code {words}{at}"
        failure = replace(failure, message=text, place=place or failure.place)
    return _remarked(replace(finished, failure=failure), remark)


async def _checked(
    job: Job, context: WorkerContext, finished: c.Finished, first: First, again: Again, own: Own
) -> c.Finished:
    """Find the line by compute-sanitizer. The driver writes no dump if a store failed after its kernel had no more
    warps, and does not even report the failure then.
    """
    tool = await asyncio.to_thread(sanitizer_tool.find, job.nvcc)
    if isinstance(tool, c.Failure):
        return _remarked(
            finished, f"{_UNSEEN}did not fail; compute-sanitizer, which is not here, may find it"
        )
    context.stage(job, "running", "under compute-sanitizer, to find the line")
    async with context.scratch() as scratch:
        checked = await sanitizer_tool.check(
            tool,
            "memcheck",
            again.command(scratch),
            scratch=scratch,
            cwd=job.working_folder,
            env=again.environment,
            stdin=again.stdin,
            timeout_s=min(job.run_timeout_s, _SLOWER * (first.took_s + 1)),
            started=context.groups(job),
            output=lambda _stream, _text: None,
            options=("--report-api-errors", "no", "--show-backtrace", "device"),
        )
    records = sanitizer_records.read(checked.records, checked.log)
    found = [
        each for each in sanitizer_findings.problems("memcheck", records, own) if each.severity == "error"
    ]
    if not found:
        return _remarked(finished, f"{_UNSEEN}did not fail, nor did compute-sanitizer find a fault")
    return _remarked(
        fault_report.with_finding(finished, found[0]),
        "the line was found by compute-sanitizer in a further run, which measured nothing",
    )


def _remarked(finished: c.Finished, remark: str) -> c.Finished:
    return replace(finished, remarks=(*finished.remarks, remark))


async def _crash(scratch: Path, job: Job, first: First, process: Process) -> gpu_dump.CoreDump | None:
    limit = min(job.run_timeout_s, first.took_s + _LATER_S)
    async with process(dump_folder.on_exception(scratch), limit) as running:
        await _until_dumped(running, scratch, limit)
    return await asyncio.to_thread(dump_folder.read_first, scratch)


async def _hang(
    scratch: Path, job: Job, first: First, process: Process, own: Own
) -> tuple[gpu_dump.CoreDump | None, list[tuple[str, c.Place | None]]]:
    """Look at the kernel a moment after the time at which the first run was last seen alive. Without a kernel, look
    at the host code too.
    """
    dump: gpu_dump.CoreDump | None = None
    host: list[tuple[str, c.Place | None]] = []
    for number, margin in enumerate(_MARGIN_S):
        wait = first.alive_s + margin
        if wait > job.run_timeout_s + _MARGIN_S[0]:
            break
        folder = scratch / str(number)
        folder.mkdir()
        async with process(dump_folder.on_request(folder), wait + dump_folder.LONGEST_S) as running:
            ended = asyncio.ensure_future(running.ended())
            await asyncio.wait([ended], timeout=wait)
            opened = any(folder.glob("*.pipe"))
            group = running.group()
            if not ended.done() and group and (number or not opened):  # no kernel the first time, or no GPU
                host.append(await asyncio.to_thread(host_stack.of, group, job.nvcc, own))
            if not ended.done() and await asyncio.to_thread(dump_folder.request, folder):
                await _until_dumped(running, folder, dump_folder.LONGEST_S)
        dump = await asyncio.to_thread(dump_folder.read_first, folder)
        if dump is None or dump.grids:
            break
    return dump, host


async def _until_dumped(running: SecondRun, folder: Path, limit_s: float) -> None:
    """Wait until the process has ended, or all dumps are complete. A process may need seconds more to end, and others
    may wait for the one that failed.
    """
    ended = asyncio.ensure_future(running.ended())
    over = time.monotonic() + limit_s
    while not ended.done() and time.monotonic() < over:
        await asyncio.wait([ended], timeout=_LOOK_S)
        if await asyncio.to_thread(dump_folder.all_whole, folder):
            break
