"""The process that keeps one notebook's kernels for an evaluation server or a client by ssh, and the end of it that
starts it.

They exchange records: `open` begins a session, `pieces` come and go as the author's side signed them, `over` ends the
session and says why. The end of standard input, and SIGTERM, end the process with all that it started.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from orbit_remote import MAIN
from orbit_remote.common import codec, content_store
from orbit_remote.common.content_store import ContentStore, unusable
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.modal_app.mirror import Mirror
from orbit_remote.modal_app.notebook_host import NotebookHost, NotebookPlace, NotebookRequest
from orbit_remote.process.client_environment import NOTEBOOK_CACHE
from orbit_remote.process.process_groups import exit_status
from orbit_remote.process.records import Records, packed

RESTART_S = 60.0
"""How long the process stays for a kernel that is started again, with the files that cells wrote."""
_STORE = 8 << 30
"""Bytes of the files of a notebook's author."""
_MOST_KEPT = 64 << 20
"""Bytes that the author's side has not fetched, at the server: it asks for more than it takes."""
_ANSWER = 4 << 20
_END_S = 15.0
_ENDED_THERE = "it was ended on the server"


class HostProcess:
    """One process, and its present session."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._pieces: deque[bytes] = deque()
        self._kept = 0
        self._news = asyncio.Event()
        self.over: str | None = None
        """Why its session is over; None while it is not."""
        self.waits = False
        """The process stays for another session."""
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str]) -> HostProcess:
        """Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        return cls(process)

    @property
    def ended(self) -> bool:
        """Say whether the process has ended and nobody fetches its last words any more."""
        return self._reading.done()

    async def open(self, asked: Mapping[str, Any]) -> None:
        self._pieces.clear()
        self._kept, self.over, self.waits = 0, None, False
        await self._write(packed("open", [json.dumps(dict(asked)).encode()]))

    async def put(self, pieces: bytes) -> None:
        """Put records. Raises ValueError for bytes that are no records."""
        for _, parts in Records().feed(pieces):
            await self._write(packed("pieces", parts))

    async def take(self, wait_s: float) -> bytes:
        """Return what the process has sent, as records. Return nothing if nothing came meanwhile."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not self._pieces and self.over is None:
                    self._news.clear()
                    await self._news.wait()
        taken: list[bytes] = []
        while self._pieces and sum(map(len, taken)) < _ANSWER:
            taken.append(self._pieces.popleft())
        self._kept -= sum(map(len, taken))
        if taken:
            return packed("pieces", taken)
        return b"" if self.over is None else packed("over", [self.over.encode()])

    async def close(self) -> None:
        """End it with all that it started."""
        if self._process.stdin:
            self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await asyncio.shield(self._reading)
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self._reading

    async def _write(self, data: bytes) -> None:
        if self._process.stdin and not self._process.stdin.is_closing():
            with suppress(ConnectionError):
                self._process.stdin.write(data)
                await self._process.stdin.drain()

    async def _read(self) -> None:
        assert self._process.stdout
        records = Records()
        while data := await self._process.stdout.read(1 << 16):
            for name, parts in records.feed(data):
                if name == "over":
                    self.over, self.waits = parts[0].decode(), parts[1] == b"keep"
                else:
                    self._pieces += parts
                    self._kept += sum(map(len, parts))
                self._news.set()
            if self._kept > _MOST_KEPT and self._process.stdin:
                self._process.stdin.close()
        await exit_status(self._process)
        if self.over is None:
            self.over = "the process that kept its kernel on the server has ended"
        self.waits = False
        self._news.set()


class _Ended(BaseException):
    pass


@dataclass(frozen=True, slots=True)
class _Opened:
    """What opens a session. `root` names the author's folder, `name` is the last part of its path."""

    root: str
    name: str
    secret: str


def serve(
    home: Path, python: str, cache: Path, gpu: str = "", busy: Callable[[bool], object] = bool, *,
    contents: ContentStore | None = None, stays: bool = True,
) -> None:  # fmt: skip
    """Do the process's own work, in its main thread: sessions over standard input and output, until it is told to end
    or nobody opens another one.

    `home` is a folder of its own, which it removes. `cache` has the launch recorder's builds. `busy` is told when a
    cell begins and when none runs. `contents` holds what was sent; without it, `home` does. Before a kernel is
    started again the process waits, or without `stays` leaves `home` to the next one.
    """
    opened: queue.SimpleQueue[tuple[bytes, queue.SimpleQueue[list[bytes]]]] = queue.SimpleQueue()
    out = os.dup(1)
    os.dup2(2, 1)  # what anything prints must not be taken for a record

    def read() -> None:
        records = Records()
        pieces: queue.SimpleQueue[list[bytes]] = queue.SimpleQueue()
        with suppress(OSError, ValueError):
            while data := os.read(0, 1 << 16):
                for name, parts in records.feed(data):
                    if name == "open":
                        pieces = queue.SimpleQueue()  # a thread of the last session may still wait at its own
                        opened.put((parts[0], pieces))
                    else:
                        pieces.put(parts)
        os.kill(os.getpid(), signal.SIGTERM)

    def write(name: str, *parts: bytes) -> None:
        waiting = memoryview(packed(name, parts))
        while waiting:
            waiting = waiting[os.write(out, waiting) :]

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _Ended

    mirrors: dict[str, Mirror] = {}
    left = False
    try:
        signal.signal(signal.SIGTERM, end)
        threading.Thread(target=read, daemon=True).start()
        store = contents or ContentStore(home / "files", _STORE)
        environment = {name: value for name, value in os.environ.items() if name != "ORBIT_API_TOKEN"}
        environment[NOTEBOOK_CACHE] = str(cache)
        wait_s: float | None = None
        while True:
            text, pieces = opened.get(timeout=wait_s)
            asked = codec.build(_Opened, codec.read_json(text))
            get = partial(pieces.get, timeout=1.0)
            name = "work" if "/" in asked.name or unusable(asked.name) else asked.name
            tree = home / "work" / name
            tree.mkdir(parents=True, exist_ok=True)
            files = mirrors.setdefault(name, Mirror(tree))
            place = NotebookPlace(MAIN.parent, tree, None, environment, files, lambda: store, python, busy)
            host = NotebookHost(
                NotebookRequest(asked.root, asked.secret), place, lambda piece: write("pieces", piece), get
            )
            answer, keep = host.serve({"gpu": gpu})
            busy(False)
            left = keep and not stays
            write("over", str(answer["ended"]).encode(), b"keep" if keep else b"")
            if not keep or left:
                return
            wait_s = RESTART_S
    except queue.Empty:
        return
    except _Ended:
        with suppress(OSError):
            write("over", _ENDED_THERE.encode(), b"")
    except (OSError, ValueError) as error:
        with suppress(OSError):
            write("over", f"the kernel could not be started on the server: {error}".encode(), b"")
    finally:
        if not left:
            content_store.remove(home)
