"""Requests in, events out, one JSON object a line; every job's work is done in child processes.

One job at a time measures on a GPU; the others wait and say so. Builds run beside it. When standard
input ends - the author's side has gone - all work is ended and the worker leaves.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import stat
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import AsyncGenerator, Coroutine, Generator, Hashable
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from orbit_remote.common import codec
from orbit_remote.common import messages as c
from orbit_remote.process import process_groups, program
from orbit_remote.toolchain.build_cache import Cache
from orbit_remote.worker import cuda_action, probe
from orbit_remote.worker.calibration_store import Reached
from orbit_remote.worker.prebuild import Ahead

if TYPE_CHECKING:
    from orbit_remote.ncu.report_process import Reader
    from orbit_remote.worker.prefork import Spares

_LEAVE_S = 2.0
"""How long leaving may take when the author's side has gone."""

_MEMORY = Path("/dev/shm")  # noqa: S108 - not a guessable name: a folder of the user's own is made in it
_ROOM = 1 << 30
"""Bytes that must be free in memory before a compiler's temporary files are put there."""


class Context:
    """What every job needs of the worker."""

    def __init__(self, options: argparse.Namespace, send: Send) -> None:
        self.send = send
        self.home = Path(options.cache)
        self.scratches = self.home / "scratch"
        self.intermediates = _memory_folder() or self.scratches
        """Where a compiler's temporary files lie: in memory, which saves 0.15 of 1.5 s (H100 machine)."""
        self.cache = Cache(self.home / "builds", limit=options.cache_bytes)
        self.counters = self.home / "counters"
        """Whether profiles were permitted the GPU's counters."""
        self.environment_names: tuple[str, ...] = tuple(filter(None, options.environment.split(",")))
        self.author_python: str | None = options.author_python or None
        self.idle_s: float = options.spare_idle_s
        self._spares: Spares | None = None
        self._reports: Reader | None = None
        self._builds = asyncio.Semaphore(os.cpu_count() or 1)
        self._gpus: dict[int, asyncio.Lock] = {}
        self._holders: dict[int, str] = {}
        self._alone: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        self.ahead = Ahead(self._build_ahead)
        self.reached = Reached(self.home / "reached.json")

    async def _build_ahead(self, job: c.Job) -> None:
        async with self._builds:
            await cuda_action.build_ahead(job, self)

    @property
    def spares(self) -> Spares:
        """Made at the first Triton job: CUDA files need none."""
        if self._spares is None:
            from orbit_remote.worker.prefork import Spares

            self._spares = Spares(cache=self.home / "cupti", idle_s=self.idle_s)
        return self._spares

    @property
    def reports(self) -> Reader:
        """Made at the first profile."""
        if self._reports is None:
            from orbit_remote.ncu.report_process import Reader

            self._reports = Reader()
        return self._reports

    async def close(self) -> None:
        await self.ahead.close()
        await self.reached.close()
        if self._reports is not None:
            await self._reports.close()
        if self._spares is not None:
            await self._spares.close()

    def environment(self) -> dict[str, str]:
        return program.environment(os.environ, self.environment_names)

    def stage(self, job: c.Job, state: c.State, why: str = "") -> None:
        self.send(c.Stage(job.run, state, time.time(), why))

    def groups(self, job: c.Job) -> process_groups.Started:
        return lambda pgid, alive: self.send(c.Group(job.run, pgid, alive))

    @asynccontextmanager
    async def build(self, job: c.Job) -> AsyncGenerator[None]:
        """One of as many builds as there are cores: an editor may open a hundred files at once."""
        if self._builds.locked():
            self.stage(job, "queued", "waiting for other builds")
        async with self._builds:
            self.stage(job, "building")
            yield

    @asynccontextmanager
    async def alone(self, what: Hashable) -> AsyncGenerator[None]:
        """Nobody else does `what` meanwhile: the second of two that build the same finds the first one's result."""
        lock = self._alone.get(what)
        if lock is None:
            lock = self._alone[what] = asyncio.Lock()
        async with lock:
            yield

    @asynccontextmanager
    async def gpu(self, job: c.Job) -> AsyncGenerator[None]:
        """The GPU for this job alone: two jobs at once would measure each other."""
        lock = self._gpus.setdefault(job.device, asyncio.Lock())
        if lock.locked():
            self.stage(job, "queued", f"waiting for the GPU: {self._holders.get(job.device, 'another run')}")
        async with lock:
            self._holders[job.device] = f"{job.kernel or Path(job.path).name} is running on it"
            yield

    @asynccontextmanager
    async def scratch(self) -> AsyncGenerator[Path]:
        """A folder of the job's own, gone when the job is over."""
        with _own_folder(self.scratches) as path:
            yield path

    def intermediate(self) -> AbstractContextManager[Path]:
        """A folder for a build's temporary files, gone when the build is over."""
        return _own_folder(self.intermediates)

    def forget_the_dead(self) -> None:
        """Remove scratch folders of workers that were killed."""
        for path in (*self.scratches.glob("*-*"), *self.intermediates.glob("*-*")):
            pid = path.name.partition("-")[0]
            if pid.isdigit() and not process_groups.alive(int(pid)):
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _own_folder(parent: Path) -> Generator[Path]:
    """A new folder under `parent`; its name begins with the process id, so that the dead are known."""
    parent.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _memory_folder() -> Path | None:
    """A folder of this user alone on a file system in memory, where there is one with room."""
    try:
        if shutil.disk_usage(_MEMORY).free < _ROOM:
            return None
        folder = _MEMORY / f"orbit-lsp-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except (OSError, AttributeError):  # no such folder, or a system without user ids
        return None
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return folder if private and found.st_uid == os.getuid() else None


