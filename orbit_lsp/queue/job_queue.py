"""The queue of a process: jobs by priority, a pool of places for them, followers, and the records.

Only ids wait in memory. A request stays in the store until its job begins.
"""

from __future__ import annotations

import asyncio
import bisect
import functools
import itertools
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from orbit_lsp.queue import forecast as forecasts
from orbit_lsp.queue import gpu_check
from orbit_lsp.queue import request as requests
from orbit_lsp.queue.cluster import ClusterEngine
from orbit_lsp.queue.forecast import Ahead, Forecast, Like, Predicted
from orbit_lsp.queue.job_store import RESUMED, JobStore, Result, StoredJob, StoreError, StoreUnusableError
from orbit_lsp.queue.owners import Owner
from orbit_lsp.queue.pool import COMPILER, Slot
from orbit_lsp.queue.request import PRIORITIES, Request
from orbit_lsp.queue.slot_engine import EngineOptions, SlotEngine, Stage
from orbit_lsp.runners.extension_builds import BUILDS_AT_ONCE
from orbit_lsp.runs import summary
from orbit_lsp.state import sqlite_file
from orbit_lsp.state.user_folders import state_folder
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass

log = logging.getLogger("orbit.queue")

T = TypeVar("T")

_LOOK_S = 0.5
"""How often another process's word to cancel a job, and a job of another process, is looked for."""
_LAST_S = 20.0
"""How long a queue that is closed tries to write how its jobs ended."""
_AHEAD = 16
"""Of the jobs that wait, so many are looked at for kernels that may be built."""
CANCELLED = c.Failure("cancelled", "cancelled")


class Performer(Protocol):
    """Carries out the jobs of one place of the pool, one after another."""

    async def ready(self) -> str:
        """Wait until ready for jobs. Return the GPU's name, or "" if the place has the name or none is known."""
        ...

    async def prepare(self, job: str, request: Request) -> None:
        """Do what needs no GPU and may come before `perform`, beside other jobs."""
        ...

    async def perform(self, job: str, request: Request, stage: Stage) -> Result: ...
    async def close(self) -> None: ...


@dataclass(slots=True)
class _Waiting:
    rank: int
    number: int
    id: str = field(compare=False)
    slots: frozenset[str] = field(compare=False)
    like: Like = field(compare=False)
    limit_s: float | None = field(compare=False, default=None)
    since: float = field(compare=False, default_factory=time.monotonic)
    expiry: asyncio.TimerHandle | None = field(compare=False, default=None)
    preparing: asyncio.Task[None] | None = field(compare=False, default=None)
    """What has to end before it begins."""
    held: bool = field(compare=False, default=False)
    """Whether no place takes it until then: what is prepared takes minutes."""
    looked_at: bool = field(compare=False, default=False)
    """Whether its kernel is built ahead, or need not be."""

    def __lt__(self, other: _Waiting) -> bool:
        return (self.rank, self.number) < (other.rank, other.number)


@dataclass(frozen=True, slots=True)
class Followed:
    """A job as it is now. `position` counts the jobs before it in the queue, None if it does not wait. `predicted` is
    how long it still waits, if that is known.
    """

    job: StoredJob
    position: int | None = None
    predicted: Predicted | None = field(compare=False, default=None)


