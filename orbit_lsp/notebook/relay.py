"""The kernel that a front end sees. Behind its five sockets an ipykernel is started, interrupted and replaced.

This process outlives the ipykernel. When that has ended - by a fault, a second interrupt, or after a while without
cells - the next cell says why and is not run, since it would run without the variables of earlier cells. The cell
after it starts a new ipykernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import zmq
import zmq.asyncio

from orbit_lsp import __version__
from orbit_lsp.notebook.kernel_link import KernelLink
from orbit_lsp.notebook.wire import Message, OutputLimit, Wire
from orbit_lsp.queue.notebook_sessions import Registered, State
from orbit_lsp.runners.kernel_process import Keep, front_end_ended
from orbit_lsp.state import units

log = logging.getLogger("orbit.notebook")

_SECOND_PRESS_S = 1.0
"""A press of Interrupt that comes sooner after the first is a double click."""
_GRACE_S = 1.5
"""How long a kernel that is asked to shut down may take; front ends wait 2.5 s before they kill us."""
_TOGETHER_MS = 20
"""Cells that a front end sends together come at most this long after each other."""
_LOOK_S = 1.0
_WARN_S = 60.0
_AGAIN = "its variables are gone, so run the notebook from its first cell"
_LANGUAGE = {
    "name": "python",
    "version": ".".join(map(str, sys.version_info[:3])),
    "mimetype": "text/x-python",
    "file_extension": ".py",
    "pygments_lexer": "ipython3",
    "codemirror_mode": {"name": "ipython", "version": 3},
    "nbconvert_exporter": "python",
}

Start = Callable[[bool], Awaitable[KernelLink]]
"""Starts an ipykernel; where True is given, one that names the lines of GPU kernels that fail or hang."""


class Relay:
    """Serves a front end. `connection` is its connection file. `idle_s` is the time without a cell after which the
    ipykernel is ended; 0 for never.
    """

    def __init__(
        self, connection: Mapping[str, Any], start: Start, *, idle_s: float = 0.0, at_once: bool = True
    ) -> None:
        """Bind the sockets. `at_once`: start the first ipykernel before a cell asks for it. Raises ZMQError if a port
        of the front end is taken.
        """
        self._start = start
        self._at_once = at_once
        self.idle_s = idle_s
        self._wire = Wire(
            str(connection.get("key", "")), str(connection.get("signature_scheme", "hmac-sha256"))
        )
        self._limit = OutputLimit(self._wire)
        self._context = zmq.asyncio.Context()
        self._front: dict[str, Any] = {}
        kinds = {"iopub": zmq.XPUB, "hb": zmq.REP}
        for channel in ("shell", "control", "stdin", "iopub", "hb"):
            socket = self._context.socket(kinds.get(channel, zmq.ROUTER))
            socket.linger = 1000
            socket.sndhwm = 0
            if channel in ("shell", "control", "stdin"):
                socket.router_handover = True  # a front end that connects anew
            if channel == "iopub":
                socket.xpub_verbose = True  # each front end is welcomed
            separator = "-" if connection.get("transport") == "ipc" else ":"
            address = f"{connection['ip']}{separator}{connection[f'{channel}_port']}"
            socket.bind(f"{connection.get('transport', 'tcp')}://{address}")
            self._front[channel] = socket
        self.kernel: KernelLink | None = None
        self._begun = False
        """There has been an ipykernel."""
        self.began = time.monotonic()
        self.cells = 0
        self._live: dict[asyncio.Task[None], KernelLink] = {}
        """Every ipykernel that has not ended yet."""
        self._reason = ""
        """Why there is no ipykernel; empty once a cell has reported it."""
        self._locates = False
        """Whether the next ipykernel names lines: `%orbit locate`."""
        self._ends_after_cell = False
        """The cell that runs asks for the ipykernel's end; nothing is to be explained after it."""
        self._interrupted = ("", 0.0)
        self._touched = time.monotonic()
        self.keep: Keep = "nothing"
        """What stays when this process has ended."""
        self._warned: Message | None = None
        self._last_cell: Message | None = None
        self.registered: Registered | None = None
        """Where this process stands among those that run."""
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self) -> None:
        """Serve until the front end shuts us down or ends, or SIGTERM comes."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._over.set)
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        serving = [self._shell(), self._control(), self._stdin(), self._heartbeat(), self._welcome()]
        for each in (*serving, self._look(os.getppid())):
            self._spawn(each)
        if self._at_once:
            await self._begin()
        try:
            await self._over.wait()
        finally:
            await self._close()

    def end_after_cell(self, *, locate: bool = False) -> None:
        """End the ipykernel when the present cell has ended. The next cell starts a new one. If `locate` is set, that
        names the lines of GPU kernels that fail or hang.
        """
        self._locates = locate
        self._ends_after_cell = True

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("the kernel's relay failed", exc_info=error)
            self._over.set()

    async def _close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(kernel.process.end(self.keep) for kernel in self._live.values()))
        await asyncio.gather(*self._live)
        for socket in self._front.values():
            socket.close()
        self._context.term()

    # -- the ipykernel ------------------------------------------------------------------------

    async def _begin(self) -> None:
        self._begun = True
        try:
            self.kernel = await self._start(self._locates)
        except OSError as error:
            self._reason = f"the kernel's Python cannot be started: {error}"
            return
        self.began, self.cells = time.monotonic(), 0
        following = asyncio.create_task(self._follow(self.kernel))
        self._live[following] = self.kernel
        following.add_done_callback(self._live.pop)

    async def _follow(self, kernel: KernelLink) -> None:
        """Pass on what the ipykernel sends. When it ends, report that in the cell that waits for it."""

        async def receive(channel: str, frames: list[Any]) -> None:
            await self._from_kernel(kernel, channel, frames)

        ended = await kernel.pass_on(receive)
        why = kernel.ending or kernel.why(ended)
        why = f"{why}; {_AGAIN}" if kernel.ready.is_set() else why
        why = f"{why}\n{ended.fault}" if ended.fault else why
        if self.kernel is kernel:
            self.kernel, self._reason = None, why
        waiting = list(kernel.pending.values())
        kernel.pending.clear()
        cells = [message for message in waiting if message.kind == "execute_request"]
        # a cell that is idle has shown all that it had to, though its reply is lost: its output stays as it is
        open_cells = [message for message in cells if message.id != kernel.settled]
        if open_cells:  # the first reports it, so that the next that the front end sends starts a new one
            self._reason = ""
        for message in waiting:
            idle = message.id == kernel.settled
            await self._refuse(message, why, aborted=message in open_cells[1:], idle=idle)
        if kernel.busy and str(kernel.busy.get("msg_id")) not in {message.id for message in waiting}:
            await self._status("idle", kernel.busy)  # else its cell would seem to run for ever

    async def _end(self, kernel: KernelLink, why: str, keep: Keep = "nothing") -> None:
        kernel.ending = kernel.ending or why
        await kernel.process.end(keep)

    def _give_up(self, kernel: KernelLink, cell: str) -> None:
        """Send the cells after this one to a new ipykernel, if the cell asked for that. The first sign that it ended
        decides, its answer or the idle status: the front end may send the next cell after either.
        """
        if self._ends_after_cell:
            self.kernel, self._ends_after_cell = None, False
            kernel.last_cell = cell

    def _end_after_last_cell(self, kernel: KernelLink) -> None:
        """End the ipykernel once its last cell is both answered and idle. What the cell printed comes between the
        two.
        """
        last = kernel.last_cell
        if last and kernel.settled == last and last not in kernel.pending:
            self._spawn(self._end(kernel, "this kernel was ended by %orbit end"))

    async def _rest(self, kernel: KernelLink) -> None:
        """Tell the kernel that its last cell has ended. That is so once the cell is answered and the kernel is idle,
        in either order.
        """
        if kernel.prepared and not kernel.busy and kernel.cell() is None:
            kernel.prepared = False
            await kernel.process.rest()

    async def _notice(self, cell: Message | None, text: str) -> None:
        """A line in the output of a cell."""
        if cell:
            content = {"name": "stderr", "text": f"{text}\n"}
            await self._send("iopub", self._wire.make("stream", content, cell.header, [b"stream"]))

    async def _from_kernel(self, kernel: KernelLink, channel: str, frames: list[Any]) -> None:
        if channel == "notice":
            await self._notice(kernel.cell(), frames[0].decode())
            return
        if channel == "iopub":
            message = self._wire.read(frames, check=False)
            state = message.value().get("execution_state") if message and message.kind == "status" else None
            if state == "starting" or (message and message.kind == "iopub_welcome"):
                return  # a front end that is connected expects neither, and Molten fails at the first
            if message and state == "idle" and (cell := kernel.cell()) and cell.id == message.parent_id:
                self._give_up(kernel, cell.id)
            for each in self._limit.passed(message, frames) if message else [frames]:
                await self._send("iopub", each)
            if message and state:
                kernel.busy = message.parent if state == "busy" else {}
                kernel.settled = kernel.settled if kernel.busy else message.parent_id
                self._end_after_last_cell(kernel)
                await self._rest(kernel)
            return
        message = self._wire.read(frames, check=False) if channel != "stdin" else None
        request = kernel.pending.pop(message.parent_id, None) if message else None
        if request and request.kind == "execute_request":
            self._touched = time.monotonic()
            self.cells += 1
            self._give_up(kernel, request.id)
            self._end_after_last_cell(kernel)
            await self._rest(kernel)
        for each in self._limit.passed(message, frames) if message else [frames]:
            await self._send(channel, each)

    # -- the front end ------------------------------------------------------------------------

    async def _send(self, channel: str, frames: list[Any]) -> None:
        await self._front[channel].send_multipart(frames)

    async def _received(self, channel: str) -> tuple[Message, list[bytes]]:
        """Return the next valid message: it is signed with this kernel's key."""
        while True:
            frames = await self._front[channel].recv_multipart()
            if message := self._wire.read(frames):
                return message, frames
            log.warning("a message on %s was dropped: it is not signed with this kernel's key", channel)

    async def _shell(self) -> None:
        while True:
            message, frames = await self._received("shell")
            self._touched = time.monotonic()
            if message.kind == "shutdown_request":
                self._spawn(self._shut_down("shell", message))
                continue
            if message.kind == "execute_request" and not isinstance(message.value().get("code"), str):
                await self._refuse(message, "the request has no code", name="NoCode")  # ipykernel is silent
                continue
            if self.kernel is None and message.kind == "execute_request" and not self._reason:
                await self._status("busy", message.header)  # its ipykernel may say so minutes later
                await self._begin()
            if self.kernel is None:
                if message.kind == "execute_request":
                    why, self._reason = self._reason, ""
                    await self._refuse_with_queued(message, why)
                else:
                    await self._refuse(message, self._reason)
                continue
            if (most := self.kernel.most) and sum(map(len, frames)) > most:
                why = f"a message to a kernel on another machine may have {units.size(most)} at most"
                await self._refuse(message, why, name="MessageTooLarge")
                continue
            if message.kind == "execute_request":
                self._last_cell = message
            kernel = self.kernel
            if message.kind.endswith("_request"):
                kernel.pending[message.id] = message
            if message.kind == "execute_request" and not message.value().get("silent"):
                kernel.prepared = True
                why = await kernel.process.prepare()
                if message.id not in kernel.pending:  # it ended meanwhile, and the cell with it
                    continue
                if why:
                    del kernel.pending[message.id]
                    name = "Interrupted" if self._interrupted[0] == message.id else "FilesNotSent"
                    await self._refuse_with_queued(message, f"the cell was not run: {why}", name)
                    await self._rest(kernel)
                    continue
            await kernel.send("shell", frames)

    async def _refuse_with_queued(self, cell: Message, why: str, name: str = "KernelEnded") -> None:
        """Refuse a cell, and abort the cells that were sent together with it, as any kernel does. They arrive before
        the front end learns of the failure. A cell that it sends because of the answer is not aborted.
        """
        queued: list[Message] = []
        while await self._front["shell"].poll(_TOGETHER_MS):
            queued.append((await self._received("shell"))[0])
        await self._refuse(cell, why, name=name)
        for message in queued:
            await self._refuse(message, "the cell before this one failed", aborted=True)

    async def _control(self) -> None:
        while True:
            message, frames = await self._received("control")
            if message.kind == "interrupt_request":
                self._interrupt()
                reply = self._wire.make("interrupt_reply", {"status": "ok"}, message.header, message.idents)
                await self._send("control", reply)
            elif message.kind == "shutdown_request":
                self._spawn(self._shut_down("control", message))
            elif self.kernel:
                await self.kernel.send("control", frames)
            else:
                await self._refuse(message, self._reason, channel="control")

    async def _stdin(self) -> None:
        while True:
            _, frames = await self._received("stdin")
            if self.kernel:
                await self.kernel.send("stdin", frames)

    async def _heartbeat(self) -> None:
        while True:
            await self._send("hb", await self._front["hb"].recv_multipart())

    async def _welcome(self) -> None:
        """Send each front end the message that it is connected (JEP 65)."""
        while True:
            (event,) = await self._front["iopub"].recv_multipart()
            if event[:1] == b"\x01":
                topic = event[1:].decode(errors="replace")
                frames = self._wire.make("iopub_welcome", {"subscription": topic}, {}, [event[1:]])
                await self._send("iopub", frames)

    # -- interrupt, end -----------------------------------------------------------------------

    def _interrupt(self) -> None:
        """Handle an interrupt: the first interrupts the cell, the second ends the ipykernel. A cell may hang in a
        call outside Python.
        """
        if self.kernel is None:
            return
        if not (cell := self.kernel.cell()):
            return
        pressed, at = self._interrupted
        now = time.monotonic()
        if pressed != cell.id:
            self._interrupted = (cell.id, now)
        elif now - at >= _SECOND_PRESS_S:
            why = "the cell did not stop at the first Interrupt, so the second ended its kernel"
            if self.kernel.locates and not self.kernel.ending:
                self.kernel.ending = why
                self._spawn(self.kernel.end_located())
            else:
                self._spawn(self._end(self.kernel, why, "session"))
            return
        self._spawn(self.kernel.interrupt())

    async def _shut_down(self, channel: str, message: Message) -> None:
        """Let the ipykernel run its exit handlers, briefly, and end."""
        content = {"status": "ok", "restart": message.value().get("restart", False)}
        self.keep = "container" if content["restart"] else "nothing"
        if self.kernel and self.kernel.ready.is_set():
            self.kernel.ending = "the kernel was shut down"
            await self.kernel.send("control", self._wire.make("shutdown_request", content, {}))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    await asyncio.shield(self.kernel.process.ended)
        await self._send("iopub", self._wire.make("shutdown_reply", content, message.header))
        await self._send(channel, self._wire.make("shutdown_reply", content, message.header, message.idents))
        self._over.set()

    async def _look(self, parent: int) -> None:
        """End when the front end has ended, and the ipykernel when it has been idle."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if os.getppid() != parent or front_end_ended():
                self._over.set()
            idle = time.monotonic() - self._touched
            kernel = self.kernel
            if self.registered:
                self.registered.describe(time.time() - idle, self.cells, self._state())
            if not self.idle_s or not kernel or kernel.cell():  # other requests may never be answered
                continue
            if (
                self.idle_s - _LOOK_S > _WARN_S
                and idle >= self.idle_s - _WARN_S
                and self._warned is not self._last_cell
            ):
                self._warned = self._last_cell
                await self._notice(
                    self._last_cell,
                    f"orbit: no cell has run for {idle / 60:.0f} minutes; this kernel ends in {_WARN_S:g} s",
                )
            if idle >= self.idle_s:
                why = f"this kernel was ended after {self.idle_s / 60:g} minutes without a cell"
                await self._end(kernel, why)

    def _state(self) -> State:
        if self.kernel is None:
            return "ended" if self._begun else "not started"
        if not self.kernel.ready.is_set():
            return self.kernel.process.stage
        if self.kernel.cell():
            return "busy"
        return "idle" if self.cells else "ready"

    # -- answers without an ipykernel -----------------------------------------------------------

    async def _refuse(
        self,
        message: Message,
        why: str,
        *,
        aborted: bool = False,
        idle: bool = False,
        channel: str = "shell",
        name: str = "KernelEnded",
    ) -> None:
        """Answer a request in place of the ipykernel. `aborted`: a cell before it has said why. `idle`: its output is
        complete.
        """
        kind = message.kind.removesuffix("_request")
        if kind == message.kind:  # a widget's message: nobody waits for an answer
            return
        await self._status("busy", message.header)
        content: dict[str, Any] = {"status": "ok", **self._info()}
        if kind != "kernel_info":
            status = "aborted" if aborted else "error"
            content = {
                "status": status,
                "ename": name,
                "evalue": why,
                "traceback": [f"orbit: {why}"],
            }
        if kind == "execute":
            if not (aborted or idle):
                await self._send("iopub", self._wire.make("error", dict(content), message.header))
            content |= {"execution_count": 0, "user_expressions": {}, "payload": []}
        reply = self._wire.make(f"{kind}_reply", content, message.header, message.idents)
        await self._send(channel, reply)
        await self._status("idle", message.header)

    async def _status(self, state: str, parent: dict[str, Any]) -> None:
        await self._send("iopub", self._wire.make("status", {"execution_state": state}, parent, [b"status"]))

    def _info(self) -> dict[str, Any]:
        return {
            "protocol_version": "5.3",
            "implementation": "orbit-lsp",
            "implementation_version": __version__,
            "language_info": _LANGUAGE,
            "banner": f"orbit-lsp: {self._reason}",
            "help_links": [],
        }
