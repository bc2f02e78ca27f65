"""A GPU on Modal: the same worker in a container there, under the same interface as at home.

A job is spawned, so that it has an id, and can be cancelled, while it still waits for a GPU. Its events
come through a partition of a queue, its answer also as the call's return value: whatever happens to
the queue, the return value closes the run.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orbit_lsp import closure
from orbit_lsp.runners import modal_errors, modal_gpus
from orbit_lsp.runners.events import Lines, validator
from orbit_lsp.runners.modal_deploy import Account, within
from orbit_lsp.runners.modal_errors import DEPLOY, ModalError, Trouble
from orbit_remote import contracts as c
from orbit_remote.modal_spec import Spec, pack, unpack

if TYPE_CHECKING:
    import modal

log = logging.getLogger("orbit.modal")

_SIGN_S = 5.0
_POLL_S = 30.0
_DRAIN_S = 1.0
"""How long the last events may trail the return value, and the return value the last event."""
_SOFT_S = 2.0
_HARD_S = 5.0
_TRIES = 3
_UNASKED = 1 << 20
"""Bytes of files that are sent along before the other side has said that it lacks them."""
_LEAVE_S = 2.0


@dataclass(frozen=True, slots=True)
class Options:
    """`folders` are the workspace's; `environment` is Modal's, "" for the account's own.

    `restricted` is for code that is not the author's: a container for it alone, without network.
    """

    spec: Spec
    folders: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    closure_limit: int = 256 << 20
    environment: str = ""
    restricted: bool = False


@dataclass(slots=True)
class Session:
    """A warm container of one GPU. Times are on the wall clock; `until` is None while a run is under way.

    `gpu_s` are the seconds that its jobs took, idle time not counted.
    """

    gpu: str
    since: float
    until: float | None = None
    runs: int = 0
    gpu_s: float = 0.0
    kept: bool = False

    def warm(self, now: float) -> bool:
        return self.kept or self.until is None or now < self.until


@dataclass(slots=True)
class _Answer:
    data: dict[str, Any]
    finished: c.Finished | None = None


@dataclass(slots=True, eq=False)
class _Call:
    """One job on its way. `key` names it on Modal, where other editors' `r1` run too."""

    job: c.Job
    key: str
    told: asyncio.Queue[c.Event] = field(default_factory=asyncio.Queue["c.Event"])
    fetching: asyncio.Future[Any] | None = None
    call: Any = None
    """Modal's FunctionCall, once it has an id."""
    finished: c.Finished | None = None
    over: bool = False

    def stage(self, state: c.State, why: str = "") -> None:
        self.told.put_nowait(c.Stage(self.job.run, state, time.time(), why))


