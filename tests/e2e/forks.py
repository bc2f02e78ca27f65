"""Servers and commands forked from a process that has imported everything (fork_server.py)."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
LIMIT_S = 150
"""Of anything that is waited for: ten times and more of what it takes; pytest's own limit, which says less, is longer."""
LINE_LIMIT = 1 << 26


MODAL = ("modal", "modal.cli.entry_point", "modal_proto.api_pb2", "orbit_remote.modal_app.app", "toml")
"""What servers and commands import of Modal's client, half a second of CPU, where there is an account."""


class ForkServer:
    def __init__(self, *modules: str) -> None:
        self._control, far = socket.socketpair()
        command = [sys.executable, "-P", str(HERE / "fork_server.py"), str(far.fileno()), *modules]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[far.fileno()]
        )
        far.close()
        self._lock = threading.Lock()

    def start(
        self,
        words: Sequence[str],
        folder: Path,
        streams: Sequence[int],
        environment: Mapping[str, str],
        constants: Mapping[str, Any] | None = None,
    ) -> socket.socket:
        """The socket on which the process says its id and its exit status; `streams` stay the caller's to close."""
        near, far = socket.socketpair()
        request: dict[str, Any] = {
            "words": list(words),
            "folder": str(folder),
            "environment": dict(environment),
        }
        request["constants"] = dict(constants or {})
        with self._lock, far:
            sent = json.dumps(request).encode() + b"\n"
            count = socket.send_fds(self._control, [sent], [*streams, far.fileno()])
            self._control.sendall(sent[count:])
        return near

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        self._control.close()
        self._process.wait(LIMIT_S)


_servers: dict[tuple[str, ...], ForkServer] = {}


def fork(
    words: Sequence[str],
    folder: Path,
    streams: Sequence[int],
    environment: Mapping[str, str] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> socket.socket:
    """`ForkServer.start` with this process's environment and what is added to it here, by the server of this process
    that has imported what is needed. It ends with this process; where something has ended it, another takes its place.
    """
    values = {**os.environ, **(environment or {})}
    # variables for the import itself, as of its log, are for a real import
    modules = MODAL if values.get("MODAL_SERVER_URL") and "MODAL_LOGLEVEL" not in values else ()
    server = _servers.get(modules)
    if server is None or server.over:
        server = _servers[modules] = ForkServer(*modules)
        atexit.register(server.close)
    return server.start(words, folder, streams, values, constants)


class Process:
    """What a client needs of its server's process."""

    def __init__(self, pid: int, lines: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stderr = None
        self._writer = writer
        self._ended = asyncio.ensure_future(self._end(lines))

    @classmethod
    async def start(
        cls, words: Sequence[str], folder: Path, log: IO[bytes], constants: Mapping[str, Any] | None = None
    ) -> tuple[Process, asyncio.StreamWriter, asyncio.StreamReader]:
        """The process, its standard input and its standard output."""
        loop = asyncio.get_running_loop()
        far_in, near_in = os.pipe()
        near_out, far_out = os.pipe()
        status = fork(words, folder, [far_in, far_out, log.fileno()], constants=constants)
        os.close(far_in)
        os.close(far_out)
        flow = functools.partial(asyncio.streams.FlowControlMixin, loop)
        stdin = asyncio.StreamWriter(
            *await loop.connect_write_pipe(flow, os.fdopen(near_in, "wb")), None, loop
        )
        stdout = asyncio.StreamReader(limit=LINE_LIMIT)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(near_out, "rb"))
        lines, writer = await asyncio.open_connection(sock=status)
        return cls(int(await lines.readline()), lines, writer), stdin, stdout

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def kill(self) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    terminate = kill

    async def _end(self, lines: asyncio.StreamReader) -> int:
        self.returncode = int(await lines.readline() or -signal.SIGKILL)
        self._writer.close()
        return self.returncode


@dataclass(frozen=True)
class Ended:
    """A command that has ended; the names are those of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def command(
    folder: Path,
    *words: str,
    environment: Mapping[str, str] | None = None,
    given: bytes = b"",
    limit_s: float = LIMIT_S,
) -> Ended:
    """`orbit-lsp WORDS` in `folder`, with this process's environment and what is added to it here; `given` is its
    standard input.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        far_in, near_in = os.pipe()
        status = fork(words, folder, [far_in, out.fileno(), err.fileno()], environment)
        os.close(far_in)
        writer = threading.Thread(target=_write, args=[near_in, given])
        writer.start()
        status.settimeout(limit_s)
        with status, status.makefile("rb") as lines:
            lines.readline()
            try:
                code = int(lines.readline())
            except TimeoutError:
                raise AssertionError(f"orbit-lsp {' '.join(words)} did not end in {limit_s:g} s") from None
        writer.join()
        out.seek(0)
        err.seek(0)
        return Ended(code, out.read().decode(), err.read().decode())


def _write(pipe: int, given: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(pipe, "wb") as stdin:
        stdin.write(given)
