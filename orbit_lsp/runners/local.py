"""Runs jobs on this machine's own compiler and GPU, through a worker process. That is the one that this user's
clients share, or one of this process's own that ends with it.

The worker runs in the Python that has the user's torch and triton. It is started by the file
`orbit_remote/__main__.py`, so that none of the server's own packages are on its path.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import select
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from orbit_lsp import __version__
from orbit_lsp.runners import refusals, shared_worker
from orbit_lsp.runners.shared_worker import LINE_LIMIT, WorkerError
from orbit_lsp.runners.under_way import UnderWay
from orbit_lsp.state.user_folders import cache_folder
from orbit_remote import MAIN
from orbit_remote.common import codec, limits
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.packages import installing
from orbit_remote.common.requests import Cancel, Job, Locate, Probe, Request, Typing, Warm
from orbit_remote.process import large_blocks
from orbit_remote.process.process_groups import (
    MARK,
    Continued,
    alive,
    end_marked,
    exit_status,
    kill_group,
    new_mark,
)

log = logging.getLogger("orbit.worker")

_PIPES_S = 1.0
_CLOSE_S = 3.0
_DEATH_S = 2.0
_CANCEL_S = 30.0  # longer than a worker waits for what it has killed
_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """How a worker is started or attached. Another value needs another worker, or attaching again.

    `shared`: use the worker that all clients of this user share, if that is possible. Other clients see this one by
    the name `client`, as in *Neovim*.
    """

    python: str = sys.executable
    cache: str = ""
    cache_bytes: int = 2 << 30
    spare_idle_s: float = 300
    environment: tuple[str, ...] = ()
    nvcc: str | None = None
    shared: bool = True
    client: str = "orbit-lsp"
    packages: str = ""
    """How the Python gets packages, where installing them is not the way (`installing.INSTEAD`)."""


def _writable(folder: Path) -> Path:
    """Return `folder`, or one under the system's temporary folder if it cannot be written. Its content is run, so it
    has to be the user's own. Raises WorkerError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return _own(folder)
    except OSError:
        fallback = (
            Path(tempfile.gettempdir()) / f"orbit-lsp-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
        )
        fallback.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _own(fallback)


def _own(folder: Path) -> Path:
    """Return the folder. Raises WorkerError if others may have written its content, as after `sudo -E` with another
    user's home folder.
    """
    if os.name != "posix":
        return folder
    status = folder.stat()
    why = ""
    if status.st_uid != os.getuid():
        why = f"belongs to another user (uid {status.st_uid})"
    elif status.st_mode & stat.S_IWOTH:
        why = f"can be written by every user (its permissions are {stat.S_IMODE(status.st_mode):o})"
    if why:
        raise WorkerError(f"the cache {folder} {why}", "set XDG_CACHE_HOME to a folder of your own")
    return folder


