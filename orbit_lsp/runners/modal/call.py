"""One job on Modal: it is submitted, and followed to its answer, or ended.

It is spawned: `spawn` gives an id while the call still waits for a GPU, so it can be cancelled there; `remote` gives
none before the container runs. On the loopback (tests/modal_loopback) the p50 of a whole call without work was, for
`spawn` and `remote`: 1 KB 5.9 and 5.1 ms, 20 KB 11.6 and 5.7 ms, 500 KB 16.3 and 15.0 ms. The step is at 8 KiB, where
spawn goes through Modal's blob store. Requests are compressed, so that a source file of 20 KB stays below it.
"""

from __future__ import annotations

import asyncio
import logging
import queue as stdlib_queue
import secrets
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from orbit_lsp import closure
from orbit_lsp.runners.events import EventLines
from orbit_lsp.runners.modal import errors, payload, starts
from orbit_lsp.runners.modal.errors import DEPLOY, ModalError, ModalTrouble
from orbit_lsp.runners.modal.pool import ContainerPool
from orbit_lsp.runners.modal.sessions import ContainerSessions
from orbit_lsp.runners.modal.spawned import BUILDING, Spawned
from orbit_lsp.state import modal_gpus, units
from orbit_remote.common import codec, requests
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.modal_app.image_spec import QUEUED_S
from orbit_remote.modal_app.signed_stream import Verifier

log = logging.getLogger("orbit.modal")

_POLL_S = 30.0
_DRAIN_S = 1.0
"""How long the last events may trail the return value, and the return value the last event."""
_UNASKED = 1 << 20
"""Bytes of files that are sent along before the other side has said that it lacks them."""
_ROUNDS = 3
_INLINE = (2 << 20) - (64 << 10)
"""Bytes of a restricted run's request and files: its container fetches nothing, so they are in the call itself."""


