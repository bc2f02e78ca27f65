"""Stands for one of the author's programs on this machine. It hands jobs to the shared worker, and keeps them while
the link is down.

A proxy ends, with its jobs, when its client says so, or has given no sign of life for `--keep-s` seconds. The client
sends: `job`, `typing`, `piece` (of a file's content), `notebook` and its `pieces`, `bye`, and requests of the worker
unchanged. It gets: the worker's events, `missing`, which names contents that have to be sent before a job can begin,
and `pieces`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import time
from base64 import b64decode
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from orbit_remote.common import codec, limits, requests
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Cancel, Job, Locate, Manifest, Probe, Request, Typing, Warm
from orbit_remote.process import disk_space, process_groups, worker_socket
from orbit_remote.process.author_paths import Paths
from orbit_remote.process.worker_socket import LINE_LIMIT, WorkerError
from orbit_remote.ssh_host import notebooks, relay
from orbit_remote.ssh_host.notebooks import Notebook
from orbit_remote.ssh_host.numbered_lines import SIGN, LineInbox, LineOutbox, acknowledged, acknowledgement
from orbit_remote.ssh_host.trees import LentTree, Trees

_END_S = 10.0
_ROUNDS = 3
_BEHIND = 256 << 20
"""Bytes of events that the client has not taken, at which the proxy ends: the longest event, some times."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="orbit_remote proxy")
    parser.add_argument("--listen", type=int, required=True, metavar="DESCRIPTOR")
    parser.add_argument("--proxy", required=True, help="its name, which its client made up")
    parser.add_argument("--home", type=Path, required=True, help="the folder of all that is kept here")
    parser.add_argument("--python", default=sys.executable, help="what the worker runs in")
    parser.add_argument("--laptop", required=True, help="the name of the author's machine, without a meaning")
    parser.add_argument("--client", default="", help="the name that others see who wait for its jobs")
    parser.add_argument("--release", default="")
    parser.add_argument("--environment", default="", help="further variables passed to jobs, by comma")
    parser.add_argument("--cache-bytes", type=int, default=2 << 30)
    parser.add_argument("--spare-idle-s", type=float, default=300.0)
    parser.add_argument("--keep-s", type=float, default=45.0)
    options = parser.parse_args(arguments)
    asyncio.run(_Proxy(options).serve())
    os._exit(0)


