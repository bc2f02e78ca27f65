"""Keeps one notebook kernel: starts it in this Python, passes its messages on, interrupts it, and ends it with all it
started.

Standard input and output are records (`process/records.py`). The first input is `start`. Then Jupyter's messages come
and go under the name of their channel. `interrupt` interrupts. `cell` is answered by `ready` once a cell may run.
`rest` says that none runs. `where` ends a kernel of `%orbit locate`. An `ask` of a cell's magic is answered by an
`answer`. `event` says that the kernel has started, and how it has ended. The end of standard input ends the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import sys
import tempfile
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from orbit_remote import MAIN
from orbit_remote.common import codec, content_store, limits, regular_files
from orbit_remote.common.packages import installing
from orbit_remote.process import process_groups
from orbit_remote.process.client_environment import NOTEBOOK_CACHE
from orbit_remote.process.records import Records, packed
from orbit_remote.recording.injection import UNKNOWN, Overhead
from orbit_remote.worker import cell_lease
from orbit_remote.worker.cell_lease import CellLease
from orbit_remote.worker.faults import dump_folder
from orbit_remote.worker.faults.cell_faults import CellFaults
from orbit_remote.worker.overhead_store import OverheadStore

_CHANNELS = {"shell": 1, "iopub": 2, "stdin": 3, "control": 4}
_LONGEST = 70
"""Characters of a folder for sockets: the path of one has 107 bytes at most."""
_MAGICS = "ORBIT_NOTEBOOK"
"""Names the socket on which magics are answered, as in orbit_remote's `notebook_kernel`."""


def main(arguments: list[str]) -> int:
    del arguments
    asyncio.run(_main())
    return 0


async def _main() -> None:
    process_groups.adopt()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    missing = next((name for name in ("ipykernel", "zmq") if importlib.util.find_spec(name) is None), None)
    short = None if len(tempfile.gettempdir()) <= _LONGEST else "/tmp"  # noqa: S108 - in a folder that is ours alone
    folder = Path(tempfile.mkdtemp(prefix="orbit-kernel-", dir=short))  # nobody else enters it
    try:
        with contextlib.suppress(ConnectionError):  # who started us is gone, and so is the kernel by now
            if missing:
                failure = f"{sys.executable} has no ipykernel: run `{installing.remedy(sys.executable, 'ipykernel')}`, then run the cell again"
                writer.write(_event(event="ended", failure=failure))
            else:
                await _Keeper(folder, reader, writer).keep()
            await writer.drain()
    finally:
        content_store.remove(folder)


