"""What every job needs from the worker: folders, the GPU and a place among the builds, and the pipe for its events."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Hashable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from orbit_remote.common import content_store
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Job
from orbit_remote.process import process_groups, program
from orbit_remote.toolchain.build_cache import Cache
from orbit_remote.worker import probe
from orbit_remote.worker.lease import Leases
from orbit_remote.worker.overhead_store import OverheadStore
from orbit_remote.worker.prebuild import Prebuild

if TYPE_CHECKING:
    from orbit_remote.ncu.report_process import ReportReader
    from orbit_remote.toolchain.front_end import FrontEnds
    from orbit_remote.worker.children import Child
    from orbit_remote.worker.prefork import PreforkPool

_MEMORY = Path("/dev/shm")  # noqa: S108 - not a guessable name: a folder of the user's own is made in it
_ROOM = 1 << 30
"""Bytes that must be free in memory before a compiler's temporary files are put there."""


@dataclass(frozen=True, slots=True)
class WorkerClient:
    """A client that submits jobs: where its events go, and its environment, of which jobs see an allow-list and
    `passed`. `author_python` is the client's own Python; `name` is as in *Neovim*.
    """

    send: Callable[[c.Event], None]
    environment: Mapping[str, str]
    passed: tuple[str, ...] = ()
    author_python: str | None = None
    name: str = ""


class Shared:
    """What all clients of a worker share: folders, caches, places among the builds, GPUs, prepared processes."""

    def __init__(self, home: Path, *, cache_bytes: int = 2 << 30, spare_idle_s: float = 300.0) -> None:
        self.home = home
        self.scratches = home / "scratch"
        self.intermediates = _memory_folder() or self.scratches
        """Where a compiler's temporary files lie: in memory, which saves 0.15 of 1.5 s (H100 machine)."""
        self.cache = Cache(home / "builds", limit=cache_bytes)
        self.idle_s = spare_idle_s
        self.overheads = OverheadStore(home / "cupti")
        self.builds = asyncio.Semaphore(os.cpu_count() or 1)
        self.alone: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        self.leases = Leases(home / "leases")
        self._endings: set[asyncio.Task[None]] = set()
        self._spares: PreforkPool | None = None
        self._unlocked = 0
        self._reports: ReportReader | None = None
        self._front_ends: FrontEnds | None = None

    @property
    def spares(self) -> PreforkPool:
        """Return the prepared processes. They are made at the first Triton job: CUDA files need none."""
        if self._spares is None:
            from orbit_remote.worker.prefork import PreforkPool

            self.scratches.mkdir(parents=True, exist_ok=True)
            self._spares = PreforkPool(
                cache=self.home / "cupti", scratches=self.scratches, idle_s=self.idle_s
            )
        return self._spares

    @property
    def reports(self) -> ReportReader:
        """Return the reader of reports, which is made at the first profile."""
        if self._reports is None:
            from orbit_remote.ncu.report_process import ReportReader

            self._reports = ReportReader()
        return self._reports

    @property
    def front_ends(self) -> FrontEnds:
        """Return the front ends, which are made once a CUDA file has been compiled in an editor."""
        if self._front_ends is None:
            from orbit_remote.toolchain.front_end import FrontEnds

            self._front_ends = FrontEnds(self.home / "front-end", self.intermediates)
        return self._front_ends

    @property
    def warm(self) -> bool:
        """Say whether a prepared Python waits. It holds memory of the GPU."""
        spares = self._spares
        return spares is not None and (spares.waiting or spares.waiting_judge) is not None

    def adjust(self, *, cache_bytes: int, spare_idle_s: float) -> None:
        """Adjust to the settings of the latest client."""
        self.cache.limit = cache_bytes
        self.idle_s = spare_idle_s
        if self._spares is not None:
            self._spares.idle_s = spare_idle_s

    async def free_gpu(self) -> None:
        """End the spare processes that wait for a next job with a GPU context of their own."""
        if self._spares is not None:
            await self._spares.free()

    @asynccontextmanager
    async def without_judge(self) -> AsyncGenerator[None]:
        """Let no judge wait meanwhile: code runs that is not locked, or memory of a GPU is measured."""
        self._unlocked += 1
        try:
            if self._spares is not None:
                await self._spares.end_judge()
            yield
        finally:
            self._unlocked -= 1

    def may_have_judge(self) -> bool:
        """Say whether a judge may wait: only locked candidates run."""
        return not self._unlocked

    def later(self, ending: Coroutine[Any, Any, None]) -> None:
        """Do later what a job's answer need not wait for. The end of this worker waits for it."""
        task = asyncio.get_running_loop().create_task(ending)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def close(self) -> None:
        await asyncio.gather(*self._endings, return_exceptions=True)
        if self._front_ends is not None:
            await self._front_ends.close()
        if self._reports is not None:
            await self._reports.close()
        if self._spares is not None:
            await self._spares.close()

    def forget_the_dead(self) -> None:
        """Remove scratch folders of workers that were killed."""
        for path in (*self.scratches.glob("*-*"), *self.intermediates.glob("*-*")):
            pid = path.name.partition("-")[0]
            if pid.isdigit() and not process_groups.alive(int(pid)):
                content_store.remove(path)


