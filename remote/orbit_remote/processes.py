"""Child processes that can be ended whole: each leads a group of its own.

A group is ended with SIGKILL, grandchildren included; a compiler or a user's program has nothing to
save. On Linux a child is also killed when the process that started it dies. Windows has no groups
in this sense: there only the child itself is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

Started = Callable[[int, bool], None]
"""Told (pgid, True) when a group starts and (pgid, False) when it has ended."""


def die_with_parent() -> None:
    """In a child, before exec: be killed when the thread that forked it ends. Linux only."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def start(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
) -> asyncio.subprocess.Process:
    """Start `command` as the leader of a new group. Raises OSError where it cannot be started."""
    posix = os.name == "posix"
    creating = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *(os.fspath(part) for part in command),
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            limit=1 << 20,
            start_new_session=posix,
            preexec_fn=die_with_parent if _prctl is not None else None,
        )
    )
    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        # asyncio would end the child alone, and it may have started others already
        with contextlib.suppress(OSError):
            await asyncio.shield(finish(await creating))
        raise


def kill_group(pgid: int) -> None:
    """End every process of the group; silent where it is gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(pgid, signal.SIGKILL)
        else:
            os.kill(pgid, signal.SIGTERM)


def alive(pid: int) -> bool:
    """Whether a process of this id exists; on Windows, where asking would end it, always True."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def finish(process: asyncio.subprocess.Process) -> int:
    """Kill the group and wait until its leader is gone; returns the leader's status."""
    kill_group(process.pid)
    return await exit_status(process)


async def exit_status(process: asyncio.subprocess.Process) -> int:
    """The leader's exit code, or minus its signal, as soon as it ends.

    `Process.wait` would also wait for the pipes, which a process that left the group may hold open
    for as long as it likes.
    """
    if hasattr(os, "pidfd_open") and process.returncode is None:
        with contextlib.suppress(OSError):  # reaped already
            await _readable(os.pidfd_open(process.pid))
    pause = 0.0005
    while process.returncode is None:  # asyncio's child watcher reaps it in a moment
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.02)
    return process.returncode


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_reader(descriptor, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def communicate(
    command: Sequence[str | os.PathLike[str]],
    *,
    timeout_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    started: Started | None = None,
    limit: int = 8 << 20,
) -> tuple[int, str, str]:
    """Run `command` to its end: (status, stdout, stderr), each output cut at `limit` bytes.

    Raises OSError where it cannot be started and TimeoutError after `timeout_s`. However this ends,
    cancellation included, the whole group is gone when it returns.
    """
    process = await start(command, cwd=cwd, env=env)
    if started:
        started(process.pid, True)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(timeout_s):
            out, err = await asyncio.gather(_read(process.stdout, limit), _read(process.stderr, limit))
            status = await exit_status(process)
        return status, out, err
    finally:
        await asyncio.shield(finish(process))
        if started:
            started(process.pid, False)


async def _read(stream: asyncio.StreamReader, limit: int) -> str:
    kept = bytearray()
    while chunk := await stream.read(1 << 16):
        kept += chunk[: max(0, limit - len(kept))]
    return kept.decode(errors="replace")