class ModalRunner:
    name = "modal"

    def __init__(self, options: Options, changed: Callable[[], None] = lambda: None) -> None:
        """`changed` is called when a session became warm or cold."""
        self.options = options
        self.account = Account(options.spec, options.environment)
        self.sessions: dict[str, Session] = {}
        self._changed = changed
        self._validate = validator()
        self._events: modal.Queue | None = None
        self._events_context: Any = None
        self._handles: dict[str, Any] = {}
        self._known: set[str] = set()
        self._active: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    # -- the interface ------------------------------------------------------------------------

    async def run(self, job: c.Job) -> AsyncGenerator[c.Event, None]:
        call = _Call(job, f"{job.run}-{uuid.uuid4().hex}")
        task = asyncio.create_task(self._carry_out(call), name=f"modal {call.key}")
        self._active.add(task)
        self._idle.clear()
        try:
            while True:
                event = await call.told.get()
                if isinstance(event, c.Finished):
                    event = self._checked(job, event)
                    await task
                    yield event
                    return
                yield event
        finally:
            if not task.done():
                await asyncio.shield(self._end(call, task))
            self._active.discard(task)
            if not self._active:
                self._idle.set()

    async def machine(self) -> c.Machine | None:
        """None: to ask what a container has would rent one."""
        return None

    async def warm(self, language: str) -> None:
        """Nothing: a container is rented on the author's click only."""

    async def retire(self) -> None:
        """Close once no job is under way; at once where the wait is cancelled."""
        try:
            await self._idle.wait()
        finally:
            await asyncio.shield(self.close())

    async def close(self) -> None:
        """Release what is warm, in bounded time: nobody is to wait for an editor to close."""
        for task in list(self._active):
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                await asyncio.gather(*(self.release(gpu) for gpu in list(self.sessions)))
                if self._events_context is not None:
                    await self._events_context.__aexit__(None, None, None)
        self._events = self._events_context = None

    # -- sessions -----------------------------------------------------------------------------

    async def keep_warm(self, gpu: str, keep: bool) -> None:
        """One container of `gpu` stays, whether it is used or not, until it is told otherwise.

        Raises ModalError.
        """
        try:
            handle = await self._handle(gpu)
            await handle.update_autoscaler.aio(min_containers=1 if keep else 0)
        except Exception as error:  # noqa: BLE001 - of Modal's client; it becomes a sentence
            raise ModalError(modal_errors.trouble(error)) from None
        now = time.time()
        session = self.sessions.setdefault(gpu, Session(gpu, now, now + self.options.spec.idle_s))
        session.kept = keep
        self._changed()

    async def release(self, gpu: str) -> bool:
        """End the warm container of `gpu` at once; False where there is none, or Modal did not take it."""
        session = self.sessions.pop(gpu, None)
        self._changed()
        if session is None or not session.warm(time.time()):
            return False
        try:
            handle = await self._handle(gpu)
            if session.kept:
                await handle.update_autoscaler.aio(min_containers=0)
            await within(_LEAVE_S, handle.leave.spawn.aio())
        except Exception as error:  # noqa: BLE001 - it ends with its idle time all the same
            log.warning("the container could not be released: %s", modal_errors.trouble(error).message)
            return False
        return True

    # -- a job --------------------------------------------------------------------------------

    async def _carry_out(self, call: _Call) -> None:
        """Ends with a Finished among what is told, however it goes."""
        try:
            finished = await self._finished(call)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - of Modal's client, or ours: a user gets a sentence
            found = modal_errors.trouble(error)
            log.warning("%s: %s: %s", call.key, type(error).__name__, error)
            finished = c.Finished(call.job.run, found.failure().category, found.failure())
        call.told.put_nowait(finished)

    async def _finished(self, call: _Call) -> c.Finished:
        job = call.job
        call.stage("queued", "collecting its files")
        tree = await asyncio.to_thread(
            closure.closure,
            job,
            self.options.folders,
            data=self.options.data,
            limit=self.options.closure_limit,
        )
        if tree.refusal:
            failure = c.Failure("infrastructure", tree.refusal, "make it smaller, or name fewer data files")
            return c.Finished(job.run, "infrastructure", failure)
        if self.account.deploying:
            call.stage("starting", _building_the_image())
        await self.account.client()
        request = _request(job, tree, call.key)
        wanted = self._unknown(tree)
        if sum(_size(tree.contents[digest]) for digest in wanted) > _UNASKED and not self.options.restricted:
            wanted = []
        for _ in range(3):
            blobs = await asyncio.to_thread(_read, tree, wanted)
            answer = await self._attempt(call, request, blobs)
            if "missing" not in answer:
                break
            call.stage("starting", f"sending {len(answer['missing'])} files")
            wanted = answer["missing"]
            self._known.difference_update(wanted)
        else:
            raise ModalError(
                Trouble(
                    "infrastructure", "the files changed while they were sent", "run it again", again=True
                )
            )
        finished = self._read_answer(call, answer)
        self._known |= set(tree.manifest.files.values())
        return replace(finished, remarks=(*finished.remarks, *tree.remarks))

    def _unknown(self, tree: closure.Closure) -> list[str]:
        digests = dict.fromkeys(tree.manifest.files.values())
        return [one for one in digests if self.options.restricted or one not in self._known]

    def _read_answer(self, call: _Call, answer: dict[str, Any]) -> c.Finished:
        if call.finished is not None:
            return call.finished
        if "finished" in answer:
            return self._finished_of(call, answer["finished"])
        if answer.get("contract", c.VERSION) != c.VERSION:
            text = f"the app on Modal speaks version {answer['contract']} of the contract, this server {c.VERSION}"
            raise ModalError(Trouble("version", text, DEPLOY))
        raise ModalError(
            Trouble("infrastructure", answer.get("broken", "the container gave no answer"), "run it again")
        )

    def _finished_of(self, call: _Call, record: dict[str, Any]) -> c.Finished:
        event = self._validate(record | {"run": call.job.run})
        if not isinstance(event, c.Finished):
            raise ModalError(Trouble("version", "the container's answer is not one", DEPLOY))
        return event

    async def _attempt(self, call: _Call, request: bytes, blobs: dict[str, bytes]) -> dict[str, Any]:
        """Submit the job and follow it to its answer; deploys where the app is not there."""
        from modal import exception

        try:
            await self._submit(call, request, blobs)
        except exception.NotFoundError:
            call.stage("starting", _building_the_image())
            self._handles.clear()
            await self.account.deploy()
            await self._submit(call, request, blobs)
        gpu = _gpu(call.job)
        began = self._begin(gpu)
        try:
            return await self._follow(call)
        finally:
            self._end_of_run(gpu, began)

    async def _submit(self, call: _Call, request: bytes, blobs: dict[str, bytes]) -> None:
        """Raises what Modal's client raises, once trying again cannot help or has not."""
        import tenacity

        def say(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            why = modal_errors.trouble(error).message if error else ""
            call.stage("queued", f"{why}; trying again ({state.attempt_number} of {_TRIES - 1})")

        async for attempt in tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(_TRIES),
            wait=tenacity.wait_exponential_jitter(initial=0.5, max=4, jitter=0.5),
            retry=tenacity.retry_if_exception(modal_errors.retryable),
            before_sleep=say,
            reraise=True,
        ):
            with attempt:
                handle = await self._handle(_gpu(call.job))
                arguments: list[Any] = [request, blobs]
                if not self.options.restricted:
                    arguments += [await self._queue(), call.key]
                call.stage("queued", self._why_queued(call.job))
                # never cancelled: its id would be lost, and with it the way to end what it started
                call.fetching = spawning = asyncio.ensure_future(handle.run.spawn.aio(*arguments))
                call.call = await asyncio.shield(spawning)

    def _why_queued(self, job: c.Job) -> str:
        gpu = _gpu(job)
        if gpu is None:
            return "waiting for a container on Modal"
        session = self.sessions.get(gpu)
        if session and session.warm(time.time()):
            return ""
        return (
            f"waiting for {'an' if gpu[0] in 'AHL' else 'a'} {gpu} on Modal since {time.strftime('%H:%M:%S')}"
        )

    async def _handle(self, gpu: str | None) -> Any:
        """What the methods of a container of `gpu` are called on; None is a machine without one."""
        client = await self.account.client()
        name = gpu or ""
        if name not in self._handles:
            import modal

            cls = modal.Cls.from_name(
                await self.account.name(),
                "Stranger" if self.options.restricted else "Worker",
                client=client,
                environment_name=self.options.environment or None,
            )
            spec = self.options.spec
            limits: dict[str, Any] = {"timeout": spec.timeout_s}
            if not self.options.restricted:
                limits["scaledown_window"] = spec.idle_s
            if gpu:
                limits["gpu"] = modal_gpus.asked(gpu)
            self._handles[name] = cls.with_options(**limits)()
        return self._handles[name]

    async def _queue(self) -> modal.Queue:
        """One for the life of the runner; Modal forgets it when this process is gone."""
        if self._events is None:
            import modal

            self._events_context = modal.Queue.ephemeral(
                client=await self.account.client(), environment_name=self.options.environment or None
            )
            self._events = await self._events_context.__aenter__()
        assert self._events is not None
        return self._events

    async def _follow(self, call: _Call) -> dict[str, Any]:
        assert call.call is not None
        returned = asyncio.ensure_future(self._returned(call.call))
        helpers: list[asyncio.Future[Any]] = []
        try:
            if not self.options.restricted:
                queue = await self._queue()
                helpers.append(asyncio.ensure_future(self._listen(call, queue)))
                helpers.append(asyncio.ensure_future(_sign(queue, f"{call.key}/alive")))
                await asyncio.wait([returned, helpers[0]], return_when=asyncio.FIRST_COMPLETED)
            if call.finished is not None and not returned.done():
                # it is known; the call's own end only tells that the container is free again
                await asyncio.wait([returned], timeout=_DRAIN_S)
                if not returned.done():
                    return {}
            answer = await returned
            if helpers and "finished" in answer:
                await asyncio.wait(helpers[:1], timeout=_DRAIN_S)
            return answer
        finally:
            # a queue's pending get may swallow an item when it is cancelled: this partition is done with
            for task in (returned, *helpers):
                task.cancel()
            await asyncio.gather(returned, *helpers, return_exceptions=True)

    async def _returned(self, call: Any) -> dict[str, Any]:
        """The answer; asks again where the connection was lost: the call goes on meanwhile."""
        import tenacity

        async for attempt in tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(_TRIES),
            wait=tenacity.wait_exponential_jitter(initial=0.5, max=4, jitter=0.5),
            retry=tenacity.retry_if_exception(_unreachable),
            reraise=True,
        ):
            with attempt:
                return unpack(await call.get.aio())
        raise AssertionError

    async def _listen(self, call: _Call, queue: modal.Queue) -> None:
        """Tell the events as they come, up to the explicit end."""
        import queue as stdlib

        lines = Lines()
        while not call.over:
            try:
                pieces = await queue.get_many.aio(200, timeout=_POLL_S, partition=call.key)
            except stdlib.Empty:
                continue
            except Exception as error:  # noqa: BLE001 - events are lost, the return value is not
                log.warning("%s: events cannot be read: %s", call.key, error)
                await asyncio.sleep(1)
                continue
            for piece in pieces:
                for line in lines.feed(piece):
                    self._hear(call, line)

    def _hear(self, call: _Call, line: bytes) -> None:
        try:
            record = json.loads(line.decode("utf-8", "replace"))
            match record.get("kind"):
                case "container":
                    call.stage("starting", "the container is there")
                case "done":
                    call.over = True
                case "finished":
                    call.finished = self._finished_of(call, record)
                case "group":
                    pass
                case _:
                    call.told.put_nowait(self._validate(record | {"run": call.job.run}))
        except (ValueError, AttributeError) as error:  # half a line of a container that has died
            log.info("%s: an event was not understood: %s", call.key, error)

    def _checked(self, job: c.Job, finished: c.Finished) -> c.Finished:
        """A figure of another GPU than the one asked for is no figure."""
        gpu = _gpu(job)
        if gpu is None or finished.device is None or modal_gpus.answers(gpu, finished.device.name):
            return finished
        text = f"{gpu} was asked for, and Modal gave a container with {finished.device.name}"
        remedy = "run it again; if it stays so, choose another GPU"
        failure = c.Failure("infrastructure", text, remedy, retryable=True)
        return c.Finished(job.run, "infrastructure", failure, device=finished.device, stdout=finished.stdout)

    # -- the end ------------------------------------------------------------------------------

    async def _end(self, call: _Call, task: asyncio.Task[None]) -> None:
        """Cancel, and return when nothing runs any more: softly, so that the container stays warm; by
        ending the container where that does not help.
        """
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if call.call is None and call.fetching is not None:
            with suppress(Exception):
                async with asyncio.timeout(_HARD_S):
                    call.call = await asyncio.shield(call.fetching)
        if call.call is None:
            return
        if await self._cancelled(call.call, _SOFT_S, terminate=False):
            return
        log.warning("%s was not ended by cancelling it; its container is ended", call.key)
        gpu = _gpu(call.job)
        if gpu is not None and self.sessions.pop(gpu, None):
            self._changed()
        await self._cancelled(call.call, _HARD_S, terminate=True)

    async def _cancelled(self, call: Any, seconds: float, *, terminate: bool) -> bool:
        """Whether the call is over in time; one that Modal cannot be told to end is not."""
        try:
            async with asyncio.timeout(seconds):
                await call.cancel.aio(terminate_containers=terminate)
                with suppress(Exception):  # how a cancelled call ends is of no interest
                    await call.get.aio()
                return True
        except TimeoutError:
            return False
        except Exception as error:  # noqa: BLE001 - the other side notices that nobody is there
            log.warning("the call could not be cancelled: %s", error)
            return False

    def _begin(self, gpu: str | None) -> float:
        began = time.time()
        if gpu is not None and not self.options.restricted:
            session = self.sessions.get(gpu)
            if session is None or not session.warm(began):
                session = self.sessions[gpu] = Session(gpu, began)
            session.until = None
        return began

    def _end_of_run(self, gpu: str | None, began: float) -> None:
        session = self.sessions.get(gpu or "")
        if session is None:
            return
        now = time.time()
        session.runs += 1
        session.gpu_s += now - began
        session.until = now + self.options.spec.idle_s
        self._changed()


async def _sign(queue: modal.Queue, partition: str) -> None:
    """A sign of life every 5 s: without them the other side ends the work within 20 s."""
    while True:
        with suppress(Exception):  # the next one may come through
            await queue.put.aio(1, partition=partition)
        await asyncio.sleep(_SIGN_S)


def _request(job: c.Job, tree: closure.Closure, key: str) -> bytes:
    folders = {tree.root: ""} | tree.mapped
    return pack(
        {
            "job": asdict(replace(job, run=key)),
            "manifest": asdict(tree.manifest),
            "folders": folders,
            "contract": c.VERSION,
        }
    )


def _read(tree: closure.Closure, digests: Iterable[str]) -> dict[str, bytes]:
    """Raises ModalError where a file is gone or no longer what it was."""
    found: dict[str, bytes] = {}
    for digest in digests:
        content = tree.contents[digest]
        try:
            data = content if isinstance(content, bytes) else content.read_bytes()
        except OSError as error:
            raise ModalError(
                Trouble(
                    "infrastructure", f"{error.filename} cannot be read: {error.strerror}", "run it again"
                )
            ) from None
        if c.content_hash(data) != digest:
            raise ModalError(
                Trouble("infrastructure", f"{content} changed while it was read", "run it again", again=True)
            )
        found[digest] = zlib.compress(data, 1)
    return found


def _size(content: bytes | Path) -> int:
    if isinstance(content, bytes):
        return len(content)
    try:
        return content.stat().st_size
    except OSError:
        return 0


def _gpu(job: c.Job) -> str | None:
    """The GPU that a job is to have; compiling needs none."""
    return job.gpu if job.action == "run" else None


def _unreachable(error: BaseException) -> bool:
    return isinstance(error, Exception) and modal_errors.trouble(error).kind == "transport"


def _building_the_image() -> str:
    return "building the image on Modal, once: CUDA, torch and Triton are several GB, so some minutes"