class _Pipes:
    """A worker of this runner's own, over pipes. It ends with the runner, and with this process."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        assert process.stdout is not None
        assert process.stdin is not None
        self._process = process
        self.pid = process.pid
        self._mark = mark
        self.reader = process.stdout
        self.writer = process.stdin
        self._log = asyncio.ensure_future(self._read_log())

    @classmethod
    async def start(cls, options: LocalOptions, cache: Path) -> _Pipes:
        command = [
            options.python, "-P", str(MAIN), "worker",
            "--cache", str(cache),
            "--cache-bytes", str(options.cache_bytes),
            "--spare-idle-s", str(options.spare_idle_s),
            "--environment", ",".join(options.environment),
            "--author-python", sys.executable,
            "--client", options.client,
            *(("--ends-with-parent",) if threading.current_thread() is threading.main_thread() else ()),
        ]  # fmt: skip
        mark = new_mark()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=LINE_LIMIT,
                start_new_session=os.name == "posix",
                env=_variables(options.packages) | {MARK: mark},
            )
        except OSError as error:
            raise WorkerError(
                f"the Python of the worker, {options.python}, cannot be started: {error.strerror or error}; "
                "set `orbit.python` to a Python 3.11 or newer"
            ) from None
        return cls(process, mark)

    async def death(self, groups: set[int]) -> WorkerError:
        """End what the worker left, once its stream has ended, and say how it ended."""
        status = await exit_status(self._process)
        for pgid in groups:
            kill_group(pgid)
        if status:
            await asyncio.to_thread(end_marked, self._mark)
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
        return WorkerError(f"the worker process ended unexpectedly ({how}); its log is in the server's log")

    def leave(self) -> None:
        """Ask the worker to end its jobs. Its stream ends after that."""
        self.writer.close()

    def kill(self) -> None:
        kill_group(self._process.pid)

    async def forget(self) -> None:
        with suppress(TimeoutError):  # what it has left may hold its standard error
            async with asyncio.timeout(_PIPES_S):
                await self._process.wait()  # for its pipes too, which a loop that ends would leave open
        self._log.cancel()

    async def _read_log(self) -> None:
        assert self._process.stderr is not None
        with suppress(ValueError, ConnectionError):
            async for line in self._process.stderr:
                log.info("%s", line.decode(errors="replace").rstrip())


class _Socket:
    """The worker that this user's clients share. It stays when the runner leaves, without the runner's jobs."""

    def __init__(self, attached: shared_worker.Attached) -> None:
        self.reader = attached.reader
        self.writer = attached.writer
        self._welcome = attached.welcome
        self.pid = attached.welcome.pid
        self._left = False
        self._process: int | None = None
        with suppress(OSError):  # it has gone already: its stream ends next
            self._process = os.pidfd_open(attached.welcome.pid)

    @classmethod
    async def attach(cls, options: LocalOptions, cache: Path) -> _Socket:
        wanted = shared_worker.WantedWorker(
            options.python,
            str(cache),
            _variables(options.packages),
            options.environment,
            options.cache_bytes,
            options.spare_idle_s,
            options.client,
            __version__,
        )
        return cls(await shared_worker.attach(wanted))

    async def death(self, groups: set[int]) -> WorkerError:
        """Say how the worker ended, as in `_Pipes`. A worker that has only dropped this client goes on for others."""
        if self._left:
            return WorkerError("the runner is closed")
        if self._process is None:
            gone = not alive(self._welcome.pid)
        else:
            gone = await asyncio.to_thread(_ended_soon, self._process)
        for pgid in groups:
            kill_group(pgid)
        if not gone:
            return WorkerError(f"the worker has closed the connection; its log is {self._welcome.log}")
        await asyncio.to_thread(end_marked, self._welcome.mark)
        return WorkerError(f"the worker process ended unexpectedly; its log is {self._welcome.log}")

    def leave(self) -> None:
        """Close our end of the connection. The worker closes its end when it has ended this runner's jobs."""
        self._left = True
        with suppress(OSError, RuntimeError):
            self.writer.write_eof()

    def kill(self) -> None:
        """Drop the connection. The worker itself goes on: other clients use it too."""
        self.writer.transport.abort()

    async def forget(self) -> None:
        self.writer.close()
        if self._process is not None:
            os.close(self._process)
            self._process = None


