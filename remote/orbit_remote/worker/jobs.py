"""The jobs of one client. Each request runs in a task of its own, and has exactly one answer."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import traceback
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from orbit_remote.common import codec, occupancy, requests
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Cancel, Job, Locate, Probe, Request, Typing, Warm
from orbit_remote.process import disk_space
from orbit_remote.process.gpu_nodes import has_gpu
from orbit_remote.recording import injection
from orbit_remote.worker import gpu, lease, probe
from orbit_remote.worker.actions import plain_action
from orbit_remote.worker.calibration_store import CalibrationStore
from orbit_remote.worker.context import WorkerContext


class Jobs:
    """The jobs of a client. Ids of runs are the client's own: another client may use the same ones, and reaches none
    of these.
    """

    def __init__(self, context: WorkerContext, reached: CalibrationStore) -> None:
        self._context = context
        self._reached = reached
        self._jobs: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def take(self, line: str) -> None:
        """Begin what a client asks for."""
        try:
            self._take(codec.decode_request(line))
        except ValueError as error:
            print(f"orbit worker: a request was not understood: {error}", file=sys.stderr)

    async def end(self) -> None:
        """End the jobs of a client that has disconnected, children included."""
        jobs = list(self._jobs.values())
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        await self._context.close()

    def _take(self, request: Request) -> None:
        match request:
            case Cancel(run=run):
                if job := self._jobs.get(run):
                    job.cancel()
            case Locate(run=run):
                self._context.end_early(run)
            case Probe():
                self._begin(request.run, self._probe(request))
            case Warm():
                self._begin(request.run, self._warm(request))
            case Typing():
                self._begin(request.run, self._check(request))
            case Job():
                self._begin(request.run, self._perform(request))

    def _begin(self, run: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._jobs[run] = task
        task.add_done_callback(lambda _: self._over(run, task))

    def _over(self, run: str, task: asyncio.Task[None]) -> None:
        if self._jobs.get(run) is task:
            del self._jobs[run]
        if task.cancelled():  # cancelled before its first step, so it has not reported this itself
            self._context.send(_cancelled(run))

    async def _probe(self, request: Probe) -> None:
        self._context.send(await probe.probe(request, self._context.author_python, self._context.counters))

    async def _warm(self, request: Warm) -> None:
        if request.language == "triton" and self._context.idle_s > 0:
            await self._context.spares.prepare(self._context.environment())
        else:
            await asyncio.to_thread(_prepare_recorder, self._context.home)

    async def _check(self, request: Typing) -> None:
        job = request.job
        built = c.Built(request.run, complete=False)
        try:
            architecture = job.architecture or gpu.architecture_of(None)
            front_ends = self._context.front_ends
            built = await front_ends.check(job, architecture, self._context.groups(job), start=request.start)
        finally:  # cancelled too: somebody waits for the answer
            self._context.send(replace(built, run=request.run))

    async def _perform(self, job: Job) -> None:
        """Do a job, and send exactly one Finished, whatever happens."""
        try:
            async with self._context.beside_judges(job):
                if _runs_an_extension(job):
                    from orbit_remote.worker.programs import extension_build

                    finished = await extension_build.with_fresh(job, self._context, lambda: self._act(job))
                else:
                    finished = await self._act(job)
        except asyncio.CancelledError:
            finished = _cancelled(job.run)
        except OSError as error:
            finished = c.failed(job.run, disk_space.unusable(error))
        except Exception as error:  # noqa: BLE001 - ours: the author gets a sentence, the log the rest
            traceback.print_exc()
            text = f"orbit's worker failed: {type(error).__name__}: {error}"
            failure = c.Failure("infrastructure", text, "see the worker's log, and please report it", True)
            finished = c.failed(job.run, failure)
        if job.run in self._context.unguarded:
            self._context.unguarded.discard(job.run)
            finished = replace(finished, remarks=(*finished.remarks, _UNGUARDED))
        device = self._reached.with_reached(finished.device)
        self._context.send(occupancy.with_occupancy(replace(finished, device=device)))
        if device and job.start.through == "spec" and finished.outcome == "ok":
            self._reached.measure(device, self._context)

    async def _act(self, job: requests.Job) -> c.Finished:
        if job.action == "profile":
            from orbit_remote.worker.actions import profile_action

            return await profile_action.profile(job, self._context)
        if job.action == "disassemble":
            from orbit_remote.worker.actions import disassemble_action

            return await disassemble_action.of_file(job, self._context)
        if job.action == "report":
            from orbit_remote.worker.actions import report_action

            return await report_action.read(job, self._context)
        if job.action == "sanitize":
            from orbit_remote.worker.actions import sanitize_action

            return await sanitize_action.check_memory(job, self._context)
        if job.language == "cuda" and isinstance(job.start, requests.DriverStart) and job.start.capture:
            from orbit_remote.worker.actions import capture_action

            return await capture_action.capture(job, job.start.capture, self._context)
        return await plain_action.build_or_run(job, self._context)


def _runs_an_extension(job: requests.Job) -> bool:
    """Say whether a job runs a test or script of the project for a kernel of a C++ file."""
    of_python = job.driver is not None and job.driver.kind != "program"
    return of_python and job.language == "cuda" and job.action in ("run", "profile", "sanitize")


_UNGUARDED = (
    "the lock of the GPU was removed while this ran: another job may have run beside it, so the times may be too long; "
    f"who owns {lease.EVERYBODYS} can do that"
)


def _prepare_recorder(home: Path) -> None:
    """Compile the launch recorder before a first run needs it. It takes seconds of a processor, which a machine without a GPU keeps."""
    if not has_gpu():
        return
    with contextlib.suppress(injection.RecorderUnavailableError):  # a run says so, at its place
        injection.environment(home / "cupti", cache=home / "cupti")


def _cancelled(run: str) -> c.Finished:
    return c.failed(run, c.Failure("cancelled", "cancelled by the user"))