class Send:
    """Writes events to the pipe that standard output was; a lost reader ends the worker's work."""

    def __init__(self, descriptor: int) -> None:
        self._pipe = os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass", newline="\n")

    def __call__(self, event: c.Event) -> None:
        try:
            self._pipe.write(c.encode(event) + "\n")
            self._pipe.flush()
        except (BrokenPipeError, ValueError):
            pass  # standard input ends too, and ends the worker


class Worker:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs: dict[str, asyncio.Task[None]] = {}

    async def serve(self, requests: asyncio.Queue[str | None]) -> None:
        """Until None comes; then every job is ended first."""
        self._context.forget_the_dead()
        while (line := await requests.get()) is not None:
            try:
                self._take(codec.decode_request(line))
            except ValueError as error:
                print(f"orbit worker: a request was not understood: {error}", file=sys.stderr)
        jobs = list(self._jobs.values())
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        await self._context.close()

    def _take(self, request: c.Request) -> None:
        match request:
            case c.Cancel(run=run):
                if job := self._jobs.get(run):
                    job.cancel()
            case c.Probe():
                self._begin(request.run, self._probe(request))
            case c.Warm():
                self._begin(request.run, self._warm(request))
            case c.Job():
                self._begin(request.run, self._carry_out(request))

    def _begin(self, run: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._jobs[run] = task
        task.add_done_callback(lambda _: self._over(run, task))

    def _over(self, run: str, task: asyncio.Task[None]) -> None:
        self._jobs.pop(run, None)
        if task.cancelled():  # before it took its first step: nobody else has said so
            self._context.send(_cancelled(run))

    async def _probe(self, request: c.Probe) -> None:
        self._context.send(await probe.probe(request, self._context.author_python, self._context.counters))

    async def _warm(self, request: c.Warm) -> None:
        if request.language == "triton" and self._context.idle_s > 0:
            await self._context.spares.prepare(self._context.environment())
        else:
            await asyncio.to_thread(cuda_action.prepare, self._context.home)

    async def _carry_out(self, job: c.Job) -> None:
        """Exactly one Finished, whatever happens."""
        try:
            if job.action == "profile":
                from orbit_remote.worker import profile_action

                finished = await profile_action.carry_out(job, self._context, self._ordinary)
            elif job.action == "sanitize":
                from orbit_remote.worker import sanitize_action

                finished = await sanitize_action.carry_out(job, self._context)
            else:
                finished = await self._ordinary(job)
        except asyncio.CancelledError:
            finished = _cancelled(job.run)
        except OSError as error:
            finished = c.Finished(job.run, "infrastructure", cuda_action.no_room(error))
        except Exception as error:  # noqa: BLE001 - ours: the author gets a sentence, the log the rest
            traceback.print_exc()
            text = f"orbit's worker failed: {type(error).__name__}: {error}"
            failure = c.Failure("infrastructure", text, "see the server's log, and please report it", True)
            finished = c.Finished(job.run, "infrastructure", failure)
        device = self._context.reached.told(finished.device)
        self._context.send(replace(finished, device=device))
        if device and job.through == "spec" and finished.outcome == "ok":
            self._context.reached.measure(device, self._context)

    async def _ordinary(self, job: c.Job) -> c.Finished:
        """A build or a run, under no tool."""
        if job.language == "cuda" and job.through == "program":
            return await cuda_action.carry_out(job, self._context)
        if job.language == "cuda":
            from orbit_remote.worker import spec_action

            return await spec_action.carry_out(job, self._context)
        from orbit_remote.worker import python_action

        return await python_action.carry_out(job, self._context)


def _cancelled(run: str) -> c.Finished:
    return c.Finished(run, "cancelled", c.Failure("cancelled", "cancelled by the user"))


def _read_lines(into: asyncio.Queue[str | None], loop: asyncio.AbstractEventLoop) -> None:
    """In a thread: asyncio cannot read standard input on Windows."""
    stdin = os.fdopen(os.dup(0), encoding="utf-8", errors="surrogatepass", newline="\n")
    try:
        for line in stdin:
            loop.call_soon_threadsafe(into.put_nowait, line)
    except (OSError, ValueError):
        pass
    try:
        loop.call_soon_threadsafe(into.put_nowait, None)
    except RuntimeError:  # the loop is closed: the worker is leaving already
        return
    # a job that will not end must not keep the worker: its groups die with it (PDEATHSIG)
    threading.Event().wait(_LEAVE_S)
    os._exit(1)


async def _serve(options: argparse.Namespace, send: Send) -> None:
    requests: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read_lines, args=(requests, loop), daemon=True, name="requests").start()
    await Worker(Context(options, send)).serve(requests)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="orbit_remote worker")
    parser.add_argument("--cache", required=True, help="folder for builds and scratch files")
    parser.add_argument("--cache-bytes", type=int, default=2 << 30)
    parser.add_argument("--spare-idle-s", type=float, default=300.0)
    parser.add_argument("--environment", default="", help="further variables passed to jobs, by comma")
    parser.add_argument(
        "--author-python", default="", help="the server's Python: compiler wheels may be there"
    )
    options = parser.parse_args(arguments)
    # events have standard output to themselves: whatever else prints goes to the log
    events = os.dup(1)
    os.dup2(2, 1)
    process_groups.adopt()
    asyncio.run(_serve(options, Send(events)))
    os._exit(0)  # without waiting for the thread that reads standard input


if __name__ == "__main__":
    main(sys.argv[1:])