class JobQueue:
    def __init__(
        self,
        store: JobStore,
        slots: Sequence[Slot],
        engine: Callable[[Slot], Performer],
        door: str,
        *,
        trusted: bool = False,
        guarded: bool = False,
    ) -> None:
        """Make a queue. `door` names the kind of process in every job's row. `trusted`: its requests are the user's
        own word. `guarded`: after a job that failed, its GPU is checked before the next job, and set aside while it
        has changed.
        """
        self.store = store
        self.slots = [*slots, Slot(COMPILER)]
        self.door = door
        self._make = engine
        self._trusted = trusted
        self._guarded = guarded
        self._aside: dict[str, str] = {}
        """Slot -> why it takes no job."""
        self._gone: set[str] = set()
        """Slots among them whose tasks have ended."""
        self._engines: dict[str, Performer] = {}
        self._preparing: set[asyncio.Task[None]] = set()
        self._building: set[asyncio.Task[None]] = set()
        """Of those that prepare, the ones that build ahead."""
        self._owner: Owner | None = None
        self._waiting: list[_Waiting] = []
        self._running: dict[str, asyncio.Task[Result]] = {}
        self._at: dict[str, str] = {}
        """Slot -> the job that runs there."""
        self.forecast = Forecast()
        self._busy: dict[str, tuple[Like, float]] = {}
        """Slot -> what the job there is like, and since when it runs, by the monotonic clock."""
        self._numbers = itertools.count(1)
        self._unwanted: set[str] = set()
        """Jobs that are about to begin, and cancelled."""
        self._tick = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._adopted = door != RESUMED
        self._closing = False

    async def start(self) -> None:
        """Begin to take jobs. Raises OSError, StoreError, and RequestRefusedError for settings that no engine can
        have.
        """
        engines = [self._make(slot) for slot in self.slots]
        self._engines = {slot.name: engine for slot, engine in zip(self.slots, engines, strict=True)}
        self._owner = await asyncio.to_thread(Owner, self.store.owners)
        await self._adopt()
        self._tasks = [
            asyncio.create_task(self._serve(slot, engine), name=f"slot {slot.name}")
            for slot, engine in zip(self.slots, engines, strict=True)
        ]
        for slot, task in zip(list(self.slots), self._tasks, strict=True):
            task.add_done_callback(functools.partial(self._ended, slot.name))
        self._tasks.append(asyncio.create_task(self._look(), name="cancelled elsewhere"))
        self._tasks.append(asyncio.create_task(self._build_ahead(), name="built ahead"))

    async def _adopt(self) -> None:
        """Take the jobs that waited for a server that ended, once that can be recorded."""
        assert self._owner
        if self._adopted or self._closing:
            return
        try:
            jobs = await asyncio.to_thread(self.store.adopt, self._owner.id, self.door)
        except StoreUnusableError as error:
            if not error.passing:
                raise
            return  # `_look` tries again
        self._adopted = True
        for job in jobs:
            try:
                request = await self.read(functools.partial(self.store.request, job.id))
            except StoreError as error:
                await self._end(job.id, c.Failure("infrastructure", str(error), "submit it again"))
            else:
                await self._enqueue([(job.id, request)])

    async def close(self) -> None:
        """Cancel what runs, wait for its end, and give up what waits. A server's waiting jobs stay: its next start
        takes them.
        """
        self._closing = True
        for entry in list(self._waiting):
            self._drop(entry)
            if self.door != RESUMED:
                await self._end(entry.id, CANCELLED)
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        while self._at:
            await self._tick.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._preparing, return_exceptions=True)
        await self._written()
        if self._owner:
            await asyncio.to_thread(self._owner.close)

    async def _written(self) -> None:
        """Return once the ends of jobs are written, or once writing has failed for `_LAST_S` seconds."""
        until = time.monotonic() + _LAST_S
        while (count := self.store.unwritten()) and not await asyncio.to_thread(self.store.write_again):
            if time.monotonic() > until:
                what = "how a job ended was" if count == 1 else f"how {count} jobs ended was"
                log.error("%s; %s not recorded", self.store.trouble(), what)
                return
            await asyncio.sleep(_LOOK_S / 2)

    # -- jobs ---------------------------------------------------------------------------------

    async def submit(self, request: Request) -> StoredJob:
        """Add the job of a request to the queue. Raises RequestRefusedError and StoreError. If the call is cancelled
        meanwhile, there is no job.
        """
        (job,) = await self.submit_all([request])
        if isinstance(job, requests.RequestRefusedError):
            raise job
        return job

    async def submit_all(self, wanted: Sequence[Request]) -> list[StoredJob | requests.RequestRefusedError]:
        """Add the jobs of several requests. They are recorded together or, if StoreError is raised, not at all. A
        refused request does not delay the others.
        """
        submitting = asyncio.create_task(self._submit(wanted))
        try:
            return [
                each if isinstance(each, requests.RequestRefusedError) else each[0]
                for each in await asyncio.shield(submitting)
            ]
        except asyncio.CancelledError:
            self._later(self._undo(submitting))
            raise

    async def _undo(
        self, submitting: asyncio.Task[list[tuple[StoredJob, bool] | requests.RequestRefusedError]]
    ) -> None:
        with suppress(StoreError):
            for each in await submitting:
                if (
                    not isinstance(each, requests.RequestRefusedError) and each[1]
                ):  # else somebody else has it too, by its key
                    await self._cancel_here(each[0].id)

    async def _submit(
        self, wanted: Sequence[Request]
    ) -> list[tuple[StoredJob, bool] | requests.RequestRefusedError]:
        assert self._owner
        checked = await asyncio.to_thread(lambda: [self._checked(request) for request in wanted])
        accepted = [request for request in checked if isinstance(request, Request)]
        added = await asyncio.to_thread(self.store.add_all, accepted, self._owner.id, self.door)
        fresh = [
            (each[0].id, request)
            for request, each in zip(accepted, added, strict=True)
            if not isinstance(each, requests.RequestRefusedError) and each[1]
        ]
        await self._enqueue(fresh)
        answers = iter(added)
        return [next(answers) if isinstance(request, Request) else request for request in checked]

    def _checked(self, request: Request) -> Request | requests.RequestRefusedError:
        """Return the request as it is recorded, or why it is refused."""
        if request.action == "compile":  # any place can compile for the GPU of the place that is named
            named = (slot.gpu for slot in self.slots if slot.gpu and slot.is_called(request.gpu))
            request = replace(request, gpu=next(named, request.gpu))
        try:
            requests.check(request, trusted=self._trusted)
        except requests.RequestRefusedError as why:
            return why
        if not any(slot.takes(request) for slot in self.slots):
            have = ", ".join(slot.name for slot in self.slots if slot.name != COMPILER)
            return requests.RequestRefusedError(
                f"no place of this pool is {request.gpu!r:.40}; it has {have}"
            )
        return request

    async def cancel(self, job: str) -> StoredJob | None:
        """End a job, wherever it is, and wait for its end. Return None if there is no such job."""
        if (followed := await self.job(job)) is None or followed.job.over:
            return followed.job if followed else None
        known = followed.job
        if not await self._cancel_here(known.id):
            await asyncio.to_thread(self.store.cancel, known.id)
        return await self.wait(known.id)

    async def _cancel_here(self, job: str) -> bool:
        """Cancel a job. Return False if it neither waits nor runs in this process."""
        if entry := next((waiting for waiting in self._waiting if waiting.id == job), None):
            self._drop(entry)
            await self._end(job, CANCELLED)
            return True
        if task := self._running.get(job):
            return task.cancel() if not task.cancelling() else True
        if begins := job in self._at.values():
            self._unwanted.add(job)
        return begins

    def position(self, job: str) -> int | None:
        """Return how many jobs are before this one. Return None if it does not wait here."""
        return next((number for number, waiting in enumerate(self._waiting) if waiting.id == job), None)

    def positions(self, jobs: Sequence[StoredJob]) -> list[Followed]:
        """Return the jobs with how many are before each, and how long each still waits."""
        places = {waiting.id: number for number, waiting in enumerate(self._waiting)}
        waits = self._waits_s() if any(job.id in places for job in jobs) else []
        found = [(job, places.get(job.id)) for job in jobs]
        return [
            Followed(job, at, self.forecast.predicted(waits[at]) if at is not None else None)
            for job, at in found
        ]

    def _waits_s(self) -> list[float | None]:
        """Return how long each waiting job will still wait."""
        now = time.monotonic()
        running = {
            slot.name: (busy[0], now - busy[1]) if (busy := self._busy.get(slot.name)) else None
            for slot in self.slots
            if slot.name not in self._aside
        }
        return self.forecast.waits_s(running, [Ahead(entry.like, entry.slots) for entry in self._waiting])

    def waiting(self) -> int:
        return len(self._waiting)

    def at(self, slot: str) -> str | None:
        """Return the job that runs in a place of the pool."""
        return self._at.get(slot)

    async def job(self, job: str) -> Followed | None:
        """Return a job. Return None also for a job that came through another door."""
        return await asyncio.to_thread(self.followed, job)

    def followed(self, job: str) -> Followed | None:
        """Return a job. Blocks."""
        known = self.store.job(job)
        return self.positions([known])[0] if known and known.door == self.door else None

    async def wait(self, job: str, limit_s: float | None = None) -> StoredJob | None:
        """Return the job once it is over, or as it is when the time is up. Return None if there is no such job."""
        known: StoredJob | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                async for followed in self.follow(job):
                    known = followed.job
        return known

    async def follow(self, job: str) -> AsyncIterator[Followed]:
        """Yield the job as it is, and again whenever it or its place in the queue changes, until it is over."""
        last: Followed | None = None
        while True:
            tick = self._tick
            if (now := await self.read(functools.partial(self.followed, job))) is None:
                return
            if now != last:
                yield now
            if now.job.over:
                return
            last = now
            mine = self.store.owns(now.job.id)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if mine else _LOOK_S):
                    await tick.wait()
            if not mine:
                await self.read(self.store.sweep)

    async def read(self, what: Callable[[], T]) -> T:
        """Return what `what` reads from the store, once it can be read. Raises StoreError if waiting does not help."""
        while True:
            try:
                return await asyncio.to_thread(what)
            except StoreUnusableError as error:
                if not error.passing:
                    raise
            await asyncio.sleep(_LOOK_S)

    def change(self) -> asyncio.Event:
        """Set when any job, or its place in the queue, changes next."""
        return self._tick

    # -- the pool -----------------------------------------------------------------------------

    def troubles(self) -> list[sqlite_file.FileTrouble]:
        """Return the records that this process cannot write now: of jobs, of runs, of spending."""
        folders = {self.store.path.parent, *_state_folder()}
        return [trouble for folder in folders for trouble in sqlite_file.troubles(folder)]

    def places(self) -> list[dict[str, str | None]]:
        """Return each place for a GPU, with the job that runs there and why it takes none. An unknown or absent value
        is None. A place without a GPU also has `absent`: why it has no GPU.
        """
        return [
            {
                "name": slot.name,
                "gpu": slot.gpu or None,
                "job": self.at(slot.name),
                "aside": self._aside.get(slot.name),
                **({"absent": slot.absent} if slot.absent else {}),
            }
            for slot in self.slots
            if slot.name != COMPILER
        ]

    async def _enqueue(self, jobs: Sequence[tuple[str, Request]]) -> None:
        for job, request in jobs:
            slots = frozenset(slot.name for slot in self.slots if slot.takes(request))
            rank = PRIORITIES.index(request.priority)
            known = forecasts.like(request)
            entry = _Waiting(rank, next(self._numbers), job, slots, known, request.wait_limit_s)
            if requests.builds_extension(request):
                self._begin_preparing(entry, request)
                entry.held = entry.preparing is not None
            if not entry.held:
                self._begin_waiting(entry)
            bisect.insort(self._waiting, entry)
        if jobs:
            waits = dict(zip([entry.id for entry in self._waiting], self._waits_s(), strict=True))
            for job, _ in jobs:
                self.forecast.submitted(job, waits.get(job))
            self._changed()
            await self._give_up()

    def _begin_waiting(self, entry: _Waiting) -> None:
        """Begin to wait for a job. Its limit, if it has one, counts from now, or from when it first waited."""
        if entry.limit_s is None:
            return
        loop = asyncio.get_running_loop()
        until = entry.expiry.when() if entry.expiry else loop.time() + entry.limit_s
        entry.expiry = loop.call_at(until, lambda: self._expire(entry))

    def _begin_preparing(self, entry: _Waiting, request: Request) -> None:
        name = next((slot.name for slot in self.slots if slot.name in entry.slots), None)
        if name is None:
            return
        task = asyncio.create_task(
            self._prepare(entry, self._engines[name], request), name=f"prepare {entry.id}"
        )
        self._preparing.add(task)
        task.add_done_callback(self._preparing.discard)
        entry.preparing = task

    async def _prepare(self, entry: _Waiting, engine: Performer, request: Request) -> None:
        try:
            await engine.prepare(entry.id, request)
        except requests.RequestRefusedError:
            pass  # its run will be refused too
        except Exception:
            log.exception("job %s was not prepared", entry.id)  # its run prepares what is missing
        entry.preparing = None
        if entry.held:
            entry.held = False
            self._begin_waiting(entry)
        self._changed()

    async def _build_ahead(self) -> None:
        """Build the kernels of waiting jobs while all their places have other jobs, if these are GPUs of this
        machine. Only the first few waiting jobs are looked at, because there may be thousands.
        """
        own = {slot.name for slot in self.slots if slot.local}
        while True:
            tick = self._tick
            for entry in [entry for entry in self._waiting[:_AHEAD] if not entry.looked_at]:
                if len(self._building) < BUILDS_AT_ONCE and entry.slots <= self._at.keys() & own:
                    entry.looked_at = True
                    try:
                        request = await asyncio.to_thread(self.store.request, entry.id)
                    except StoreError as error:
                        log.warning("%s", error)
                        continue
                    if requests.builds_ahead(request) and entry in self._waiting:
                        self._begin_preparing(entry, request)
                        if entry.preparing:
                            self._building.add(entry.preparing)
                            entry.preparing.add_done_callback(self._built)
            await tick.wait()

    def _built(self, task: asyncio.Task[None]) -> None:
        self._building.discard(task)
        self._changed()  # another may be built

    async def _give_up(self) -> None:
        """End what waits for GPUs that are all set aside."""
        for entry in [waiting for waiting in self._waiting if waiting.slots <= self._aside.keys()]:
            self._drop(entry)
            name = min(entry.slots)
            text = f"the GPU {name} is set aside: {self._aside[name]}"
            remedy = "look at the machine with nvidia-smi; the GPU is checked again every minute"
            if name in self._gone:
                text = f"{name} takes no more jobs: {self._aside[name]}"
                remedy = "start orbit-lsp again; its log says more"
            await self._end(entry.id, c.Failure("infrastructure", text, remedy, retryable=True))

    def _expire(self, entry: _Waiting) -> None:
        if entry in self._waiting:
            self._drop(entry)
            places = " or ".join(sorted(entry.slots))
            failure = c.Failure(
                "timed out",
                f"it waited {entry.limit_s:g} s for {places}, the limit of waiting, and was not started",
                "submit it again when fewer jobs wait, or with a longer wait_limit_s, or with none",
                retryable=True,
            )
            self._later(self._end(entry.id, failure))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    def _take(self, entry: _Waiting) -> None:
        self._waiting.remove(entry)
        if entry.expiry:
            entry.expiry.cancel()
        self._changed()

    def _drop(self, entry: _Waiting) -> None:
        self._take(entry)
        self.forecast.given_up(entry.id)
        if entry.preparing:
            entry.preparing.cancel()

    async def _serve(self, slot: Slot, engine: Performer) -> None:
        """Run jobs one after the other in one place."""
        try:
            if gpu := await engine.ready():
                self.slots[self.slots.index(slot)] = slot = replace(slot, gpu=gpu)
            before = await _figures_before(engine, slot) if self._guarded and slot.checked else None
            while True:
                entry = await self._next(slot)
                self._at[slot.name] = entry.id
                began = time.monotonic()
                self._busy[slot.name] = (entry.like, began)
                try:
                    if (request := await self._begin(slot, entry)) is None:
                        continue
                    self.forecast.begun(entry.id, entry.like, began - entry.since)
                    finished = await self._carry(engine, entry, request)
                    self.forecast.ended(entry.like, time.monotonic() - began)
                    if before and gpu_check.suspect(finished):
                        await self._until_sound(slot, engine, before)
                except Exception as error:
                    log.exception("job %s was not carried out", entry.id)
                    text = f"the job could not be run: {type(error).__name__}: {error}"
                    await self._end(
                        entry.id, c.Failure("infrastructure", text, "submit it again", retryable=True)
                    )
                finally:
                    self._at.pop(slot.name, None)
                    self._busy.pop(slot.name, None)
                    self._unwanted.discard(entry.id)
                    self._changed()
        finally:
            await engine.close()

    def _ended(self, slot: str, task: asyncio.Task[None]) -> None:
        """Report a place whose task has ended by itself. It takes no job any more."""
        if task.cancelled() or not (error := task.exception()):
            return
        log.error("%s takes no more jobs", slot, exc_info=error)
        self._at.pop(slot, None)
        self._gone.add(slot)
        self._aside[slot] = f"it cannot be used: {type(error).__name__}: {error}"
        self._changed()
        self._later(self._give_up())

    async def _until_sound(self, slot: Slot, engine: Performer, before: gpu_check.GpuFigures) -> None:
        """Check a place's GPU again and again until it is as it was. Meanwhile the place takes no job."""
        self._at.pop(slot.name, None)
        while problem := gpu_check.problem(before, *await gpu_check.figures(_check(engine))):
            if slot.name not in self._aside:
                log.error("%s is set aside: %s", slot.name, problem)
            self._aside[slot.name] = problem
            self._changed()
            await self._give_up()
            await asyncio.sleep(gpu_check.AGAIN_S)
        if self._aside.pop(slot.name, ""):
            log.warning("%s is as it was, and takes jobs again", slot.name)
            self._changed()

    async def _next(self, slot: Slot) -> _Waiting:
        while True:
            tick, trouble = self._tick, self.store.trouble()
            none = trouble or self._closing
            ready = (waiting for waiting in self._waiting if not waiting.held and not none)
            if entry := next((waiting for waiting in ready if slot.name in waiting.slots), None):
                self._take(entry)
                return entry
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S if trouble else None):
                    await tick.wait()

    async def _begin(self, slot: Slot, entry: _Waiting) -> Request | None:
        """Record the beginning of a job, and return its request. Return None if it does not begin: it was cancelled,
        or it is back in the queue because nothing can be recorded now.
        """
        try:
            request = await asyncio.to_thread(self.store.begin, entry.id, slot.name)
        except StoreUnusableError:
            request = None
        resumed = self._closing and self.door == RESUMED
        if entry.id in self._unwanted or (self._closing and not resumed):
            await self._end(entry.id, CANCELLED)
            return None
        if resumed:  # the next server has it
            await asyncio.to_thread(self.store.phase, entry.id, "queued")
            return None
        if request is None:
            bisect.insort(self._waiting, entry)
            self._begin_waiting(entry)
        return request

    async def _carry(self, engine: Performer, entry: _Waiting, request: Request) -> c.Finished:
        store, phases = self.store, asyncio.Queue[tuple[c.State, str] | None]()

        async def write() -> None:
            while phase := await phases.get():
                await asyncio.to_thread(store.phase, entry.id, *phase)
                self._changed()

        writing = asyncio.create_task(write())

        async def perform() -> Result:
            if entry.preparing:  # the same build, begun before
                await entry.preparing
            return await engine.perform(entry.id, request, lambda state, why: phases.put_nowait((state, why)))

        task = asyncio.create_task(perform(), name=entry.id)
        self._running[entry.id] = task
        self._changed()
        try:
            result = await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():  # the whole queue is being closed
                task.cancel()
                await asyncio.wait([task])
            result = Result(c.failed(entry.id, CANCELLED))
        finally:
            if entry.preparing and not entry.preparing.done():  # cancelled before its first step
                entry.preparing.cancel()
                await asyncio.wait([entry.preparing])
            phases.put_nowait(None)
            await writing
            self._running.pop(entry.id, None)
        compiled = request.action == "compile"
        text = summary.one_line(result.finished, compiled_only=compiled)
        if sentence := result.versus.get("sentence"):
            text = str(sentence)
        await asyncio.to_thread(store.end, entry.id, result, text)
        self._changed()
        return result.finished

    async def _end(self, job: str, failure: c.Failure) -> None:
        result = Result(c.failed(job, failure))
        text = summary.one_line(result.finished, compiled_only=False)
        try:
            await asyncio.to_thread(self.store.end, job, result, text)
        except StoreError as error:
            log.error("how job %s ended is not recorded: %s", job, error)
        self._changed()

    async def _look(self) -> None:
        """Cancel what another process asks to have cancelled, and write what could not be written before."""
        said: StoreUnusableError | None = None
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                if (trouble := self.store.trouble()) and not said:
                    log.error("%s", trouble)
                if said and not trouble:
                    self._changed()
                said = trouble
                await self._look_once()
            except StoreError as error:
                log.warning("%s", error)
            except Exception:
                log.exception("the queue is not as it should be")

    async def _look_once(self) -> None:
        """Raises StoreError."""
        assert self._owner
        await asyncio.to_thread(sqlite_file.write_again)
        if not await asyncio.to_thread(self.store.write_again):
            return
        await self._adopt()
        if self._waiting or self._running:
            for job in await asyncio.to_thread(self.store.cancelling, self._owner.id):
                await self._cancel_here(job)

    def _changed(self) -> None:
        self._tick.set()
        self._tick = asyncio.Event()


