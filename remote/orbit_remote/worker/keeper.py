"""Keeps one notebook kernel: starts it in this Python, interrupts it, and ends it with all it started.

A line of JSON on standard input is a request, `{"do": "interrupt"}`; the end of standard input ends the kernel. Standard
output has one line when the kernel has started and one when it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import sys
from typing import Any

from orbit_remote import MAIN
from orbit_remote.process import process_groups


def main(arguments: list[str]) -> int:
    """`arguments`: the kernel's connection file."""
    (connection,) = arguments
    if importlib.util.find_spec("ipykernel") is None:
        _tell(
            event="ended",
            failure=f"{sys.executable} has no ipykernel: run `{sys.executable} -m pip install ipykernel`, then run the cell again",
        )
        return 0
    asyncio.run(_keep(connection))
    return 0


async def _keep(connection: str) -> None:
    process_groups.adopt()
    # the notebook's parent is here: ipykernel would watch the process that this variable names
    environment = {name: value for name, value in os.environ.items() if name != "JPY_PARENT_PID"}
    errors = sys.stderr.fileno()
    command = [sys.executable, "-P", str(MAIN), "cells", "-f", connection]
    process = await process_groups.start(command, env=environment, stdout=errors, stderr=errors)
    _tell(event="started", pid=process.pid)
    ended = asyncio.ensure_future(process_groups.exit_status(process))
    obeying = asyncio.ensure_future(_obey(process.pid))
    await asyncio.wait([ended, obeying], return_when=asyncio.FIRST_COMPLETED)
    obeying.cancel()
    status = await process_groups.finish(process)
    with contextlib.suppress(BrokenPipeError):
        _tell(event="ended", status=status)


async def _obey(group: int) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if json.loads(line)["do"] == "interrupt":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGINT)  # what a cell waits for, as `!make`, is interrupted too


def _tell(**event: Any) -> None:
    print(json.dumps(event), flush=True)
