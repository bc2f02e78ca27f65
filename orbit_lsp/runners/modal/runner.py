"""Runs jobs on a GPU on Modal: the worker of the local runner in a container there, under the same interface.

Nothing here imports `modal` before a first run, and nothing is rented without the author's command.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from orbit_lsp.runners import refusals
from orbit_lsp.runners.modal import errors
from orbit_lsp.runners.modal.call import ModalCall
from orbit_lsp.runners.modal.costs import RentalCosts
from orbit_lsp.runners.modal.deploy import within
from orbit_lsp.runners.modal.errors import ModalError
from orbit_lsp.runners.modal.pool import AuthorKnowledge, ContainerPool, ModalOptions
from orbit_lsp.runners.modal.sessions import ContainerSession, ContainerSessions
from orbit_remote.common import architectures
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job

log = logging.getLogger("orbit.modal")

_CLOSE_S = 2.0
"""How long closing may take, so that an editor closes without delay."""
_LEAVE_S = 5.0
"""How long containers have to answer that they end."""
_WITHDRAW_S = 0.5


class ModalRunner:
    name = "modal"

    def __init__(
        self, options: ModalOptions, changed: Callable[[], None] = lambda: None, author: AuthorKnowledge | None = None,
        costs: RentalCosts | None = None,
    ) -> None:  # fmt: skip
        """Make a runner. `changed` is called when a container became warm or cold. `author` is asked about each job.
        `costs` records what is rented.
        """
        self.options = options
        self.pool = ContainerPool(options, author)
        self._sessions = ContainerSessions(
            options.spec.idle_s, changed, costs, options.spec.timeout_s, released=options.released
        )
        self._known: set[str] = set()
        self._kept: dict[str, asyncio.Task[None]] = {}
        """What the setting has kept warm, by GPU."""
        self._leaving: dict[str, asyncio.Task[bool]] = {}
        self._unused: set[asyncio.Task[None]] = set()
        """Ending containers that were begun for calls which were cancelled meanwhile."""
        self._active: dict[ModalCall, asyncio.Task[None]] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, job: Job) -> AsyncGenerator[c.Event, None]:
        """Run a job. A `.cu` file that has not been compiled is first built without a GPU, so that its mistakes cost
        none.
        """
        if failure := refusals.no_path(job) or refusals.no_gpu(job) or refusals.no_sources(job):
            yield c.failed(job.run, failure)
            return
        if job.language == "triton":
            refused = await asyncio.to_thread(refusals.syntax_error, job, self.options.spec.python)
            if refused:
                yield refused
                return
        if job.gpu and (known := architectures.architecture_for(job.gpu)):
            job = replace(job, architecture=known)
        if first := self._first(job):
            async with aclosing(self._run_once(first)) as events:
                async for event in events:
                    if not isinstance(event, c.Finished):
                        yield _on_a_cpu(event)
                    elif event.outcome != "ok":
                        yield event
                        return
        async with aclosing(self._run_once(job, built=first is not None)) as events:
            async for event in events:
                yield event

    def _first(self, job: Job) -> Job | None:
        """Return the job to do on a machine without a GPU before one is rented. Return None if the GPU is at hand, or
        is not needed, or the job's text has just been compiled.

        A restricted container hands nothing on, so the build would be done twice.
        """
        warm = job.gpu is None or self._sessions.warm(job.gpu)
        restricted = self.options.restricted or job.restricted
        runs = job.action not in ("compile", "build")
        if not runs or job.language != "cuda" or warm or restricted:
            return None
        if self.pool.author.compiled(job):
            return None
        return replace(job, action="build")

    async def _run_once(self, job: Job, *, built: bool = False) -> AsyncGenerator[c.Event, None]:
        call = ModalCall(job, self.pool, self._sessions, self._known, built=built)
        task = self._active[call] = asyncio.create_task(call.perform(), name=f"modal {call.key}")
        self._idle.clear()
        try:
            finished = False
            while not finished:
                event = await call.events.get()
                finished = isinstance(event, c.Finished)
                yield event
            self._keep_first(call)
        finally:
            if not task.done():
                await asyncio.shield(_end(call, task))
            if call.gpu and call.waited_for_nothing:
                sending = asyncio.create_task(self._send_unused(call.gpu), name=f"unused {call.gpu}")
                self._unused.add(sending)
                sending.add_done_callback(self._unused.discard)
            del self._active[call]
            if not self._active:
                self._idle.set()

    async def machine(self) -> c.Machine | None:
        """Return None: to ask what a container has would rent one."""
        return None

    async def warm(self, language: str) -> None:
        """Do nothing: to warm a container would rent it."""

    async def retire(self) -> None:
        """Close once no job is under way, or at once if the wait is cancelled."""
        try:
            await self._idle.wait()
        finally:
            await asyncio.shield(self.close())

    async def close(self) -> None:
        """Release the warm containers, also those that compiled. A container that is not reached ends after its idle
        time.
        """
        rented = {"", *(session.gpu for session in self.sessions())}
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.gather(*map(self.release, rented), *self._unused)

    # -- sessions -----------------------------------------------------------------------------

    def sessions(self) -> list[ContainerSession]:
        """Return the containers that are warm because of this server."""
        return self._sessions.all()

    async def keep_warm(self, gpu: str, *, keep: bool) -> None:
        """Keep one container of `gpu`, used or not, until it is released. Raises ModalError."""
        try:
            handle = await self.pool.handle(gpu)
            await handle.run.autoscaler.update.aio(min_containers=1 if keep else 0)
        except Exception as error:  # noqa: BLE001 - of Modal's client; it becomes a sentence
            raise ModalError(errors.trouble(error)) from None
        self._sessions.keep(gpu, keep)

    def _keep_first(self, call: ModalCall) -> None:
        gpu = call.gpu
        if not (self.options.keep_warm and gpu and call.cost) or call.restricted or gpu in self._kept:
            return

        async def keep() -> None:
            if not await self.pool.author.may_keep(gpu):
                return
            try:
                await self.keep_warm(gpu, keep=True)
            except ModalError as error:
                log.warning("the %s is not kept warm: %s", gpu, error.trouble.message)

        self._kept[gpu] = asyncio.create_task(keep(), name=f"keep {gpu}")

    async def release(self, gpu: str) -> bool:
        """End the warm containers of `gpu` ("" for those that only compile) in which nothing runs. Return False if
        there is none, or one of them could not be reached: that one is warm until its idle time ends.
        """
        if keeping := self._kept.pop(gpu, None):
            await keeping  # else it would be kept after it was released
        if gpu not in self._leaving:  # asked twice, a container that has ended would be started again
            task = self._leaving[gpu] = asyncio.create_task(self._release(gpu), name=f"release {gpu}")
            task.add_done_callback(lambda _: self._leaving.pop(gpu))
        return await asyncio.shield(self._leaving[gpu])

    async def _release(self, gpu: str) -> bool:
        wanted = self._sessions.idle(gpu)
        if not wanted and not self._sessions.kept(gpu):
            return False
        try:
            async with asyncio.timeout(_LEAVE_S):
                handle = await self.pool.handle(gpu or None)
                if self._sessions.kept(gpu):
                    await handle.run.autoscaler.update.aio(min_containers=0)
                    self._sessions.keep(gpu, False)
                await self._send_away(gpu, handle, wanted)
        except Exception as error:  # noqa: BLE001 - what was not reached ends with its idle time all the same
            log.warning("a container was not released: %s", errors.trouble(error).message)
        return bool(wanted) and not wanted & self._sessions.idle(gpu)

    async def _send_unused(self, gpu: str) -> None:
        """End the container that Modal may have started for a call before it was cancelled. It would idle, billed,
        and nobody here would know it. A known container, or one that has had a job, stays.
        """
        try:
            async with asyncio.timeout(_LEAVE_S):
                handle = await self.pool.handle(gpu)
                stats = await handle.leave.get_current_stats.aio()
                if stats.num_total_runners - stats.num_running_inputs > len(self._sessions.idle(gpu)):
                    await _leave(handle, set())
        except Exception as error:  # noqa: BLE001 - it ends with its idle time all the same
            log.warning("an unused container was not ended: %s", errors.trouble(error).message)

    async def _send_away(self, gpu: str, handle: Any, wanted: set[str]) -> None:
        """Ask until as many containers have answered as there are: Modal decides which one answers a call. A
        container that had a run of another editor stays.
        """
        stats = await handle.leave.get_current_stats.aio()
        total = stats.num_total_runners  # one that is gone would be started again by asking it
        idle = max(total - stats.num_running_inputs, min(len(wanted), total))
        answered: set[str] = set()
        while True:
            # one that was not needed may have answered in the place of one that is known
            left = max(idle - len(answered), min(len(wanted - answered), total - len(answered)))
            if gpu:
                # Modal starts one for each of several runs that wait, and the first may do them all: the others
                # are not known here, and not asked for: for a count that is late one would be rented for nothing
                left = min(left, len(wanted - answered))
            if left <= 0:
                return
            for container, ends in await asyncio.gather(*(_leave(handle, wanted) for _ in range(left))):
                answered.add(container)
                if ends:
                    self._sessions.left(gpu, container)


async def _leave(handle: Any, wanted: set[str]) -> tuple[str, bool]:
    call = await handle.leave.spawn.aio(sorted(wanted))
    try:
        return await call.get.aio()
    except asyncio.CancelledError:
        with suppress(Exception):  # a container would be started for a call that is left waiting
            await within(_WITHDRAW_S, call.cancel.aio())
        raise


def _on_a_cpu(event: c.Event) -> c.Event:
    if isinstance(event, c.Stage) and event.state == "building" and not event.why:
        return replace(event, why="without a GPU: compile errors cost no GPU time")
    return event


async def _end(call: ModalCall, task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await call.end()