class ModalCall(Spawned):
    """A job's call. `events` ends with a Finished, unless the task of `perform` is cancelled; then `end` is called.

    `key` names the job on Modal, where other editors have an `r1` too.
    """

    def __init__(
        self, job: Job, pool: ContainerPool, sessions: ContainerSessions, known: set[str], *,
        built: bool = False,
    ) -> None:  # fmt: skip
        """Make a call. `known` are hashes of files that the other side has; it grows. `built`: another container has
        just built the job.
        """
        gpu = job.gpu if job.action not in ("compile", "build") else None
        restricted = pool.options.restricted or job.restricted
        super().__init__(f"{job.run}-{uuid.uuid4().hex}", gpu, pool, restricted=restricted)
        self.job = job
        self._secret = secrets.token_hex(32)
        self.events: asyncio.Queue[c.Event] = asyncio.Queue()
        self._sessions = sessions
        self._known = known
        self._built = built
        self._finished: c.Finished | None = None
        self._over = False
        self._told_of_end = False
        self._container: str | None = None
        self._preempted = False
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

    def _finishing(self) -> None:
        """Report once that the program has ended. Its result is here, or comes with the end of the call. The end of a
        build is only a step.
        """
        if not self._told_of_end and self.job.action != "build":
            self._told_of_end = True
            self._stage("finishing")

    def _warm(self) -> bool:
        return self.gpu is not None and self._sessions.warm(self.gpu)

    def _container_ends(self) -> None:
        if self._container:
            self._sessions.lose(self._container)

    def _app_gone(self) -> None:
        for session in self._sessions.all():  # its containers ended with the app
            self._sessions.lose(session.container)

    # -- there --------------------------------------------------------------------------------

    async def _answer(self) -> c.Finished:
        options, author = self._pool.options, self._pool.author
        self._stage("syncing", "collecting its files")
        account = self._pool.account
        finding = asyncio.to_thread(
            closure.closure, self.job, options.folders, data=options.data, limit=options.closure_bytes,
            read=author.read(self.job), python_path=author.python_path(),
        )  # fmt: skip
        tree, reached = await asyncio.gather(finding, account.connected(), return_exceptions=True)
        if isinstance(tree, BaseException):
            raise tree
        if tree.refusal:
            failure = c.Failure("infrastructure", tree.refusal)
            return c.failed(self.job.run, failure)
        if isinstance(reached, BaseException):
            raise reached
        self._sessions.contact(reached)
        if account.deploying:
            self._stage("starting", BUILDING)
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
            self._stage("syncing", f"sending {len(wanted)} file{'s' if len(wanted) > 1 else ''}")
        else:
            text = "the container does not keep the files that it is sent"
            raise ModalError(ModalTrouble("infrastructure", text, "run it again", again=True))
        finished = self._finished or self._read(answer)
        self._finishing()
        self._known |= set(tree.manifest.files.values())
        return replace(finished, remarks=(*finished.remarks, *tree.remarks))

    def _unknown(self, digests: Iterable[str]) -> list[str]:
        """Return which contents the other side lacks. A restricted container is new each time, and has none."""
        return [digest for digest in dict.fromkeys(digests) if self.restricted or digest not in self._known]

    async def _attempt(self, request: bytes, blobs: dict[str, bytes]) -> dict[str, Any]:
        """Submit the job and follow it. If the app is not on Modal yet, put it there first."""
        if self.restricted and (size := len(request) + sum(map(len, blobs.values()))) > _INLINE:
            text = f"a restricted run may send {units.size(_INLINE)} of compressed files, and these are {units.size(size)}"
            remedy = "leave files out with `.orbitignore`, or run it without restriction"
            raise ModalError(ModalTrouble("infrastructure", text, remedy))
        await self._submit("run", [request, blobs])
        return await self._follow()

    # -- and back -----------------------------------------------------------------------------

    async def _follow(self) -> dict[str, Any]:
        """Return the answer. Return {} if the events have told the end and the return value is late."""
        returned = asyncio.ensure_future(self._returned())
        listening: list[asyncio.Future[None]] = []
        lost = False
        try:
            answer = await self._unless_failing(self._told(returned, listening))
            lost = "broken" in answer
            return answer
        except Exception as error:
            lost = not errors.unreachable(error)  # our code there returns what it has to say
            raise
        finally:
            # a cancelled get may have taken what nobody reads: this partition is done with
            for task in (returned, *listening):
                task.cancel()
            await asyncio.gather(returned, *listening, return_exceptions=True)
            self.cost = self._sessions.end(self.key) or self.cost
            if lost and self._container:
                self._sessions.lose(self._container)

    async def _told(
        self, returned: asyncio.Future[dict[str, Any]], listening: list[asyncio.Future[None]]
    ) -> dict[str, Any]:
        """Return the same, while the task that reports the events is in `listening`."""
        sign = await self._hello()
        if not self.restricted:
            queue = await self._pool.queue()
            listening.append(asyncio.ensure_future(self._listen(queue)))
            sign = partial(queue.put.aio, 1, partition=f"{self.key}/alive", partition_ttl=QUEUED_S)
        await self._while_there(
            asyncio.wait([returned, *listening], return_when=asyncio.FIRST_COMPLETED), sign
        )
        if self._finished is not None and not returned.done():
            # the call's own end only tells that the container is free again
            await asyncio.wait([returned], timeout=_DRAIN_S)
            if not returned.done():
                return {}
        answer = await self._while_there(returned, sign)
        self._sessions.answered(self.gpu, self.key, answer, alone=self.restricted)
        if listening and "finished" in answer:
            await asyncio.wait(listening, timeout=_DRAIN_S)
        return answer

    async def _listen(self, queue: Any) -> None:
        """Report the events as they come, up to the explicit end, or to a piece that is not the container's next one.
        From there on only the return value is believed, which comes over Modal's own call.
        """
        verifier, lines = Verifier(self._secret), defaultdict[bytes, EventLines](EventLines)
        while not self._over:
            try:
                pieces = await queue.get_many.aio(200, timeout=_POLL_S, partition=self.key)
            except stdlib_queue.Empty:
                continue
            except Exception as error:  # noqa: BLE001 - these events are lost; the return value is not
                log.warning("%s: events cannot be read: %s", self.key, error)
                if errors.missing(error):
                    self._pool.forget_queue(queue)
                    return
                await asyncio.sleep(1)
                continue
            for piece in pieces:
                try:
                    nonce, payload = verifier.open(piece)
                    heard = lines[nonce].feed(payload)
                except ValueError as error:
                    log.warning("%s: its further events are not believed: %s", self.key, error)
                    return
                for line in heard:
                    self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            record = codec.read_json(line.decode("utf-8", "replace"))
            match record.get("kind"):
                case "container":
                    before = self._container
                    self._container = self._sessions.begin(self.gpu, self.key, record)
                    again = before is not None and before != self._container
                    self.heard.word(lost=again and not self._preempted)
                    self._preempted = False
                    self._stage("starting", _AGAIN if before else "the container is there")
                case "preempted":
                    self._preempted = True
                case "done":
                    self._over = True
                case "finished":
                    self._finished = self._finished_of(record)
                    self._finishing()
                case _:
                    self.events.put_nowait(codec.decode_event(record | {"run": self.job.run}))
        except (ValueError, AttributeError, ModalError) as error:  # of another version
            log.info("%s: an event was not understood: %s", self.key, error)

    def _read(self, answer: dict[str, Any]) -> c.Finished:
        if "finished" in answer:
            return self._finished_of(answer["finished"])
        if (spoken := answer.get("contract", requests.VERSION)) != requests.VERSION:
            text = f"the app on Modal speaks version {spoken} of the messages, this server version {requests.VERSION}"
            raise ModalError(ModalTrouble("version", text, DEPLOY))
        if "broken" in answer:
            raise ModalError(starts.broken(answer, self._pool.account.known_name))
        raise ModalError(ModalTrouble("infrastructure", "the container gave no answer", "run it again"))

    def _finished_of(self, record: dict[str, Any]) -> c.Finished:
        event = codec.decode_event(record | {"run": self.job.run})
        if not isinstance(event, c.Finished):
            raise ModalError(ModalTrouble("version", "the container's answer is not valid", DEPLOY))
        return event

    def _checked(self, finished: c.Finished) -> c.Finished:
        """Check the result: a number from another GPU than the requested one is no result."""
        device = finished.device
        if self.gpu is None or device is None or modal_gpus.answers(self.gpu, device.name):
            return finished
        text = f"{self.gpu} was asked for, and Modal gave a container with {device.name}"
        remedy = "run it again; if it stays so, choose another GPU"
        failure = c.Failure("infrastructure", text, remedy, retryable=True)
        return c.failed(self.job.run, failure, device=device)


_AGAIN = "its container was lost; the run starts again in another one"
