"""Ends of processes, awaited as what they are: events of the kernel."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

LIMIT_S = 120.0
"""For what takes a moment on an idle machine."""


def open_handles(pids: Iterable[int], stack: ExitStack) -> dict[int, int]:
    """A descriptor for each that has not been reaped -> its process; readable once that has ended."""
    handles: dict[int, int] = {}
    for pid in pids:
        with suppress(ProcessLookupError, FileNotFoundError):  # not found: the number is that of a thread now
            handle = os.pidfd_open(pid)
            stack.callback(os.close, handle)
            handles[handle] = pid
    return handles


def wait_until_ended(*pids: int) -> None:
    """Until each of these has ended, whoever reaps it."""
    with ExitStack() as stack:
        handles = open_handles(pids, stack)
        while handles:
            ended, _, _ = select.select(list(handles), [], [], LIMIT_S)
            commands = [f"{pid} ({command(pid)})" for pid in handles.values()]
            assert ended, f"{', '.join(commands)} did not end within {LIMIT_S:g} s"
            for handle in ended:
                del handles[handle]


async def ended(*pids: int) -> None:
    await asyncio.to_thread(wait_until_ended, *pids)


def is_alive(pid: int) -> bool:
    """Whether it runs: a process that has ended and was not reaped does not."""
    with ExitStack() as stack:
        handles = list(open_handles([pid], stack))
        return bool(handles) and not select.select(handles, [], [], 0)[0]


def command(pid: int) -> str:
    """Its command line; empty where it has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