async def ended_elsewhere(store: JobStore, job: StoredJob) -> StoredJob:
    """Wait until a job of another process is over. That process may end too."""
    while not job.over:
        await asyncio.sleep(_LOOK_S)
        await asyncio.to_thread(store.sweep)
        job = await asyncio.to_thread(store.job, job.id) or job
    return job


def _state_folder() -> list[Path]:
    with suppress(RuntimeError):  # without a home folder there is no state
        return [state_folder()]
    return []


async def _figures_before(engine: Performer, slot: Slot) -> gpu_check.GpuFigures | None:
    """Return the figures of a place's GPU. Return None if there is no GPU, or none that works: its jobs say so."""
    try:
        before, why = await gpu_check.figures(_check(engine))
    except Exception:
        log.exception("%s was not checked", slot.name)
        return None
    if why:
        log.info("%s is not checked after jobs that fail: %s", slot.name, why)
    return before


def _check(engine: Performer) -> gpu_check.Perform:
    name = f"check-{uuid.uuid4().hex[:12]}"  # its folder's name, which two processes must not share
    return lambda request: engine.perform(name, request, lambda _state, _why: None)


def engines(options: EngineOptions) -> Callable[[Slot], Performer]:
    """Return what makes the engine of each place of a pool."""
    return lambda slot: ClusterEngine(slot, options) if slot.clustered else SlotEngine(slot, options)