class _LocalWorker:
    """One worker, with queues for the jobs that wait for its events."""

    def __init__(self, link: _Pipes | _Socket) -> None:
        self._link = link
        self.jobs: dict[str, asyncio.Queue[c.Event | WorkerError]] = {}
        self._groups: set[int] = set()
        self.gone: WorkerError | None = None
        self._continued = Continued(link.pid, lambda: self.gone is None and bool(self.jobs))
        self._reading = asyncio.ensure_future(self._read_events())

    @classmethod
    async def start(cls, options: LocalOptions) -> _LocalWorker:
        """Raises WorkerError."""
        cache = _writable(Path(options.cache) if options.cache else cache_folder())
        if options.shared and shared_worker.possible():
            try:
                return cls(await _Socket.attach(options, cache))
            except OSError as error:  # such as a full disk; jobs can do without a socket
                log.warning("the worker cannot be shared: %s", error)
        return cls(await _Pipes.start(options, cache))

    def send(self, request: Request | bytes) -> None:
        """Send a request, which may be a line from `_encoded`."""
        line = request if isinstance(request, bytes) else _encoded(request)
        with suppress(ConnectionError, RuntimeError):  # gone: the reader says so
            self._link.writer.write(line)

    def expect(self, run: str) -> asyncio.Queue[c.Event | WorkerError]:
        events: asyncio.Queue[c.Event | WorkerError] = asyncio.Queue()
        self.jobs[run] = events
        self._continued.watch()
        return events

    async def close(self) -> None:
        """Ask the worker to end this runner's jobs. Then leave it, or end it if it belongs to this runner alone."""
        self._link.leave()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.shield(self._reading)
        except TimeoutError:
            await self.end()
        await self._link.forget()

    async def end(self) -> None:
        """End the worker at once: it has not ended a job that it should have ended."""
        self._link.kill()
        await asyncio.shield(self._reading)

    async def _read_events(self) -> None:
        try:
            async for line in self._link.reader:
                self._dispatch(line)
        except (ValueError, ConnectionError) as error:  # a line over the limit, or a broken pipe
            log.error("the worker's events cannot be read: %s", error)
            self._link.kill()
        self.gone = await self._link.death(self._groups)
        self._groups.clear()
        for events in self.jobs.values():
            events.put_nowait(self.gone)

    def _dispatch(self, line: bytes) -> None:
        try:
            # half a surrogate pair, as in a user's own message, is text to Python and not to JSON
            event = codec.decode_event(
                codec.read_json(line.decode("utf-8", "surrogatepass").encode("utf-8", "replace"))
            )
        except ValueError as error:
            log.error("an event of the worker was not understood: %s", str(error).replace("\n", " "))
            # whoever waits for it must not wait for ever
            broken = WorkerError("the worker gave an answer that was not understood; see the server's log")
            if (run := _run_of(line)) in self.jobs:
                self.jobs[run].put_nowait(broken)
            return
        if isinstance(event, c.Group):
            (self._groups.add if event.alive else self._groups.discard)(event.pgid)
        elif events := self.jobs.get(event.run):
            if isinstance(event, c.Finished) and event.failure:
                remedy = installing.located(event.failure.remedy)
                event = replace(event, failure=replace(event.failure, remedy=remedy))
            events.put_nowait(event)


def _variables(packages: str = "") -> dict[str, str]:
    """Return the part of this process's environment that a worker gets. It has no Modal credentials, which no job
    needs.
    """
    own = {installing.INSTEAD: packages} if packages else {}
    return {name: value for name, value in os.environ.items() if not name.startswith("MODAL_")} | own


def _ended_soon(process: int) -> bool:
    """Say whether a process ends soon. The end of its connection may be seen before its own."""
    return bool(select.select([process], [], [], _DEATH_S)[0])


def _encoded(request: Request) -> bytes:
    """Return a line in the form in which the worker reads it."""
    return c.encode(request).encode("utf-8", "surrogatepass") + b"\n"


def _run_of(line: bytes) -> str | None:
    """Return the run of a line. A line that is no JSON may say its run too."""
    try:
        event = codec.read_json(line)
    except (ValueError, RecursionError):
        match = re.search(rb'"run": ?"([^"\\]+)"', line)
        return match[1].decode(errors="replace") if match else None
    run = cast("dict[str, Any]", event).get("run") if isinstance(event, dict) else None
    return run if isinstance(run, str) else None


