"""Processes of containers, forked from one process that has imported Modal's entrypoint (zygote.py)."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import os
import site
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import modal

ZYGOTE = Path(__file__).with_name("zygote.py")
ENTRYPOINT = "modal._container_entrypoint"
SITE = str(ZYGOTE.with_name("site"))
_HOME = str(Path(modal.__file__).parent.parent)
# where `modal` is, unless every Python of this kind finds it
MODAL = [] if _HOME in site.getsitepackages() else [_HOME]
# variables that Python and Modal's client may read but once, as they start: here the zygote has
READ_AT_START = ("PYTHON", "MODAL_")
_starting = threading.Lock()


@functools.cache
def _zygote() -> socket.socket:
    """The end of it that takes requests; started when the first container is, and for as long as this process."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, str(ZYGOTE), ENTRYPOINT, str(its.fileno())]
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
    environment |= {"HOME": SITE, "PYTHONPATH": os.pathsep.join([SITE, *MODAL]), "MODAL_IS_REMOTE": "1"}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, pass_fds=[its.fileno()], start_new_session=True
    )
    its.close()

    @atexit.register
    def end() -> None:  # pyright: ignore[reportUnusedFunction]
        ours.close()
        process.wait()

    return ours


@dataclass
class Process:
    """Process 1 of a container, whose child is its entrypoint."""

    pid: int
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    _news: asyncio.StreamReader
    _orders: int  # a pipe

    @classmethod
    async def start(cls, environment: Mapping[str, str], folder: Path, *, fresh: bool) -> Self:
        """`fresh`: not forked from what has imported Modal, but with a Python of its own."""
        asked = {"environment": environment, "folder": str(folder), "fresh": fresh}
        message = json.dumps(asked).encode()
        with _starting:
            zygote = _zygote()
        its_orders, orders = os.pipe()
        news, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
        given = [its_orders, news[1], stdout[1], stderr[1]]
        socket.send_fds(zygote, [message], given)
        for descriptor in given:
            os.close(descriptor)
        reader = await _reader(news[0])
        pid = int(await reader.readline())
        return cls(pid, await _reader(stdout[0]), await _reader(stderr[0]), reader, orders)

    def send(self, number: int) -> None:
        """A signal for the entrypoint."""
        with contextlib.suppress(BrokenPipeError):  # it has ended
            os.write(self._orders, b"%d\n" % number)

    async def end(self) -> int:
        """Kill whatever still runs; how the entrypoint exited, as a shell says it."""
        os.close(self._orders)
        code = int(await self._news.readline())
        await self._news.read()
        return code


async def _reader(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    pipe = open(descriptor, "rb", buffering=0)  # noqa: ASYNC230, SIM115 - the transport closes it
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader
