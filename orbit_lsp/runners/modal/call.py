"""One job on Modal: submitted, followed to its answer, or ended.

It is spawned: `spawn` gives an id while the call still waits for a GPU, so it can be cancelled there;
`remote` gives none before the container runs. Measured on the loopback (tests/modal_loopback), p50 of a
whole call without work, `spawn` against `remote`: 1 KB 5.9 and 5.1 ms, 20 KB 11.6 and 5.7 ms, 500 KB
16.3 and 15.0 ms. The step is at 8 KiB, where spawn goes through Modal's blob store; requests are
compressed, so that a source file of 20 KB stays below it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue as stdlib_queue
import secrets
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, TypeVar

from orbit_lsp import closure
from orbit_lsp.runners.events import Lines
from orbit_lsp.runners.modal import errors, gpu_names, payload
from orbit_lsp.runners.modal.deploy import within
from orbit_lsp.runners.modal.errors import DEPLOY, ModalError, Trouble
from orbit_lsp.runners.modal.pool import Pool
from orbit_lsp.runners.modal.sessions import Sessions
from orbit_remote.common import codec
from orbit_remote.common import messages as c
from orbit_remote.modal_app.image_spec import unpack
from orbit_remote.modal_app.signed_stream import Verifier

log = logging.getLogger("orbit.modal")

_SIGN_S = 5.0
_AWAY_S = 20.0
"""How long Modal may be out of reach while a call is there. The container ends the work of one who has given no
sign for as long; and Modal's own client would ask a connection that is dead for minutes."""
_POLL_S = 30.0
_DRAIN_S = 1.0
"""How long the last events may trail the return value, and the return value the last event."""
_SOFT_S = 5.0
"""Modal's client in the container takes a second between two cancellations, so of two clicks in a row the second
needs that long before anything ends."""
_HARD_S = 5.0
_TRIES = 3
_UNASKED = 1 << 20
"""Bytes of files that are sent along before the other side has said that it lacks them."""
_ROUNDS = 3

Sign = Callable[[], Coroutine[Any, Any, object]]
T = TypeVar("T")


class Call:
    """`events` ends with a Finished, unless the task of `perform` is cancelled; then comes `end`.

    `key` names the job on Modal, where other editors' `r1` run too.
    """

    def __init__(
        self, job: c.Job, pool: Pool, sessions: Sessions, known: set[str], *,
        built: bool = False,
    ) -> None:  # fmt: skip
        """`known` are hashes of files that the other side has; it grows. `built`: another container has
        just built the job.
        """
        self.job = job
        self.key = f"{job.run}-{uuid.uuid4().hex}"
        self._secret = secrets.token_hex(32)
        self.events: asyncio.Queue[c.Event] = asyncio.Queue()
        self.gpu = job.gpu if job.action not in ("compile", "build") else None
        self._pool = pool
        self._sessions = sessions
        self._known = known
        self.restricted = pool.options.restricted or job.restricted
        self._built = built
        self._spawning: asyncio.Future[Any] | None = None
        self._call: Any = None
        self._finished: c.Finished | None = None
        self._over = False
        self._container: str | None = None
        self.cost: c.Cost | None = None

    async def perform(self) -> None:
        try:
            finished = self._checked(await self._answer())
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - of Modal's client, or ours: a user gets a sentence
            log.warning("%s: %s: %s", self.key, type(error).__name__, error)
            failure = errors.trouble(error).failure()
            finished = c.failed(self.job.run, failure)
        self.events.put_nowait(replace(finished, cost=self.cost))

    def _stage(self, state: c.State, why: str = "") -> None:
        self.events.put_nowait(c.Stage(self.job.run, state, time.time(), why))

    # -- there --------------------------------------------------------------------------------

    async def _answer(self) -> c.Finished:
        options, author = self._pool.options, self._pool.author
        self._stage("queued", "collecting its files")
        account = self._pool.account
        finding = asyncio.to_thread(
            closure.closure, self.job, options.folders, data=options.data, limit=options.closure_bytes,
            read=author.read(self.job), python_path=author.python_path(),
        )  # fmt: skip
        tree, reached = await asyncio.gather(finding, account.client(), return_exceptions=True)
        if isinstance(tree, BaseException):
            raise tree
        if tree.refusal:
            failure = c.Failure("infrastructure", tree.refusal)
            return c.failed(self.job.run, failure)
        if isinstance(reached, BaseException):
            raise reached
        self._sessions.contact(reached)
        if account.deploying:
            self._stage("starting", _BUILDING)
        request = payload.request(self.job, tree, self.key, self._secret, built=self._built)
        wanted = self._unknown(tree.manifest.files.values())
        if not self.restricted and payload.size(tree, wanted) > _UNASKED:
            wanted = []  # it may have most of them from another day
        for _ in range(_ROUNDS):
            blobs = await asyncio.to_thread(payload.read, tree, wanted)
            answer = await self._attempt(request, blobs)
            if "missing" not in answer:
                break
            wanted = answer["missing"]
            self._known.difference_update(wanted)
            self._stage("starting", f"sending {len(wanted)} file{'s' if len(wanted) > 1 else ''}")
        else:
            text = "the container does not keep the files that it is sent"
            raise ModalError(Trouble("infrastructure", text, "run it again", again=True))
        finished = self._finished or self._read(answer)
        self._known |= set(tree.manifest.files.values())
        return replace(finished, remarks=(*finished.remarks, *tree.remarks))

    def _unknown(self, digests: Iterable[str]) -> list[str]:
        """A restricted container is new each time, and knows nothing."""
        return [one for one in dict.fromkeys(digests) if self.restricted or one not in self._known]

    async def _attempt(self, request: bytes, blobs: dict[str, bytes]) -> dict[str, Any]:
        """Submit and follow; where the app is not there, put it there first."""
        from modal import exception

        try:
            await self._submit(request, blobs)
        except exception.NotFoundError:
            self._stage("starting", _BUILDING)
            self._pool.forget()
            for one in self._sessions.all():  # its containers ended with the app
                self._sessions.lose(one.container)
            await self._pool.account.deploy()
            await self._submit(request, blobs)
        return await self._follow()

    async def _submit(self, request: bytes, blobs: dict[str, bytes]) -> None:
        """Raises what Modal's client raises, once trying again cannot help or has not.

        A submission that Modal took although it said otherwise is a second call with the same key: the
        same container answers it from the first; another one would do the work twice.
        """
        import tenacity

        def say(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            why = errors.trouble(error).message if error else ""
            self._stage("queued", f"{why}; trying again ({state.attempt_number} of {_TRIES - 1})")

        async for attempt in tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(_TRIES),
            wait=tenacity.wait_exponential_jitter(multiplier=0.5, max=4, jitter=0.5),
            retry=tenacity.retry_if_exception(errors.retryable),
            before_sleep=say,
            reraise=True,
        ):
            with attempt:
                handle = await self._pool.handle(self.gpu, restricted=self.restricted)
                arguments: list[Any] = [request, blobs]
                if not self.restricted:
                    arguments += [await self._pool.queue(), self.key]
                self._stage("queued", self._why_queued())
                # never cancelled: its id would be lost, and with it the way to end what it started
                self._spawning = spawning = asyncio.ensure_future(handle.run.spawn.aio(*arguments))
                try:
                    self._call = await self._while_there(asyncio.shield(spawning), await self._hello())
                except ModalError:
                    spawning.cancel()  # it must not begin once Modal is back; what has begun ends by itself
                    raise

    def _why_queued(self) -> str:
        if self.gpu is None:
            return "waiting for a machine without a GPU on Modal"
        if self._sessions.warm(self.gpu) and not self.restricted:
            return ""
        article = "an" if self.gpu[0] in "AHL" else "a"
        return f"waiting for {article} {self.gpu} on Modal since {time.strftime('%H:%M:%S')}"

    # -- and back -----------------------------------------------------------------------------

    async def _follow(self) -> dict[str, Any]:
        """The answer; {} where the events have told the end and the return value is late."""
        returned = asyncio.ensure_future(self._returned())
        helpers: list[asyncio.Future[None]] = []
        lost = False
        try:
            sign = await self._hello()
            ended: list[asyncio.Future[Any]] = [returned]
            if not self.restricted:
                queue = await self._pool.queue()
                helpers.append(asyncio.ensure_future(self._listen(queue)))
                ended.append(helpers[0])
                sign = partial(queue.put.aio, 1, partition=f"{self.key}/alive")
            await self._while_there(asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED), sign)
            if self._finished is not None and not returned.done():
                # the call's own end only tells that the container is free again
                await asyncio.wait([returned], timeout=_DRAIN_S)
                if not returned.done():
                    return {}
            answer = await self._while_there(returned, sign)
            self._sessions.answered(self.gpu, self.key, answer, alone=self.restricted)
            if helpers and "finished" in answer:
                await asyncio.wait(helpers[:1], timeout=_DRAIN_S)
            return answer
        except Exception as error:
            lost = not errors.unreachable(error)  # our code there returns what it has to say
            raise
        finally:
            # a cancelled get may have taken what nobody reads: this partition is done with
            for task in (returned, *helpers):
                task.cancel()
            await asyncio.gather(returned, *helpers, return_exceptions=True)
            self.cost = self._sessions.end(self.key) or self.cost
            if lost and self._container:
                self._sessions.lose(self._container)

    async def _returned(self) -> dict[str, Any]:
        """Asks again where the connection was lost, for as long as it is followed: the call goes on meanwhile."""
        import tenacity

        again = tenacity.AsyncRetrying(
            wait=tenacity.wait_exponential_jitter(multiplier=0.5, max=4, jitter=0.5),
            retry=tenacity.retry_if_exception(errors.unreachable),
        )
        return unpack(await again(self._call.get.aio))

    async def _hello(self) -> Sign:
        client: Any = await self._pool.account.client()
        return client.hello.aio

    async def _while_there(self, work: Awaitable[T], sign: Sign) -> T:
        """Raises ModalError (transport) where Modal is out of reach for `_AWAY_S` meanwhile."""
        doing, watching = asyncio.ensure_future(work), asyncio.ensure_future(_watch(sign))
        try:
            await asyncio.wait([doing, watching], return_when=asyncio.FIRST_COMPLETED)
            return doing.result() if doing.done() else watching.result()
        finally:
            for task in (doing, watching):
                task.cancel()
            await asyncio.gather(doing, watching, return_exceptions=True)

    async def _listen(self, queue: Any) -> None:
        """Tell the events as they come, up to the explicit end, or to a piece that is not the container's next one:
        from there on only the return value is believed, which comes over Modal's own call.
        """
        verifier, lines = Verifier(self._secret), defaultdict[bytes, Lines](Lines)
        while not self._over:
            try:
                pieces = await queue.get_many.aio(200, timeout=_POLL_S, partition=self.key)
            except stdlib_queue.Empty:
                continue
            except Exception as error:  # noqa: BLE001 - these events are lost; the return value is not
                log.warning("%s: events cannot be read: %s", self.key, error)
                await asyncio.sleep(1)
                continue
            for piece in pieces:
                try:
                    nonce, payload = verifier.open(piece)
                except ValueError as error:
                    log.warning("%s: its further events are not believed: %s", self.key, error)
                    return
                for line in lines[nonce].feed(payload):
                    self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            record = json.loads(line.decode("utf-8", "replace"))
            match record.get("kind"):
                case "container":
                    why = _AGAIN if self._container else "the container is there"
                    self._container = self._sessions.begin(self.gpu, self.key, record)
                    self._stage("starting", why)
                case "done":
                    self._over = True
                case "finished":
                    self._finished = self._finished_of(record)
                case _:
                    self.events.put_nowait(codec.decode_event(record | {"run": self.job.run}))
        except (ValueError, AttributeError) as error:  # of another version
            log.info("%s: an event was not understood: %s", self.key, error)

    def _read(self, answer: dict[str, Any]) -> c.Finished:
        if "finished" in answer:
            return self._finished_of(answer["finished"])
        if (spoken := answer.get("contract", c.VERSION)) != c.VERSION:
            text = f"the app on Modal speaks version {spoken} of the contract, this server {c.VERSION}"
            raise ModalError(Trouble("version", text, DEPLOY))
        text = answer.get("broken", "the container gave no answer")
        raise ModalError(Trouble("infrastructure", text, "run it again"))

    def _finished_of(self, record: dict[str, Any]) -> c.Finished:
        event = codec.decode_event(record | {"run": self.job.run})
        if not isinstance(event, c.Finished):
            raise ModalError(Trouble("version", "the container's answer is not one", DEPLOY))
        return event

    def _checked(self, finished: c.Finished) -> c.Finished:
        """A figure of another GPU than the one asked for is no figure."""
        device = finished.device
        if self.gpu is None or device is None or gpu_names.answers(self.gpu, device.name):
            return finished
        text = f"{self.gpu} was asked for, and Modal gave a container with {device.name}"
        remedy = "run it again; if it stays so, choose another GPU"
        failure = c.Failure("infrastructure", text, remedy, retryable=True)
        return c.failed(self.job.run, failure, device=device)

    # -- the end ------------------------------------------------------------------------------

    async def end(self) -> None:
        """Cancel, and return when nothing runs any more: softly, so that the container stays warm, and
        by ending the container where that does not help. `perform` has been cancelled before.
        """
        if self._call is None and self._spawning is not None:
            with suppress(Exception):
                async with asyncio.timeout(_HARD_S):
                    self._call = await asyncio.shield(self._spawning)
        if self._call is None or await self._cancelled(_SOFT_S, terminate=False):
            return
        log.warning("%s was not ended by cancelling it; its container is ended", self.key)
        if self._container:
            self._sessions.lose(self._container)
        await self._cancelled(_HARD_S, terminate=True)

    async def _cancelled(self, seconds: float, *, terminate: bool) -> bool:
        """Whether the call is over in time; one that Modal cannot be told to end is not."""
        try:
            async with asyncio.timeout(seconds):
                await self._call.cancel.aio(terminate_containers=terminate)
                with suppress(Exception):  # how a cancelled call ends is of no interest
                    await self._call.get.aio()
                return True
        except TimeoutError:
            return False
        except Exception as error:  # noqa: BLE001 - the other side notices that nobody is there
            log.warning("the call could not be cancelled: %s", error)
            return False


async def _watch(sign: Sign) -> NoReturn:
    """Give a sign of life every 5 s: without them the other side ends the work within 20 s. Raises ModalError
    once none has come through for as long.
    """
    through, pause = time.monotonic(), _SIGN_S
    while True:
        await asyncio.sleep(pause)
        begun = time.monotonic()
        try:
            await within(_SIGN_S, sign())
            through = begun
        except Exception as error:  # noqa: BLE001 - the next one may come through
            if not errors.unreachable(error):
                through = begun
            elif time.monotonic() - through >= _AWAY_S:
                text = f"Modal has not answered for {_AWAY_S:g} s"
                raise ModalError(Trouble("transport", text, _ALONE)) from None
        pause = max(0.0, begun + _SIGN_S - time.monotonic())


_BUILDING = "building the image on Modal, once: CUDA, torch and Triton are several GB, so some minutes"
_ALONE = "check the network connection; the container ends the run by itself"
_AGAIN = "its container was lost; the run starts again in another one"