class LocalRunner:
    name = "local"

    def __init__(self, options: LocalOptions) -> None:
        self.options = options
        self._worker: _LocalWorker | None = None
        self._starting = asyncio.Lock()
        self._closed = False
        large_blocks.give_back()  # every program that has large texts compiled makes one of these
        self._jobs = UnderWay()

    def run(self, job: Job) -> AsyncGenerator[c.Event, None]:
        return self._jobs.counted(self._run(job))

    async def _run(self, job: Job) -> AsyncGenerator[c.Event, None]:
        if refused := refusals.no_path(job):
            yield c.failed(job.run, refused)
            return
        line = (
            await asyncio.to_thread(_encoded, job) if len(job.text) > limits.AT_ONCE.most else _encoded(job)
        )
        try:
            worker = await self._ready()
        except WorkerError as error:
            yield _unreachable(job.run, error)
            return
        events = worker.expect(job.run)
        worker.send(line)
        finished = False
        try:
            while not finished:
                event = await events.get()
                if isinstance(event, WorkerError):
                    event = _unreachable(job.run, event)
                finished = isinstance(event, c.Finished)
                yield event
        finally:
            if not finished:  # cancelled: the work must be over before this says so
                worker.send(Cancel(job.run))
                await asyncio.shield(_ended(worker, events))
            worker.jobs.pop(job.run, None)

    def locate(self, run: str) -> None:
        """Make the run end now, as if it had reached its limit."""
        if self._worker and run in self._worker.jobs:
            self._worker.send(Locate(run))

    async def machine(self) -> c.Machine | None:
        run = f"probe-{next(_ids)}"
        try:
            worker = await self._ready()
        except WorkerError as error:
            log.warning("%s", error)
            return None
        events = worker.expect(run)
        worker.send(Probe(run, self.options.nvcc))
        try:
            event = await events.get()
        finally:
            worker.jobs.pop(run, None)
        return event if isinstance(event, c.Machine) else None

    async def typed(self, job: Job, *, start: bool) -> c.Built | None:
        """Return what the device front end says of a CUDA file that is typed (`requests.Typing`). Return None if that
        is not known.
        """
        if refusals.no_path(job):
            return None
        try:
            worker = await self._ready()
        except WorkerError:
            return None
        events = worker.expect(job.run)
        worker.send(Typing(job.run, job, start))
        event: c.Event | WorkerError | None = None
        try:
            while not isinstance(event, (c.Built, WorkerError)):
                event = await events.get()
        finally:
            if event is None:
                worker.send(Cancel(job.run))
            worker.jobs.pop(job.run, None)
        return event if isinstance(event, c.Built) and event.complete else None

    async def warm(self, language: str) -> None:
        with suppress(WorkerError):
            worker = await self._ready()
            worker.send(Warm(f"warm-{next(_ids)}", "triton" if language == "triton" else "cuda"))

    async def retire(self) -> None:
        """Close once no job is under way, or at once if the wait is cancelled."""
        try:
            await self._jobs.all_ended()
        finally:
            await asyncio.shield(self.close())

    async def close(self) -> None:
        self._closed = True
        async with self._starting:
            if self._worker:
                await self._worker.close()
                self._worker = None

    async def _ready(self) -> _LocalWorker:
        async with self._starting:
            if self._closed:
                raise WorkerError("the runner is closed")
            if self._worker and not self._worker.gone:
                return self._worker
            starting = asyncio.ensure_future(_LocalWorker.start(self.options))
            try:
                self._worker = worker = await asyncio.shield(starting)
            except asyncio.CancelledError:
                with suppress(WorkerError):
                    self._worker = await starting  # for `close` to end
                raise
            return worker


async def _ended(worker: _LocalWorker, events: asyncio.Queue[c.Event | WorkerError]) -> None:
    """Wait until the worker says that a cancelled job is over. A worker that does not say so is ended."""
    try:
        async with asyncio.timeout(_CANCEL_S):
            while not isinstance(await events.get(), (c.Finished, WorkerError)):
                pass
    except TimeoutError:
        log.error("the worker did not end a cancelled job within %g s", _CANCEL_S)
        await worker.end()


def _unreachable(run: str, error: WorkerError) -> c.Finished:
    if error.remedy:
        return c.failed(run, c.Failure("infrastructure", error.text, error.remedy))
    remedy = installing.located("run it again; `orbit-lsp doctor` shows what this machine has")
    return c.failed(run, c.Failure("infrastructure", str(error), remedy, retryable=True))
