"""A GPU on Modal: the worker of the local runner in a container there, under the same interface.

Nothing here imports `modal` before a first run, and nothing is rented but on the author's command.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import replace

from orbit_lsp.runners import modal_errors, refusals
from orbit_lsp.runners.events import validator
from orbit_lsp.runners.modal_call import Call
from orbit_lsp.runners.modal_costs import Costs
from orbit_lsp.runners.modal_deploy import within
from orbit_lsp.runners.modal_errors import ModalError
from orbit_lsp.runners.modal_pool import Known, Options, Pool
from orbit_lsp.runners.modal_sessions import Session, Sessions
from orbit_remote import architectures
from orbit_remote import contracts as c

log = logging.getLogger("orbit.modal")

_LEAVE_S = 2.0
"""How long closing may take: nobody is to wait for an editor to close."""


class ModalRunner:
    name = "modal"

    def __init__(
        self, options: Options, changed: Callable[[], None] = lambda: None, author: Known | None = None,
        costs: Costs | None = None,
    ) -> None:  # fmt: skip
        """`changed` is called when a container became warm or cold; `author` is asked about each job;
        `costs` is told what is rented.
        """
        self.options = options
        self.pool = Pool(options, author)
        self._sessions = Sessions(options.spec.idle_s, changed, costs, options.spec.timeout_s)
        self._validate = validator()
        self._known: set[str] = set()
        self._kept: dict[str, asyncio.Task[None]] = {}
        """What the setting has kept warm, by GPU."""
        self._active: dict[Call, asyncio.Task[None]] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, job: c.Job) -> AsyncGenerator[c.Event, None]:
        """A `.cu` that has not been compiled is built without a GPU first, so that its mistakes cost none."""
        if failure := refusals.no_path(job):
            yield c.Finished(job.run, failure.category, failure)
            return
        if job.language == "triton":
            refused = await asyncio.to_thread(refusals.syntax_error, job, self.options.spec.python)
            if refused:
                yield refused
                return
        if job.gpu and (known := architectures.architecture_for(job.gpu)):
            job = replace(job, architecture=known)
        if first := self._first(job):
            async with aclosing(self._carry_out(first)) as events:
                async for event in events:
                    if not isinstance(event, c.Finished):
                        yield _on_a_cpu(event)
                    elif event.outcome != "ok":
                        yield event
                        return
        async with aclosing(self._carry_out(job, built=first is not None)) as events:
            async for event in events:
                yield event

    def _first(self, job: c.Job) -> c.Job | None:
        """What is done on a machine without a GPU before one is rented; None where the GPU is at hand, or
        is not needed, or the job's text has just been compiled.

        A restricted container hands nothing on, so there the build would be done twice.
        """
        warm = job.gpu is None or self._sessions.warm(job.gpu)
        restricted = self.options.restricted or job.restricted
        if job.action != "run" or job.language != "cuda" or warm or restricted:
            return None
        if self.pool.author.compiled(job):
            return None
        return replace(job, action="build" if job.through == "program" else "compile")

    async def _carry_out(self, job: c.Job, *, built: bool = False) -> AsyncGenerator[c.Event, None]:
        call = Call(job, self.pool, self._sessions, self._known, self._validate, built=built)
        task = self._active[call] = asyncio.create_task(call.carry_out(), name=f"modal {call.key}")
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
            del self._active[call]
            if not self._active:
                self._idle.set()

    async def machine(self) -> c.Machine | None:
        """None: to ask what a container has would rent one."""
        return None

    async def warm(self, language: str) -> None:
        """Nothing, for the same reason."""

    async def retire(self) -> None:
        """Close once no job is under way; at once where the wait is cancelled."""
        try:
            await self._idle.wait()
        finally:
            await asyncio.shield(self.close())

    async def close(self) -> None:
        """Release what is warm; a container that is not reached ends with its idle time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                await asyncio.gather(
                    self._release_compiler(), *(self.release(one.gpu) for one in self.sessions())
                )
                await self.pool.close()

    # -- sessions -----------------------------------------------------------------------------

    def sessions(self) -> list[Session]:
        """The containers that are warm because of this server."""
        return self._sessions.all()

    async def keep_warm(self, gpu: str, *, keep: bool) -> None:
        """One container of `gpu` stays, used or not, until it is told otherwise. Raises ModalError."""
        try:
            handle = await self.pool.handle(gpu)
            await handle.update_autoscaler.aio(min_containers=1 if keep else 0)
        except Exception as error:  # noqa: BLE001 - of Modal's client; it becomes a sentence
            raise ModalError(modal_errors.trouble(error)) from None
        self._sessions.keep(gpu, keep)

    def _keep_first(self, call: Call) -> None:
        gpu = call.gpu
        if not (self.options.keep_warm and gpu and call.cost) or call.restricted or gpu in self._kept:
            return

        async def keep() -> None:
            try:
                await self.keep_warm(gpu, keep=True)
            except ModalError as error:
                log.warning("the %s is not kept warm: %s", gpu, error.trouble.message)

        self._kept[gpu] = asyncio.create_task(keep(), name=f"keep {gpu}")

    async def release(self, gpu: str) -> bool:
        """End the warm container of `gpu` at once; False where there is none, or Modal did not take it."""
        if keeping := self._kept.pop(gpu, None):
            await keeping  # else it would be kept after it was released
        if not (sessions := self._sessions.forget(gpu)):
            return False
        try:
            handle = await self.pool.handle(gpu)
            if any(one.kept for one in sessions):
                await handle.update_autoscaler.aio(min_containers=0)
            for _ in sessions:
                await within(_LEAVE_S, handle.leave.spawn.aio())
            self._sessions.ended(sessions)
        except Exception as error:  # noqa: BLE001 - it ends with its idle time all the same
            log.warning("a container was not released: %s", modal_errors.trouble(error).message)
            return False
        return True

    async def _release_compiler(self) -> None:
        sessions = self._sessions.forget("")  # one that is not warm would be started by asking it to leave
        if not sessions:
            return
        with suppress(Exception):  # they end with their idle time all the same
            handle = await self.pool.handle(None)
            await asyncio.gather(*(within(_LEAVE_S, handle.leave.spawn.aio()) for _ in sessions))
            self._sessions.ended(sessions)


def _on_a_cpu(event: c.Event) -> c.Event:
    if isinstance(event, c.Stage) and event.state == "building" and not event.why:
        return replace(event, why="without a GPU: a mistake costs no GPU time")
    return event


async def _end(call: Call, task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await call.end()
