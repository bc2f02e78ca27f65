"""The worker's side of job processes. They are forked from a template, or started for one job."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Literal

from orbit_remote.child import child_main
from orbit_remote.common import content_store, limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.launch_records import LaunchSeries
from orbit_remote.common.requests import Job
from orbit_remote.process import process_groups
from orbit_remote.recording import injection
from orbit_remote.recording.first_context import FirstContext
from orbit_remote.recording.injection import Overhead
from orbit_remote.toolchain.spec_instances import Image

_LINE = 256 << 20  # the longest event: launches of many configurations with their samples
_LATE_S = 0.2
"""How long the stream of a process that has ended may be silent, which others hold, before it is left."""


Afterwards = Literal["stays"] | int | None
"""Of a child that has finished its job: it can be given another one, or ends with this exit status, which takes the driver
a while; None where it has not told.
"""


class Forked:
    """A spare process, then the child of a job, and perhaps a spare again. It leads a group of its own.

    `launches` is the folder in which its launches are recorded; it outlives a crash until `close`. `served` counts
    the jobs that it has done before this one. `folder` is a judge's own.
    """

    def __init__(
        self, number: int, launches: Path, role: child_main.Role = "spare", folder: Path | None = None
    ) -> None:
        """Raises OSError."""
        self.number = number
        self.launches = launches
        self.folder = folder
        self.role: child_main.Role = role
        self.first_context = FirstContext(launches) if role == "driver" else None
        self.pid = 0
        self.served = 0
        self.taken = False
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._forked = asyncio.Event()
        self._readying = asyncio.Lock()
        self._is_ready = False
        self.prepared = False
        """Whether it has said that it is ready."""
        self.template: object = None
        """The process it was forked from."""
        self._follower: injection.Follower | None = None
        self._pipes: list[tuple[int, asyncio.ReadTransport]] = []
        self._events: asyncio.StreamReader
        self._orders: asyncio.StreamWriter
        self.stdout: asyncio.StreamReader
        self.stderr: asyncio.StreamReader

    async def open(self, fork: Callable[[list[int]], object]) -> None:
        """Fork it with the far ends of our socket and pipes."""
        ours, theirs = socket.socketpair()
        out, out_far = os.pipe()
        err, err_far = os.pipe()
        try:
            fork([theirs.fileno(), out_far, err_far])
        finally:
            theirs.close()
            os.close(out_far)
            os.close(err_far)
        self._events, self._orders = await asyncio.open_unix_connection(sock=ours, limit=_LINE)
        self.stdout, self.stderr = [await self._reader(descriptor) for descriptor in (out, err)]

    def forked(self, pid: int) -> None:
        self.pid = pid
        self._follower = injection.Follower(self.launches, pid)
        self._forked.set()

    def ended(self, status: int) -> None:
        self._forked.set()
        if not self._ended.done():
            self._ended.set_result(status)

    def when_ended(self, call: Callable[[Forked], None]) -> None:
        self._ended.add_done_callback(lambda _: call(self))

    @property
    def alive(self) -> bool:
        return not self._ended.done()

    async def ready(self) -> None:
        """Wait until it can start a job at once, or has died trying."""
        async with self._readying:
            if not self._is_ready:
                await self._forked.wait()
                with contextlib.suppress(ConnectionError):
                    self.prepared = await self._events.readline() == child_main.READY.encode()
                self._is_ready = True

    async def begin(self, order: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # it has died: no event will come, and its status says why
            self._orders.write(order)
            await self._orders.drain()

    async def events(self) -> AsyncIterator[c.Event]:
        """Yield what the job says, `Finished` last. If the process crashed there is no `Finished`."""
        with contextlib.suppress(ConnectionError):
            while line := await self._line():
                if (event := child_main.decode_event(line.decode(errors="surrogatepass"))) is not None:
                    yield event
                if isinstance(event, c.Finished):
                    return

    def fresh(self) -> list[LaunchSeries]:
        """Return the launches that were recorded since the last call; of a driver, those of all its processes."""
        if self.first_context:
            return list(injection.read(self.launches).series)
        return self._follower.fresh() if self._follower else []

    async def afterwards(self) -> Afterwards:
        """Return what comes after `Finished`. Everything it printed has been read then."""
        try:
            line = await self._line()
        except ConnectionError:
            return None
        stays = line == child_main.READY.encode()
        status = None if stays else child_main.status_of_leaving(line)
        if stays or status is not None:
            await self.printed()
        return "stays" if stays else status

    async def printed(self) -> None:
        """Wait until everything that it has printed so far has been read."""
        while select.select(self._open_pipes(), [], [], 0)[0]:  # noqa: ASYNC110 - the loop's own readers empty them
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # once more, so that those who wait for the last lines run too

    def _open_pipes(self) -> list[int]:
        """Return the pipes that have not been read to their ends. After its end, a pipe's descriptor belongs to
        another file.
        """
        return [descriptor for descriptor, transport in self._pipes if not transport.is_closing()]

    async def _reader(self, descriptor: int) -> asyncio.StreamReader:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb"))
        self._pipes.append((descriptor, transport))
        return reader

    def _more(self) -> bool:
        """Say whether there is something in the socket that nobody has read."""
        descriptor = self._orders.get_extra_info("socket").fileno()
        return descriptor >= 0 and bool(select.select([descriptor], [], [], 0)[0])

    async def _line(self) -> bytes:
        """Return the next line. Return b"" at the end of the stream, or of the process if others hold the stream."""
        reading = asyncio.ensure_future(self._events.readline())
        try:
            await asyncio.wait([reading, self._ended], return_when=asyncio.FIRST_COMPLETED)
            # what it wrote before its end is in the socket, and the loop's own reader empties it
            while not reading.done() and self._more():  # noqa: ASYNC110
                await asyncio.sleep(0)
            if not reading.done():
                await asyncio.wait([reading], timeout=_LATE_S)
            return reading.result() if reading.done() else b""
        finally:
            reading.cancel()

    def kill(self) -> None:
        if self.alive and self.pid:
            process_groups.kill_group(self.pid)

    async def wait(self) -> int:
        """Wait for the process. Return the exit status, or minus the signal. Then no process of its group is left."""
        return await asyncio.shield(self._ended)

    async def close(self) -> None:
        """End the process if it lives, and forget its folder."""
        await self._forked.wait()
        self.kill()
        await self.wait()
        self._orders.close()
        if self.folder:  # whatever a candidate made of it
            await asyncio.to_thread(content_store.remove, self.folder)
        self.forget()

    def forget(self) -> None:
        """Remove the folders of a process that has ended."""
        if self.folder:
            content_store.remove(self.folder)
        if self.first_context:
            self.first_context.close()
        content_store.remove(self.launches)


class Fresh:
    """A process started for one job, in place of a `Forked`. Its events come when it has ended."""

    def __init__(self, process: Process, folder: Path) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._folder = folder
        self.served = 0
        self.folder: Path | None = None
        self.pid = process.pid
        self.stdout = process.stdout
        self.stderr = process.stderr
        self.launches = folder / "launches"

    @classmethod
    async def start(
        cls,
        job: Job,
        cache: Path,
        env: Mapping[str, str],
        image: Image | None,
        overhead: Overhead,
        scratches: Path | None,
    ) -> Fresh:
        folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-job-", dir=scratches))
        command = child_main.command(folder, cache, job, image, overhead=overhead)
        return cls(await process_groups.start(command, env=env), folder)

    async def events(self) -> AsyncIterator[c.Event]:
        await self.wait()
        lines: list[str] = []
        with contextlib.suppress(OSError):
            file = self._folder / "events"
            lines = (await asyncio.to_thread(regular_files.text, file, limits.EVENTS)).splitlines()
        for line in lines:
            if (event := child_main.decode_event(line)) is not None:
                yield event

    def fresh(self) -> list[LaunchSeries]:
        return list(injection.read(self.launches).series)

    async def afterwards(self) -> Afterwards:
        return None

    async def printed(self) -> None:
        """Do nothing: it has ended, and so have its streams."""

    def kill(self) -> None:
        if self._process.returncode is None:
            process_groups.kill_group(self.pid)

    async def wait(self) -> int:
        return await process_groups.exit_status(self._process)

    async def close(self) -> None:
        await process_groups.finish(self._process)
        content_store.remove(self._folder)


Child = Forked | Fresh
