"""The far side of a relay: one ipykernel, the requests to it, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from orbit_lsp.notebook.wire import Message
from orbit_lsp.runners.kernel_process import EndedKernel, RunningKernel
from orbit_remote.common import codec

Receive = Callable[[str, list[bytes]], Awaitable[None]]
"""Given the channel and the frames of each message of the kernel."""
Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""What a magic's request is answered by."""


class KernelLink:
    def __init__(
        self, process: RunningKernel, answer: Answer, most: int = 0, *, locates: bool = False
    ) -> None:
        """Make a link. `most` is the most bytes of a message to the kernel; 0 for any. `locates`: it was started by
        `%orbit locate`.
        """
        self.process = process
        self.most = most
        self.locates = locates
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
        self.prepared = False
        """`prepare` was called, and `rest` not yet."""
        self.last_cell = ""
        """The cell that asked for its end."""
        self._answer = answer
        self._answering: dict[str, asyncio.Task[None]] = {}

    def cell(self) -> Message | None:
        """Return the cell that runs, or waits first."""
        return next((each for each in self.pending.values() if each.kind == "execute_request"), None)

    async def send(self, channel: str, frames: Sequence[bytes]) -> None:
        await self.process.send(channel, frames)

    async def interrupt(self) -> None:
        """Send SIGINT to the kernel and to what its cell waits for."""
        await self.ready.wait()
        await self.process.send("interrupt", [])

    async def end_located(self) -> None:
        """End the kernel, and have it say on which lines its GPU kernels stand."""
        await self.process.send("where", [])

    async def pass_on(self, receive: Receive) -> EndedKernel:
        """Hand every message of the kernel to `receive`, until it and all its processes have ended."""
        try:
            async for name, parts in self.process.records():
                if name == "ask":
                    self._ask(parts[0].decode(), parts[1])
                elif name == "unask":
                    if task := self._answering.get(parts[0].decode()):
                        task.cancel()
                else:
                    if name != "notice":
                        self.ready.set()
                    await receive(name, parts)
        finally:
            for task in list(self._answering.values()):
                task.cancel()
        return await self.process.ended

    def _ask(self, name: str, request: bytes) -> None:
        async def answer() -> None:
            try:
                answered = await self._answer(codec.read_json(request))
            except (ValueError, LookupError, TypeError, AttributeError):  # a cell may send anything
                answered = {"error": "orbit: the request was not understood"}
            await self.process.send("answer", [name.encode(), json.dumps(answered).encode()])

        self._answering[name] = asyncio.create_task(answer())
        self._answering[name].add_done_callback(lambda _: self._answering.pop(name))

    def why(self, ended: EndedKernel) -> str:
        """Return what ended the kernel, as the beginning of a sentence."""
        if ended.failure:
            return ended.failure
        if not self.ready.is_set():
            return f"the kernel did not start{f': {ended.last_line}' if ended.last_line else ''}"
        if ended.status is None:
            return "the kernel was killed"
        if ended.status < 0:
            with contextlib.suppress(ValueError):
                return (
                    f"the kernel was ended by signal {-ended.status} ({signal.Signals(-ended.status).name})"
                )
        return f"the kernel ended with exit code {ended.status}"