class WorkerContext:
    """What every job needs of the worker: what is shared, and what is its client's own."""

    def __init__(
        self,
        shared: Shared,
        client: WorkerClient,
        build_ahead: Callable[[Job, WorkerContext], Awaitable[None]],
    ) -> None:
        """Make a context. `build_ahead` builds an executable into the cache before it is run."""
        self._shared = shared
        self._client = client
        self.send = client.send
        self.unguarded: set[str] = set()
        """Runs whose lock of the GPU was taken away while they had it."""
        self.author_python = client.author_python
        self.home = shared.home
        self.cache = shared.cache
        self.counters = shared.home / "counters"
        """Whether profiles were permitted the GPU's counters."""
        self.overheads = shared.overheads
        self._build_ahead = build_ahead
        self.ahead = Prebuild(self._one_more_build)
        self._limits: WeakValueDictionary[str, asyncio.Timeout] = WeakValueDictionary()
        self._early: set[str] = set()

    async def _one_more_build(self, job: Job) -> None:
        async with self._shared.builds:
            await self._build_ahead(job, self)

    @property
    def spares(self) -> PreforkPool:
        return self._shared.spares

    @property
    def reports(self) -> ReportReader:
        return self._shared.reports

    @property
    def front_ends(self) -> FrontEnds:
        return self._shared.front_ends

    @property
    def idle_s(self) -> float:
        return self._shared.idle_s

    def later(self, ending: Coroutine[Any, Any, None]) -> None:
        self._shared.later(ending)

    @asynccontextmanager
    async def beside_judges(self, job: Job) -> AsyncGenerator[None]:
        """Let a judge wait meanwhile only if the job's code is locked."""
        if job.is_refereed:
            yield
            return
        async with self._shared.without_judge():
            yield

    def judge_follows(self, child: Child, job: Job) -> None:
        """Prepare the next judge, because this one has timed its candidate."""
        self.spares.judge_follows(child, job.device, self._shared.may_have_judge)

    async def close(self) -> None:
        """The client has left, and its jobs have ended."""
        await self.ahead.close()

    def environment(self, job: Job | None = None) -> dict[str, str]:
        own = (variable.partition("=") for variable in job.variables) if job else ()
        passed = program.environment(self._client.environment, self._client.passed)
        return passed | {name: value for name, _, value in own}

    def limit(self, job: Job, seconds: float | None) -> asyncio.Timeout:
        """Return the time limit of a job's program. `end_early` can bring it forward."""
        limit = self._limits[job.run] = asyncio.timeout(seconds)
        return limit

    @contextmanager
    def uncounted(self, job: Job, most_s: float | None = None) -> Generator[None]:
        """Stop the clock of the job's limit during the block, for at most this many seconds."""
        limit, loop = self._limits.get(job.run), asyncio.get_running_loop()
        over = limit.when() if limit else None
        if limit is None or over is None:
            yield
            return
        began = loop.time()
        try:
            limit.reschedule(None if most_s is None else over + most_s)
            yield
        finally:
            if job.run not in self._early:
                with suppress(RuntimeError):  # the program has ended
                    limit.reschedule(over + loop.time() - began)

    def end_early(self, run: str) -> None:
        """Let the limit of a run's program be reached now. Do nothing if it does not run."""
        limit = self._limits.get(run)
        if limit is not None and not limit.expired():
            with suppress(RuntimeError):  # it has ended in this moment, or not begun
                limit.reschedule(asyncio.get_running_loop().time())
                self._early.add(run)

    def ended_early(self, job: Job) -> bool:
        """Say, once, whether somebody asked for the end of a run."""
        early = job.run in self._early
        self._early.discard(job.run)
        return early

    def stage(self, job: Job, state: c.State, why: str = "") -> None:
        self.send(c.Stage(job.run, state, time.time(), why))

    def groups(self, job: Job) -> process_groups.Started:
        return lambda pgid, alive: self.send(c.Group(job.run, pgid, alive))

    def output(self, job: Job) -> program.Output:
        return lambda stream, text: self.send(c.Output(job.run, stream, text))

    @asynccontextmanager
    async def build(self, job: Job) -> AsyncGenerator[None]:
        """Hold one of as many places for builds as there are cores: an editor may open a hundred files at once."""
        if self._shared.builds.locked():
            self.stage(job, "queued", "waiting for other builds")
        async with self._shared.builds:
            self.stage(job, "building")
            yield

    @asynccontextmanager
    async def alone(self, what: Hashable) -> AsyncGenerator[None]:
        """Hold the lock for `what`, so that of two identical builds the second reuses the first."""
        lock = self._shared.alone.get(what)
        if lock is None:
            lock = self._shared.alone[what] = asyncio.Lock()
        async with lock:
            yield

    @asynccontextmanager
    async def gpu(self, job: Job, *, in_spare: bool = False) -> AsyncGenerator[bool]:
        """Hold the GPUs for this job alone: two jobs at once would measure each other. Every job takes several GPUs
        in the order of their numbers, so that no two wait for each other. `in_spare`: it runs in the process that
        waits with a context. Say whether it had to wait.
        """
        waited = False

        def waits(other: str) -> None:
            nonlocal waited
            waited = True
            self.stage(job, "queued", f"waits for the GPU: {other}")

        devices = await asyncio.to_thread(probe.devices, job.device, job.gpus)
        names = [device.uuid or f"gpu-{device.index}" for device in devices] or [f"gpu-{job.device}"]
        what = job.kernel or Path(job.path).name
        async with AsyncExitStack() as held:
            for name in names:
                lease = self._shared.leases.hold(
                    name,
                    f"{what} in {self._client.name}" if self._client.name else what,
                    batch=job.batch,
                    waits=waits,
                    lost=lambda: self.unguarded.add(job.run),
                )
                await held.enter_async_context(lease)
            if not in_spare and any(device.exclusive for device in devices):
                await self._shared.free_gpu()
            yield waited

    @asynccontextmanager
    async def scratch(self) -> AsyncGenerator[Path]:
        """Give a folder of the job's own, which is deleted when the job ends."""
        with _own_folder(self._shared.scratches) as path:
            yield path

    def intermediate(self) -> AbstractContextManager[Path]:
        """Give a folder for a build's temporary files, which is deleted when the build ends."""
        return _own_folder(self._shared.intermediates)


@contextmanager
def _own_folder(parent: Path) -> Generator[Path]:
    """Give a new folder under `parent`. Its name begins with the process id, so that folders of dead processes are
    known.
    """
    parent.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
    try:
        yield path
    finally:
        content_store.remove(path)


def _memory_folder() -> Path | None:
    """Return a folder of only this user on a file system in memory, if there is one with room."""
    try:
        if shutil.disk_usage(_MEMORY).free < _ROOM:
            return None
        folder = _MEMORY / f"orbit-lsp-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except (OSError, AttributeError):  # no such folder, or a system without user ids
        return None
    private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o077
    return folder if private and status.st_uid == os.getuid() else None


class Send:
    """Writes events to the pipe that standard output was. If its reader is lost, the worker ends its work."""

    def __init__(self, descriptor: int) -> None:
        self._pipe = os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass", newline="\n")

    def __call__(self, event: c.Event) -> None:
        try:
            self._pipe.write(c.encode(event) + "\n")
            self._pipe.flush()
        except (BrokenPipeError, ValueError):
            pass  # standard input ends too, and ends the worker
