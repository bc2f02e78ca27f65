"""The far side of a relay: one ipykernel, its sockets in a folder of the user's own, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from orbit_lsp.notebook.wire import Message
from orbit_lsp.runners.kernel_process import Ended, KernelProcess
from orbit_remote.common import regular_files
from orbit_remote.common.limits import TOOL_OUTPUT

PORTS = {"shell": 1, "iopub": 2, "stdin": 3, "control": 4, "hb": 5}
SOCKET = "ORBIT_NOTEBOOK"
"""As in orbit_remote's `notebook_kernel`."""

Receive = Callable[[str, list[Any]], Awaitable[None]]
"""Given the channel and the frames of each message of the kernel."""


class KernelLink:
    def __init__(self, process: KernelProcess, folder: Path, context: zmq.asyncio.Context) -> None:
        self.process = process
        self.ready = asyncio.Event()
        """Set with the kernel's first message: from then on it can be interrupted."""
        self.pending: dict[str, Message] = {}
        """Requests that the kernel has not answered, in their order."""
        self.ending = ""
        """Why we end it; empty where we do not."""
        self.busy: dict[str, Any] = {}
        """The header of the request that it is busy with; empty while it is idle."""
        self.settled = ""
        """The request that it was idle after."""
        self.last_cell = ""
        """The cell that asked for its end."""
        self._folder = folder
        self._sockets: dict[str, Any] = {}
        identity = uuid.uuid4().hex.encode()  # the same on all channels: answers to input() find their way
        for channel in ("shell", "control", "stdin", "iopub"):
            socket = context.socket(zmq.SUB if channel == "iopub" else zmq.DEALER)
            socket.linger = 0
            socket.rcvhwm = socket.sndhwm = 0  # a message that is dropped is a cell that never ends
            socket.reconnect_ivl = 10
            if channel == "iopub":
                socket.subscribe(b"")
            else:
                socket.setsockopt(zmq.IDENTITY, identity)
            socket.connect(f"ipc://{folder}/k-{PORTS[channel]}")
            self._sockets[channel] = socket

    @classmethod
    async def start(
        cls, python: str, key: str, scheme: str, magics: str, context: zmq.asyncio.Context
    ) -> KernelLink:
        """`magics` is the socket on which magics are answered. Raises OSError."""
        folder = Path(tempfile.mkdtemp(prefix="orbit-kernel-"))  # nobody else enters it
        try:
            connection = folder / "connection.json"
            ports = {f"{channel}_port": port for channel, port in PORTS.items()}
            described = {"transport": "ipc", "ip": f"{folder}/k", "key": key, "signature_scheme": scheme}
            connection.write_text(json.dumps(described | ports))
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as log:
                shutil.move(log.name, folder / "log")
                process = await KernelProcess.start(python, connection, log, {SOCKET: magics})
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return cls(process, folder, context)

    async def send(self, channel: str, frames: list[Any]) -> None:
        await self._sockets[channel].send_multipart(frames)

    async def pass_on(self, receive: Receive) -> Ended:
        """Hand every message of the kernel to `receive`, until it and all that it started are gone."""
        tasks = [asyncio.create_task(self._pass(channel, receive)) for channel in self._sockets]
        try:
            ended = await asyncio.shield(self.process.ended)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for channel in self._sockets:
            await self._drain(channel, receive)
        return ended

    async def _pass(self, channel: str, receive: Receive) -> None:
        while True:
            frames = await self._sockets[channel].recv_multipart(copy=channel != "iopub")
            self.ready.set()
            await receive(channel, list(frames))

    async def _drain(self, channel: str, receive: Receive) -> None:
        """What the kernel sent before it ended."""
        while await self._sockets[channel].poll(0):
            frames = await self._sockets[channel].recv_multipart(copy=channel != "iopub")
            await receive(channel, list(frames))

    def why(self, ended: Ended) -> str:
        """What ended the kernel, as the beginning of a sentence."""
        if ended.failure:
            return f"{ended.failure}{self._last_line()}"
        if not self.ready.is_set():
            return f"the kernel did not start{self._last_line()}"
        if ended.status is None:
            return "the kernel was killed"
        if ended.status < 0:
            with contextlib.suppress(ValueError):
                return (
                    f"the kernel was ended by signal {-ended.status} ({signal.Signals(-ended.status).name})"
                )
        return f"the kernel ended with exit code {ended.status}"

    def _last_line(self) -> str:
        with contextlib.suppress(OSError):
            lines = regular_files.text(self._folder / "log", TOOL_OUTPUT).split("\n")
            last = next((line.strip() for line in reversed(lines) if line.strip()), "")
            return f": {last:.300}" if last else ""
        return ""

    def close(self) -> None:
        for socket in self._sockets.values():
            socket.close(0)
        shutil.rmtree(self._folder, ignore_errors=True)