class _Keeper:
    def __init__(self, folder: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        import zmq
        import zmq.asyncio

        self._folder = folder
        self._reader = reader
        self._writer = writer
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._group: int | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._log = ""
        self._lease: CellLease | None = None
        self._cache = folder
        self._faults: CellFaults | None = None
        self._locating: asyncio.Task[None] | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._sockets: dict[str, Any] = {}
        context: Any = zmq.asyncio.Context()
        identity = uuid.uuid4().hex.encode()  # the same on all channels: answers to input() find their way
        for channel, port in _CHANNELS.items():
            socket = context.socket(zmq.SUB if channel == "iopub" else zmq.DEALER)
            socket.linger = 0
            if channel != "iopub":  # a message that is dropped is a cell that never ends
                socket.rcvhwm = socket.sndhwm = 0
            socket.reconnect_ivl = 10
            if channel == "iopub":
                socket.subscribe(b"")
            else:
                socket.setsockopt(zmq.IDENTITY, identity)
            socket.connect(f"ipc://{folder}/k-{port}")
            self._sockets[channel] = socket

    async def keep(self) -> None:
        magics = str(self._folder / "m")
        server = await asyncio.start_unix_server(self._asked, magics, limit=limits.SOURCE.most + (1 << 20))
        obeying = asyncio.ensure_future(self._obey(magics))
        passing = [asyncio.ensure_future(self._pass(channel)) for channel in self._sockets]
        try:
            await obeying
        finally:
            status = None
            if self._process:
                status = await process_groups.finish(self._process)
            if self._lease:
                await self._lease.lend()
            server.close()
            for task in passing:
                task.cancel()
            await asyncio.gather(*passing, return_exceptions=True)
        for channel, socket in self._sockets.items():
            while await socket.poll(0):  # what the kernel sent before it ended
                self._writer.write(packed(channel, await socket.recv_multipart()))
            socket.close(0)
        if self._process:
            fault = await asyncio.to_thread(self._faults.text) if self._faults else ""
            self._writer.write(_event(event="ended", status=status, last_line=self._last_line(), fault=fault))

    async def _obey(self, magics: str) -> None:
        """Obey until the end of standard input or of the kernel."""
        records = Records()
        ended: asyncio.Future[Any] | None = None
        reading: asyncio.Future[bytes] | None = None
        while True:
            reading = reading or asyncio.ensure_future(self._reader.read(1 << 16))
            await asyncio.wait([reading, *([ended] if ended else [])], return_when=asyncio.FIRST_COMPLETED)
            if ended and ended.done():
                reading.cancel()
                return
            if not (data := reading.result()):
                return
            reading = None
            for name, parts in records.feed(data):
                if name == "start":
                    await self._start(codec.read_json(parts[0]), magics)
                    assert self._process
                    ended = asyncio.ensure_future(process_groups.exit_status(self._process))
                elif name == "cell":
                    self._beginning = asyncio.create_task(self._begin_cell())
                elif name == "rest" and self._lease:
                    await self._lease.end()
                elif name == "interrupt" and self._beginning and not self._beginning.done():
                    if self._lease:
                        self._lease.interrupt()
                elif name == "interrupt" and self._process:
                    with contextlib.suppress(ProcessLookupError):
                        # what a cell waits for, as `!make`, is interrupted too
                        os.killpg(self._process.pid, signal.SIGINT)
                elif name == "where":
                    self._locating = self._locating or asyncio.create_task(self._end_located())
                elif name == "answer":
                    if (answer := self._answers.get(parts[0].decode())) and not answer.done():
                        answer.set_result(parts[1])
                elif name in self._sockets:
                    await self._sockets[name].send_multipart(parts)

    async def _end_located(self) -> None:
        """End the kernel. If it has opened a GPU, the driver first writes where the warps stand."""
        assert self._process
        if self._faults and await asyncio.to_thread(self._faults.ask):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(dump_folder.LONGEST_S):
                    await process_groups.exit_status(self._process)
        process_groups.kill_group(self._process.pid)

    async def _begin_cell(self) -> None:
        assert self._process
        may = self._lease is None or await self._lease.begin(self._process.pid)
        self._writer.write(
            packed("ready", [b"" if may else b"it was interrupted while it waited for the GPU"])
        )

    async def _start(self, signing: dict[str, Any], magics: str) -> None:
        self._cache = Path(signing.pop("cache", "") or os.environ.get(NOTEBOOK_CACHE) or self._folder)
        if (when := signing.pop("lease", "never")) != "never":
            waits = "orbit: the cell waits for the GPU: "
            notebook = cell_lease.of_notebook(Path.cwd())
            self._lease = CellLease(
                when,
                notebook,
                lambda other: self._writer.write(packed("notice", [f"{waits}{other}".encode()])),
            )
        if signing.pop("locate", False):
            self._faults = CellFaults(self._folder / "faults")
        connection = self._folder / "connection.json"
        ports = {f"{channel}_port": port for channel, port in {**_CHANNELS, "hb": 5}.items()}
        connection.write_text(json.dumps({"transport": "ipc", "ip": f"{self._folder}/k", **signing, **ports}))
        # the notebook's parent is here: ipykernel would watch the process that this variable names
        environment = {name: value for name, value in os.environ.items() if name != "JPY_PARENT_PID"}
        # else debugpy warns, as a line of the first cell: ipykernel's own kernelspec has this option too
        options = ["-X", "frozen_modules=off", "-P"]
        command = [sys.executable, *options, str(MAIN), "cells", "-f", str(connection)]
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as log:
            ours = {_MAGICS: magics, NOTEBOOK_CACHE: str(self._cache)}
            ours |= self._faults.variables() if self._faults else {}
            self._process = await process_groups.start(
                command, env=environment | ours, stdout=log.fileno(), stderr=log.fileno()
            )
        self._log = log.name
        self._writer.write(_event(event="started", pid=self._process.pid, folder=str(self._folder)))

    async def _pass(self, channel: str) -> None:
        while True:
            self._writer.write(packed(channel, await self._sockets[channel].recv_multipart()))
            await self._writer.drain()

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle a magic's request, which is a line of JSON. If its connection closes before the answer, the request
        is withdrawn.
        """
        name = uuid.uuid4().hex
        answer = self._answers[name] = asyncio.get_running_loop().create_future()
        with contextlib.suppress(OSError):
            try:
                request = await reader.readline()
            except ValueError:  # longer than a source file may be
                request = b"{}"
            if _asks_for(request, "overhead"):  # known here, and not to the relaying process
                answer.set_result(json.dumps({"overhead": asdict(await self._overhead())}).encode())
            lent = self._lease if _asks_for(request, "cuda", "cell") else None
            if lent:
                await lent.lend()
            if not answer.done():
                self._writer.write(packed("ask", [name.encode(), request]))
            gone = asyncio.ensure_future(
                reader.read()
            )  # nothing more is sent: this is the end of the connection
            await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if lent and self._process:
                lent.resume(self._process.pid)
            if answer.done():
                writer.write(answer.result() + b"\n")
                await writer.drain()
            else:
                self._writer.write(packed("unask", [name.encode()]))
        del self._answers[name]
        writer.close()

    async def _overhead(self) -> Overhead:
        """Return what recording adds to a launch. It is measured if the cell that asks has the GPU for itself."""
        store = OverheadStore(self._cache)
        devices = await asyncio.to_thread(cell_lease.visible_devices)
        if self._lease and not self._lease.holds:
            return store.known(devices[0]) if devices else UNKNOWN
        return await store.overhead(devices[0] if devices else None, dict(os.environ))

    def _last_line(self) -> str:
        """Return the last line that the kernel printed outside of the notebook."""
        with contextlib.suppress(OSError):
            lines = regular_files.text(self._log, limits.TOOL_OUTPUT).split("\n")
            return f"{next((line.strip() for line in reversed(lines) if line.strip()), ''):.300}"
        return ""


def _asks_for(request: bytes, *what: str) -> bool:
    """Say whether a cell makes one of these requests. `cuda` and `cell` may be measured while the cell waits for
    them.
    """
    with contextlib.suppress(ValueError, RecursionError):
        asked: Any = codec.read_json(request)
        return isinstance(asked, dict) and cast("dict[str, Any]", asked).get("do") in what
    return False


def _event(**event: Any) -> bytes:
    return packed("event", [json.dumps(event).encode()])