class _Proxy:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._token = os.urandom(8).hex()
        self._path = relay.folder() / f"{options.proxy}.proxy"
        self._trees = Trees(options.home, options.laptop)
        self._inbox, self._outbox = LineInbox(), LineOutbox()
        self._writer: asyncio.StreamWriter | None = None
        self._sign = time.monotonic()
        self._over = asyncio.Event()
        self._ending = False
        self._jobs: dict[str, _Job] = {}
        self._pieces: dict[str, list[bytes]] = {}
        self._notebooks: dict[str, Notebook] = {}
        self._link: _Link | None = None
        self._linking = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Serve until the client is gone for good and nothing of it runs."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._over.set)
        listener = socket.socket(fileno=self._options.listen)
        server = await asyncio.start_unix_server(self._accept, sock=listener, limit=LINE_LIMIT)
        await asyncio.to_thread(self._trees.sweep)
        await asyncio.to_thread(notebooks.sweep, self._options.home)
        while not self._over.is_set():
            left = self._sign + self._options.keep_s - time.monotonic()
            if left <= 0:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._over.wait()
        self._ending = True
        server.close()
        relay.forget(self._path)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if self._link:
            await self._link.leave()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._writer:
            self._writer.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._options.keep_s):
                record = codec.read_json(await reader.readline())
            _check(record)
            if self._writer:
                self._writer.close()
            self._writer = writer
            self._sign = time.monotonic()
            self._outbox.has_come(int(record["seen"]))
            writer.write(_line({"kind": "welcome", "seen": self._inbox.last, "token": self._token}))
            writer.writelines(self._outbox.waiting())
            while (line := await reader.readline()).endswith(b"\n") and self._writer is writer:
                self._sign = time.monotonic()
                self._hear(line, writer)
        except (ValueError, KeyError, TypeError, AttributeError, TimeoutError, ConnectionError) as error:
            print(f"orbit proxy: a connection was closed: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            if self._writer is writer:
                self._writer = None
            writer.close()

    def _hear(self, line: bytes, writer: asyncio.StreamWriter) -> None:
        """Raises ValueError."""
        if line == SIGN:
            writer.write(SIGN)
        elif line.startswith(b"="):
            self._outbox.has_come(acknowledged(line))
        elif (message := self._inbox.take(line)) is not None:
            self._begin(codec.read_json(message.decode("utf-8", "surrogatepass")))
            writer.write(acknowledgement(self._inbox))

    def _say(self, record: dict[str, Any]) -> None:
        line = self._outbox.add(_line(record)[:-1])
        if self._writer and not self._writer.transport.is_closing():
            self._writer.write(line)
        if self._outbox.size > _BEHIND:
            print("orbit proxy: the client does not take its events", file=sys.stderr)
            self._over.set()

    # -- what is asked --------------------------------------------------------------------------------

    def _begin(self, record: dict[str, Any]) -> None:
        run = str(record.get("run", ""))
        match record.get("kind"):
            case "bye":
                self._over.set()
            case "piece":
                self._take_piece(record)
            case "job" | "typing":
                job = self._jobs[run] = _Job(run, record)
                self._start(job, self._prepare(job))
            case "notebook":
                job = self._jobs[run] = _Job(run, record)
                self._start(job, self._keep_notebook(job))
            case "pieces":
                if notebook := self._notebooks.get(run):
                    notebook.put(record["data"])
            case "cancel":
                self._cancel(run)
            case "machine":
                job = self._jobs[run] = _Job(run, record)
                self._start(job, self._pass_on(job, Probe(run, record.get("nvcc") or None)))
            case "warm":
                language = "triton" if record.get("language") == "triton" else "cuda"
                job = _Job(run, record)
                self._start(job, self._pass_on(job, Warm(run, language)))
            case "locate":
                if self._link and run in self._jobs:
                    self._link.send(Locate(run))
            case _:
                raise ValueError(f"{record.get('kind')!r:.60} is nothing that a proxy does")

    def _start(self, job: _Job, work: Any) -> None:
        task = asyncio.ensure_future(self._guarded(job, work))
        job.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, job: _Job, work: Any) -> None:
        """Do a job's work. Whatever prevents it becomes the job's answer."""
        try:
            await work
        except WorkerError as error:
            self._fail(job, c.Failure("infrastructure", error.text, error.remedy, retryable=not error.remedy))
        except OSError as error:
            self._fail(job, disk_space.unusable(error))
        except (ValueError, LookupError, TypeError, KeyError) as error:
            self._fail(job, c.Failure("infrastructure", f"the job's files cannot be made here: {error}", ""))

    async def _prepare(self, job: _Job) -> None:
        """Raises OSError, ValueError, LookupError, WorkerError."""
        asked = codec.read_json(codec.inflate(b64decode(job.record["packed"]), limits.EVENTS))
        manifest = codec.build(Manifest, asked["manifest"])
        text = str(asked["job"]["text"]).encode("utf-8", "replace")  # as it is in the author's closure
        if (digest := c.content_hash(text)) in manifest.files.values():  # then nobody has to ask for it
            await asyncio.to_thread(self._trees.store.put, digest, text)
        for _ in range(_ROUNDS):
            missing = await asyncio.to_thread(self._trees.store.missing, manifest)
            if not missing:
                with suppress(LookupError):  # another proxy's store has just removed one
                    job.tree = await self._taken(manifest)
                    break
            job.complete = asyncio.get_running_loop().create_future()
            self._say({"kind": "missing", "run": job.run, "digests": missing})
            await job.complete
        if job.tree is None:
            raise ValueError("the store does not keep what it is sent")
        root = str(job.tree.path)
        pairs = cast("dict[str, str]", asked["folders"])
        job.paths = Paths(
            tuple((author, f"{root}/{place}" if place else root) for author, place in pairs.items())
        )
        wanted = codec.build(Job, asked["job"])
        there = replace(job.paths.job(wanted, root), device=wanted.device, nvcc=asked.get("nvcc") or None)
        if there.start.through == "exec" and not there.is_script:
            await asyncio.to_thread(os.chmod, there.path, 0o755)
        typing = job.record["kind"] == "typing"
        await self._pass_on(job, Typing(job.run, there, bool(asked.get("start"))) if typing else there)

    async def _taken(self, manifest: Manifest) -> LentTree:
        """Raises what `Trees.take` raises."""
        taking = asyncio.ensure_future(asyncio.to_thread(self._trees.take, manifest))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(lambda done: done.exception() or done.result().give_back())
            raise

    async def _pass_on(self, job: _Job, request: Request) -> None:
        """Raises WorkerError, OSError."""
        async with self._linking:
            if self._link is None or self._link.gone:
                self._link = _Link(await worker_socket.attach(self._wanted()), self._event, self._lost)
        self._link.send(request)
        job.passed = True

    def _wanted(self) -> worker_socket.WantedWorker:
        options = self._options
        passed = tuple(name for name in options.environment.split(",") if name)
        cache = options.home / "cache"
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        return worker_socket.WantedWorker(
            options.python, str(cache), _variables(), passed, options.cache_bytes, options.spare_idle_s,
            options.client, options.release,
        )  # fmt: skip

    async def _keep_notebook(self, job: _Job) -> None:
        """Raises OSError, KeyError."""
        notebook = self._notebooks[job.run] = Notebook(
            lambda data: self._say({"kind": "pieces", "run": job.run, "data": data})
        )
        try:
            await notebook.keep(self._options.home, self._options.python, job.record, _variables())
        finally:
            del self._notebooks[job.run]
            self._forget(job)

    def _take_piece(self, record: dict[str, Any]) -> None:
        """Take a part of a file's content. With the last part it goes into the store. `run` waits for the contents up
        to `done`.
        """
        if digest := record.get("digest"):
            self._pieces.setdefault(digest, []).append(b64decode(record["data"]))
            if record.get("last"):
                content = codec.inflate(b"".join(self._pieces.pop(digest)), limits.TRAVELLING)
                try:
                    self._trees.store.put(digest, content)
                except OSError as error:
                    if job := self._jobs.get(str(record.get("run", ""))):
                        self._fail(job, disk_space.unusable(error))
        job = self._jobs.get(str(record.get("run", "")))
        if record.get("done") and job and job.complete and not job.complete.done():
            job.complete.set_result(None)

    def _cancel(self, run: str) -> None:
        job = self._jobs.get(run)
        if job is None:
            return
        if job.passed and self._link:
            self._link.send(Cancel(run))
        elif job.task:
            job.task.cancel()
            self._fail(job, c.Failure("cancelled", "cancelled by the user"))

    # -- what comes back ------------------------------------------------------------------------------

    def _event(self, event: dict[str, Any]) -> None:
        run = str(event.get("run", ""))
        job = self._jobs.get(run)
        if job is None or self._ending:  # that these jobs were cancelled is not its user's doing
            return
        if event.get("kind") == "debugger":  # its address is of this machine
            return
        self._say(job.paths.event(event))
        if event["kind"] == "finished" or (job.record["kind"], event["kind"]) in _LAST:
            self._forget(job)

    def _fail(self, job: _Job, failure: c.Failure) -> None:
        if self._jobs.get(job.run) is job:
            self._say(codec.read_json(c.encode(c.failed(job.run, failure))))
            self._forget(job)

    def _forget(self, job: _Job) -> None:
        self._jobs.pop(job.run, None)
        if job.tree:
            job.tree.give_back()
            job.tree = None

    def _lost(self, why: str) -> None:
        failure = c.Failure("infrastructure", why, "run it again", retryable=True)
        for job in [each for each in self._jobs.values() if each.passed]:
            self._fail(job, failure)


_LAST = {("typing", "built"), ("machine", "machine")}
"""(what was asked, the event that answers it)"""


def _check(record: dict[str, Any]) -> None:
    """Raises ValueError for a client of another version."""
    if record.get("version") != requests.VERSION:
        raise ValueError(f"it speaks version {record.get('version')}")


def _variables() -> dict[str, str]:
    """Return the environment of this login, without the folder that is only ours."""
    return {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}


class _Job:
    """A request on its way to the worker and back."""

    def __init__(self, run: str, record: dict[str, Any]) -> None:
        self.run = run
        self.record = record
        self.paths = Paths(())
        self.tree: LentTree | None = None
        self.complete: asyncio.Future[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self.passed = False


class _Link:
    """The connection to the worker."""

    def __init__(self, attached: worker_socket.Attached, event: Any, lost: Any) -> None:
        self._attached = attached
        self._event, self._lost = event, lost
        self._groups: set[int] = set()
        self._left = False
        self.gone = False
        self._reading = asyncio.ensure_future(self._read())

    def send(self, request: Request) -> None:
        with suppress(ConnectionError, RuntimeError):  # gone: the reader says so
            self._attached.writer.write(c.encode(request).encode("utf-8", "surrogatepass") + b"\n")

    async def leave(self) -> None:
        """Close our end of the connection. The worker closes its end when it has ended our jobs."""
        self._left = True
        with suppress(OSError, RuntimeError):
            self._attached.writer.write_eof()
        await asyncio.wait([self._reading], timeout=_END_S)

    async def _read(self) -> None:
        with suppress(ValueError, ConnectionError):
            async for line in self._attached.reader:
                event = codec.read_json(line.decode("utf-8", "surrogatepass"))
                if event.get("kind") == "group":
                    (self._groups.add if event["alive"] else self._groups.discard)(event["pgid"])
                else:
                    self._event(event)
        self.gone = True
        if self._left:
            return
        for group in self._groups:
            process_groups.kill_group(group)
        if not process_groups.alive(self._attached.welcome.pid):
            await asyncio.to_thread(process_groups.end_marked, self._attached.welcome.mark)
        self._lost(f"the worker process there ended unexpectedly; its log was {self._attached.welcome.log}")


def _line(record: dict[str, Any]) -> bytes:
    return (
        json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"
    )
