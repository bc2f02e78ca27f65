"""The worker that a user's editors, commands and services share. Each connection is one client, on a socket of the
user's own.

The first client makes the socket and starts this process with it (`process/worker_socket.py`). So a client never
waits for a worker to be ready: its first line waits in the socket. A client sees and ends only its own jobs. When it
goes, however it dies, they are ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from orbit_remote.common import handshake, regular_files, requests
from orbit_remote.common import messages as c
from orbit_remote.process import client_environment, file_lock, process_groups
from orbit_remote.worker.actions import builds
from orbit_remote.worker.calibration_store import CalibrationStore
from orbit_remote.worker.context import Shared, WorkerClient, WorkerContext
from orbit_remote.worker.jobs import Jobs

_HELLO_S = 60.0
"""How long a client may be connected and say nothing: one that is stopped in between is left."""
_LINE = 64 << 20
"""The longest request: a source file of the largest size, escaped."""
_BEHIND = 128 << 20
"""Bytes of events that a client has not read, at which it is dropped: the longest event, twice."""
_LOG_BYTES = 1 << 20
_AGAIN_S = 1.0


def detach() -> None:
    """Leave the client that started this process: its terminal, its process group, and its list of children."""
    if os.fork():
        os._exit(0)
    os.setsid()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")


async def serve(options: argparse.Namespace, make: Callable[[argparse.Namespace], Shared]) -> None:
    """Serve until no client has been connected for a while, or a client stops it."""
    process_groups.adopt()
    listener = socket.socket(fileno=options.listen)
    listener.setblocking(False)
    worker = _SharedWorker(options.folder, options.key, options.release, options.leave_s, make(options))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.serve(listener)


class _SharedWorker:
    def __init__(self, folder: Path, key: str, release: str, leave_s: float, shared: Shared) -> None:
        self._folder = folder
        self._key = key
        self._release = release
        self._leave_s = leave_s
        self._shared = shared
        self._reached = CalibrationStore(shared.home / "reached.json")
        self._path = folder / f"{key}.sock"
        self._inode = self._path.stat().st_ino
        self._since = time.time()
        self._clients: dict[asyncio.StreamWriter, tuple[str, Jobs]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._leaving: asyncio.TimerHandle | None = None
        self._stopped = asyncio.Event()

    async def serve(self, listener: socket.socket) -> None:
        known, mark = self._folder / f"{self._key}.pid", os.environ.get(process_groups.MARK, "")
        with contextlib.suppress(
            OSError
        ):  # a full disk: who wants to end it without an answer cannot, and no more
            regular_files.replace(known, json.dumps({"pid": os.getpid(), "mark": mark}).encode())
        self._shared.forget_the_dead()
        self._wait_for_clients(max(self._leave_s, _HELLO_S))  # whoever started it may take a while to connect
        server = await asyncio.start_unix_server(self._accept, sock=listener, limit=_LINE)
        await self._stopped.wait()
        server.close()
        self._remove_traces()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._reached.close()
        await self._shared.close()

    def stop(self) -> None:
        self._stopped.set()

    # -- how long it stays ----------------------------------------------------------------------------

    def _wait_for_clients(self, pause_s: float) -> None:
        """Leave after a while, unless somebody comes."""
        self._stay()
        if not self._clients:
            self._leaving = asyncio.get_running_loop().call_later(pause_s, self._leave)

    def _stay(self) -> None:
        if self._leaving:
            self._leaving.cancel()
            self._leaving = None

    def _leave(self) -> None:
        """Leave, with the lock, so that no second worker is started while this one still runs."""
        if self._clients or self._stopped.is_set():
            return
        if self._remove_traces():
            self.stop()
        else:
            self._leaving = asyncio.get_running_loop().call_later(_AGAIN_S, self._leave)

    def _remove_traces(self) -> bool:
        """Remove our files in the runtime folder, unless another worker has taken our place. Return False if somebody
        is about to start one.
        """
        lock_path = self._folder / f"{self._key}.lock"
        with contextlib.suppress(OSError):
            if not self._path.exists() or self._path.stat().st_ino != self._inode:
                return True
            lock = file_lock.taken_at(lock_path)
            if lock is None:
                return False
            for suffix in (
                "sock",
                "pid",
                "log",
                "lock",
            ):  # the lock last: until then nobody starts a worker here
                (self._folder / f"{self._key}.{suffix}").unlink(missing_ok=True)
            os.close(lock)
        return True

    # -- clients --------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if _peer(writer) == os.getuid():
                await self._meet(reader, writer)
        except (ConnectionError, TimeoutError, ValueError) as error:  # gone, silent, or no client of ours
            print(
                f"orbit worker: a client was disconnected: {error or type(error).__name__}", file=sys.stderr
            )
        except asyncio.CancelledError:
            pass  # the worker is stopped; asyncio would report the task of a connection that was cancelled
        finally:
            self._connections.discard(task)
            with contextlib.suppress(ConnectionError, RuntimeError):
                writer.close()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Raises ConnectionError, TimeoutError, ValueError."""
        async with asyncio.timeout(_HELLO_S):
            first = await reader.readline()
        if not first:
            return
        kind, record = handshake.decode(first)
        if kind == "status":
            writer.write(handshake.encode("status", await asyncio.to_thread(self._status)))
            await writer.drain()
        elif kind == "stop":
            writer.write(handshake.encode("stopping"))
            await writer.drain()
            self._connections -= {
                task for task in [asyncio.current_task()] if task
            }  # it ends with the process
            self.stop()
            await self._stopped_for_good(reader)
        elif kind == "hello":
            hello = handshake.build(handshake.Hello, record)
            if hello.version != requests.VERSION or hello.key != self._key:
                why = f"this worker is {self._release} with the key {self._key}, and speaks version {requests.VERSION}"
                writer.write(_refusal(why))
                await writer.drain()
            else:
                await self._follow(hello, reader, writer)

    async def _stopped_for_good(self, reader: asyncio.StreamReader) -> None:
        """Hold the connection until this process ends: its end tells the other side that the worker has gone."""
        with contextlib.suppress(ConnectionError):
            await reader.read()

    async def _follow(
        self, hello: handshake.Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Follow a client's requests until it leaves. Then its jobs are ended."""
        mark = os.environ.get(process_groups.MARK, "")
        variables = hello.environment | ({process_groups.MARK: mark} if mark else {})
        client_environment.use(variables)
        self._shared.adjust(cache_bytes=hello.cache_bytes, spare_idle_s=hello.spare_idle_s)
        _bound_log()
        client = WorkerClient(
            _SendToSocket(writer, hello.client),
            variables,
            hello.passed,
            hello.author_python or None,
            hello.client,
        )
        jobs = Jobs(WorkerContext(self._shared, client, builds.build_ahead), self._reached)
        self._clients[writer] = hello.client, jobs
        self._stay()
        log = str(self._folder / f"{self._key}.log")
        writer.write(handshake.encode("welcome", handshake.Welcome(os.getpid(), mark, log)))
        try:
            while (line := await reader.readline()).endswith(b"\n"):
                jobs.take(line.decode("utf-8", "surrogatepass"))
        finally:
            await asyncio.shield(jobs.end())
            del self._clients[writer]
            self._wait_for_clients(self._leave_s)

    def _status(self) -> handshake.Status:
        return handshake.Status(
            os.getpid(),
            sys.executable,
            ".".join(map(str, sys.version_info[:3])),
            self._release,
            self._since,
            tuple(name for name, _ in self._clients.values()),
            sum(len(jobs) for _, jobs in self._clients.values()),
            process_groups.memory(os.getpid()),
            self._shared.warm,
            str(self._shared.home),
        )


class _SendToSocket:
    """Sends a client's events. A client that does not read them is disconnected, and does not delay others."""

    def __init__(self, writer: asyncio.StreamWriter, name: str) -> None:
        self._writer = writer
        self._name = name

    def __call__(self, event: c.Event) -> None:
        transport = self._writer.transport
        if transport.is_closing():
            return
        transport.write(c.encode(event).encode("utf-8", "surrogatepass") + b"\n")
        if transport.get_write_buffer_size() > _BEHIND:
            print(f"orbit worker: {self._name} does not read its events, and is dropped", file=sys.stderr)
            transport.abort()


def _refusal(why: str) -> bytes:
    return json.dumps({"kind": "refused", "why": why}).encode() + b"\n"


def _peer(writer: asyncio.StreamWriter) -> int:
    """Return the user at the other end, or -1 if the kernel does not say."""
    size = struct.calcsize("3i")
    credentials = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return struct.unpack("3i", credentials)[1]


def _bound_log() -> None:
    """Begin the log anew if it has become long. The log is opened for appending."""
    with contextlib.suppress(OSError):
        if os.fstat(2).st_size > _LOG_BYTES:
            os.ftruncate(2, 0)
