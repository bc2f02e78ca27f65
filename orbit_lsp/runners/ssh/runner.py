"""Runs jobs on the author's own GPU on another machine: in the shared worker of that machine, reached by ssh, under
the interface of all runners.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools
import logging
import os
import platform
import statistics
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from orbit_lsp import closure
from orbit_lsp.runners import refusals, sent_files
from orbit_lsp.runners.ssh.connection import SshConnection, SshPlace
from orbit_lsp.runners.ssh.trouble import AGAIN, SshError
from orbit_lsp.runners.under_way import UnderWay
from orbit_remote.common import architectures, codec
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Job
from orbit_remote.modal_app.image_spec import pack

log = logging.getLogger("orbit.ssh")

_PIECE = 1 << 20
_ROUNDS = 4
_CANCEL_S = 30.0
TYPED_S = 0.15
"""The longest median of a compile while typing at which its errors are shown: after a longer one the text has changed."""
_THERE = "this machine"
"""What a worker calls the machine that it is on."""
_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class SshOptions:
    """Options of the runner. `folders` are the workspace's, `data` are patterns of data files that are sent too,
    `closure_bytes` is the most to send in all. `nvcc` is the host's; "" for the one that is found there.
    """

    place: SshPlace
    nvcc: str = ""
    folders: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    closure_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class _WaitingRequest:
    """A request without its answer yet: its events, and the files that the host may ask for."""

    events: asyncio.Queue[c.Event | SshError] = field(default_factory=asyncio.Queue)
    missing: asyncio.Queue[list[str]] = field(default_factory=asyncio.Queue)


def laptop() -> str:
    """Return a name of this user on this machine that says nothing of either."""
    user = os.getuid() if hasattr(os, "getuid") else ""
    text = f"{platform.node()}\0{Path.home()}\0{user}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class SshRunner:
    name = "ssh"

    def __init__(self, options: SshOptions, read: Callable[[Job], Sequence[str]] = lambda _: ()) -> None:
        """Make a runner. `read` returns the absolute paths that the last build of a job's file read."""
        self.options = options
        self._read = read
        self._asked: dict[str, _WaitingRequest] = {}
        self._typed_s: deque[float] = deque(maxlen=5)
        """How long the last answers about typed texts took."""
        self._jobs = UnderWay()
        self._connection = SshConnection(
            options.place, self._hear, self._lost, self._stage, lambda: bool(self._asked)
        )

    @property
    def host(self) -> str:
        return self.options.place.host

    @property
    def bytes_sent(self) -> int:
        """Return how many bytes of messages and files were sent."""
        return self._connection.bytes_sent

    def run(self, job: Job) -> AsyncGenerator[c.Event, None]:
        return self._jobs.counted(self._run(job))

    async def _run(self, job: Job) -> AsyncGenerator[c.Event, None]:
        if refused := refusals.no_path(job):
            yield c.failed(job.run, refused)
            return
        yield c.Stage(job.run, "starting", time.time(), f"on {self.host}")
        try:
            if job.gpu:  # it is one of several GPUs, whose architecture is not known yet
                job = replace(job, gpu=None, architecture=await self._architecture(job))
            tree, record = await self._packed(job)
            await self._connection.ready()
        except SshError as error:
            yield c.failed(job.run, error.failure())
            return
        if tree.refusal:
            yield c.failed(job.run, c.Failure("infrastructure", tree.refusal))
            return
        asked = self._asked[job.run] = _WaitingRequest()
        sending = asyncio.create_task(self._send_files(job.run, asked, tree), name="files")
        finished = False
        try:
            self._connection.send(record | {"kind": "job", "run": job.run})
            while not finished:
                event = await asked.events.get()
                if isinstance(event, SshError):
                    event = c.failed(job.run, event.failure())
                if isinstance(event, c.Finished):
                    finished = True
                    event = replace(event, remarks=(*event.remarks, *tree.remarks))
                yield event
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            if not finished:  # cancelled: the work must be over before this says so
                self._connection.send({"kind": "cancel", "run": job.run})
                await asyncio.shield(_ended(asked))
            self._asked.pop(job.run, None)

    async def _architecture(self, job: Job) -> str | None:
        """Return the architecture of the host's GPU, or the job's own if the host does not say. Raises SshError."""
        machine = await self.reached()
        devices = machine.devices if machine else ()
        own = next((device for device in devices if device.index == job.device), None)
        return architectures.architecture_of(own.capability) if own and own.capability else job.architecture

    def _of_host(self, finished: c.Finished) -> c.Finished:
        """Rewrite a result so that its remarks name the host: there, "this machine" means the host."""
        failure = finished.failure and self._named(finished.failure)
        of_host = tuple(remark.replace(_THERE, self.host) for remark in finished.remarks)
        return replace(finished, failure=failure, remarks=of_host)

    def _named(self, failure: c.Failure) -> c.Failure:
        if failure.category != "infrastructure":
            return failure
        doctor = f"`orbit-lsp doctor --runner ssh:{self.host}`"
        remedy = failure.remedy.replace(_THERE, self.host).replace("`orbit-lsp doctor`", doctor)
        if remedy and self.host not in remedy:
            remedy = f"on {self.host}: {remedy}"
        message = failure.message.replace(_THERE, self.host).replace("setting `nvcc`", "setting `ssh.nvcc`")
        return replace(failure, message=message, remedy=remedy)

    async def _packed(self, job: Job, *, start: bool = False) -> tuple[closure.Closure, dict[str, Any]]:
        """Return the job's files, and the job as it is sent."""
        options = self.options
        tree = await asyncio.to_thread(
            closure.closure,
            job,
            options.folders,
            data=options.data,
            limit=options.closure_bytes,
            read=self._read(job),
        )
        message = sent_files.message(job, tree, job.run) | {"nvcc": options.nvcc, "start": start}
        packed = await asyncio.to_thread(pack, message)
        return tree, {"packed": base64.b64encode(packed).decode()}

    async def _send_files(self, run: str, asked: _WaitingRequest, tree: closure.Closure) -> None:
        """Send what the host asks for, for as long as it asks."""
        for _ in range(_ROUNDS):
            wanted = [digest for digest in await asked.missing.get() if digest in tree.contents]
            number = f"{len(wanted)} file{'s' * (len(wanted) != 1)}"
            asked.events.put_nowait(c.Stage(run, "starting", time.time(), f"sending {number} to {self.host}"))
            for digest in wanted:
                try:
                    contents = await asyncio.to_thread(sent_files.read, tree, [digest])
                except sent_files.SentFileError as error:
                    asked.events.put_nowait(SshError(str(error), AGAIN, passes=error.again))
                    self._connection.send({"kind": "cancel", "run": run})
                    return
                content = contents[digest]
                for at in range(0, len(content), _PIECE):
                    data = base64.b64encode(content[at : at + _PIECE]).decode()
                    last = at + _PIECE >= len(content)
                    self._connection.send(
                        {"kind": "piece", "run": run, "digest": digest, "data": data, "last": last}
                    )
                    await self._connection.sent()
            self._connection.send({"kind": "piece", "run": run, "done": True})
        self._connection.send({"kind": "cancel", "run": run})
        asked.events.put_nowait(SshError(f"{self.host} does not keep the files that it is sent", AGAIN))

    # -- what else is asked ---------------------------------------------------------------------------

    def locate(self, run: str) -> None:
        """Make the run end now, as if it had reached its limit."""
        if run in self._asked:
            self._connection.send({"kind": "locate", "run": run})

    async def machine(self) -> c.Machine | None:
        """Return what the host has. Return None if it is not reached; `reached` says why."""
        try:
            return await self.reached()
        except SshError as error:
            log.warning(
                "the host of the setting `runner` is not reached: %s",
                error.message.replace(self.host, "HOST"),
            )
            return None

    async def reached(self) -> c.Machine | None:
        """Return what the host has. Raises SshError."""
        run = f"machine-{next(_ids)}"
        event = await self._answer(run, {"kind": "machine", "run": run, "nvcc": self.options.nvcc})
        if not isinstance(event, c.Machine):
            return None
        return replace(event, problems=tuple(map(self._named, event.problems)))

    async def _answer(self, run: str, record: dict[str, Any], tree: closure.Closure | None = None) -> c.Event:
        """Return the one event that answers a request. Raises SshError."""
        await self._connection.ready()
        asked = self._asked[run] = _WaitingRequest()
        sending = asyncio.create_task(self._send_files(run, asked, tree), name="files") if tree else None
        answered = False
        try:
            self._connection.send(record)
            while True:
                event = await asked.events.get()
                if isinstance(event, c.Stage):
                    continue
                answered = True
                if isinstance(event, SshError):
                    raise event
                return event
        finally:
            if sending:
                sending.cancel()
            if not answered:
                self._connection.send({"kind": "cancel", "run": run})
            self._asked.pop(run, None)

    async def typed(self, job: Job, *, start: bool) -> c.Built | None:
        """Return what the host's device front end says of a CUDA file that is typed. Return None if that is not
        known, or comes too late. With `start` the host is asked nevertheless, because it may have become faster.
        """
        if refusals.no_path(job) or (self._late() and not start):
            return None
        began = time.monotonic()
        tree, record = await self._packed(job, start=start)
        if tree.refusal:
            return None
        try:
            event = await self._answer(job.run, record | {"kind": "typing", "run": job.run}, tree)
        except SshError:
            return None
        if not isinstance(event, c.Built) or not event.complete:
            return None
        self._typed_s.append(time.monotonic() - began)
        return None if self._late() else event

    def _late(self) -> bool:
        return bool(self._typed_s) and statistics.median(self._typed_s) > TYPED_S

    async def warm(self, language: str) -> None:
        try:
            await self._connection.ready()
        except SshError:  # the first job says so
            return
        self._connection.send({"kind": "warm", "run": f"warm-{next(_ids)}", "language": language})

    async def retire(self) -> None:
        """Close once no job is under way, or at once if the wait is cancelled."""
        try:
            await self._jobs.all_ended()
        finally:
            await asyncio.shield(self.close())

    async def close(self) -> None:
        await self._connection.close()

    # -- what comes ------------------------------------------------------------------------------------

    def _hear(self, record: dict[str, Any]) -> None:
        asked = self._asked.get(str(record.get("run", "")))
        if asked is None:
            return
        if record.get("kind") == "missing":
            asked.missing.put_nowait([str(digest) for digest in record.get("digests", ())])
            return
        try:
            event = codec.decode_event(record)
            if isinstance(event, c.Stage):  # its clock may be another
                event = replace(event, at=time.time())
            asked.events.put_nowait(self._of_host(event) if isinstance(event, c.Finished) else event)
        except ValueError as error:
            log.error("an event of the host was not understood: %s", str(error).replace("\n", " "))
            text = f"{self.host} gave an answer that was not understood"
            asked.events.put_nowait(SshError(text, "run it again; see the server's log"))

    def _lost(self, error: SshError) -> None:
        for asked in self._asked.values():
            asked.events.put_nowait(error)

    def _stage(self, why: str) -> None:
        for run, asked in self._asked.items():
            asked.events.put_nowait(c.Stage(run, "starting", time.time(), why))


async def _ended(asked: _WaitingRequest) -> None:
    """Wait until the host says that a cancelled job is over, or is out of reach: then it ends the job itself."""
    try:
        async with asyncio.timeout(_CANCEL_S):
            while not isinstance(await asked.events.get(), (c.Finished, SshError)):
                pass
    except TimeoutError:
        log.error("the host did not end a cancelled job within %g s", _CANCEL_S)
