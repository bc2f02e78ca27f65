"""Child processes that can be ended as a whole: each leads a process group of its own.

A group is ended with SIGKILL, grandchildren included; a compiler or a user's program has nothing to save. On Linux a
child is also killed when the process that started it dies. Windows has no such groups: there only the child itself is
ended.

A process can leave its group (`setsid`, a double fork, a daemon). On Linux it is found nevertheless. Every leader is
the reaper of what is below it: an orphan stays below its own job's leader while that lives, and comes to us when the
leader has ended. So a child of ours that we did not start is a stray of a job that is over, whatever else runs. No
name, variable or snapshot is needed to know whose it is. Work that was handed to another service (`systemd-run`, a
container engine) cannot be found here, and what runs as another user cannot be ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orbit_remote.common import limits
from orbit_remote.process import client_environment

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_STRAYS_S = 20.0
"""How long killed processes are waited for. One that holds a CUDA context takes a while to go, one on a busy machine
until it is scheduled once more; one that the kernel holds on to may never.
"""
_STOPPED_S = 1.0
_LOOK_S = 0.001, 0.05
"""From one look at them to the next, at first and at most."""

MARK = "ORBIT_WORKER"
"""The variable that names the worker a program belongs to, for when that worker has been killed."""

_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

Started = Callable[[int, bool], None]
"""Called with (pgid, True) when a group starts and (pgid, False) when it has ended."""


def new_mark() -> str:
    """Return a value of `MARK` that no other worker has."""
    return os.urandom(16).hex()


def die_with_parent(by: int = signal.SIGKILL) -> None:
    """Arrange, in a child before exec, that it is killed when the thread that forked it ends; 0 for not at all. Linux
    only.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, by)


def end_after_parent() -> None:
    """Arrange that this process ends a few seconds after the thread that started it, whatever it computes. Linux
    only.

    A handler in Python, and any thread, would wait for a regular expression to release the interpreter. So the kernel
    sends SIGQUIT, whose handler is the C library's `alarm`. It is called with the signal's number, 3, and so has the
    process killed 3 s later.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
        library.signal(int(signal.SIGQUIT), ctypes.cast(library.alarm, ctypes.c_void_p))
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def limit_memory(most: int) -> None:
    """Limit a child before exec: no process of it gets more than `most` bytes of memory of its own, nor writes a file
    larger than a compiler may. Linux only.
    """
    if _prctl is not None:
        import resource

        for kind, wanted in (
            (resource.RLIMIT_DATA, most),
            (resource.RLIMIT_FSIZE, limits.COMPILER_FILE.most),
        ):
            _, hard = resource.getrlimit(kind)
            allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(kind, (allowed, allowed))


def reap_orphans() -> None:
    """Become the parent of everything below this process that loses its own parent. Linux only.

    This outlasts exec, and is not inherited by a fork.
    """
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _lead(memory: int | None) -> None:
    die_with_parent()
    reap_orphans()
    # A shell starts its background jobs with SIGINT and SIGQUIT ignored, and exec passes that on: a profiler
    # that ignores SIGINT never writes its report.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if memory is not None:
        limit_memory(memory)


_adopts = False
_leaders: set[int] = set()
_stuck: set[int] = set()
"""What was killed and did not end in time: nothing waits for it a second time."""
_starting: set[asyncio.Future[asyncio.subprocess.Process]] = set()


def adopt() -> None:
    """Make `finish` end strays too. This is for a process whose children are all started by `start`, or stay in its
    own session. Linux only.
    """
    global _adopts  # noqa: PLW0603 - a property of the process
    reap_orphans()
    _adopts = _prctl is not None


async def start(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
    limit: int = 1 << 20,
    memory: int | None = None,
) -> asyncio.subprocess.Process:
    """Start `command` as the leader of a new group. `limit` is for the longest line that is read of it, `memory` is
    the bytes that each of its processes may have. Raises OSError if it cannot be started.
    """
    posix = os.name == "posix"
    creating = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *(os.fspath(part) for part in command),
            cwd=cwd,
            env=dict(client_environment.current() if env is None else env),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            limit=limit,
            start_new_session=posix,
            preexec_fn=functools.partial(_lead, memory) if _prctl is not None else None,
        )
    )
    _starting.add(creating)
    creating.add_done_callback(_started)
    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        # asyncio would end the child alone, and it may have started others already
        with contextlib.suppress(OSError):
            await asyncio.shield(finish(await creating))
        raise


def _started(creating: asyncio.Future[asyncio.subprocess.Process]) -> None:
    _starting.discard(creating)
    if not creating.cancelled() and creating.exception() is None:
        _leaders.add(creating.result().pid)


def kill_group(pgid: int) -> None:
    """End every process of the group; does nothing if it has ended already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(pgid, signal.SIGKILL)
        else:
            os.kill(pgid, signal.SIGTERM)


def alive(pid: int) -> bool:
    """Say whether a process of this id exists. On Windows it is always True, because asking would end the process."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Continued:
    """Makes a process go on that a user's program has stopped (SIGSTOP, or a trace whose tracer has ended), as long
    as it is `wanted`. A stopped process could not report that. It is checked once a second, from `watch` on. Linux
    only.
    """

    def __init__(self, pid: int, wanted: Callable[[], bool]) -> None:
        self._pid = pid
        self._wanted = wanted
        self._timer: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        if self._timer is None and sys.platform == "linux":
            self._timer = asyncio.get_running_loop().call_later(_STOPPED_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._wanted():
            return
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{self._pid}/stat").read_bytes().rpartition(b") ")[2][:1]
            if state == b"T":
                os.kill(self._pid, signal.SIGCONT)
        self.watch()


async def finish(process: asyncio.subprocess.Process) -> int:
    """Kill the group, wait until its leader is gone, and end the processes that left the group. Return the leader's
    status.
    """
    kill_group(process.pid)
    status = await exit_status(process)
    _leaders.discard(process.pid)
    if _adopts:
        await _end_adopted()
    return status


async def _end_adopted() -> None:
    session = os.getsid(0)
    deadline = time.monotonic() + _STRAYS_S
    pause, longest = _LOOK_S
    left: set[int] = set()
    while time.monotonic() < deadline:
        while _starting:  # forked perhaps, and not yet among the leaders
            await asyncio.wait(_starting)
        # what threads start with `subprocess` stays in this session; a leader and all below it have left it
        left = kill_strays(lambda pid, sid: pid in _leaders or sid == session)
        if not left - _stuck:
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, longest)
    _stuck.update(left)


def kill_strays(ours: Callable[[int, int], bool]) -> set[int]:
    """Kill every child of this process for which `ours(pid, session)` is false, and all below it.

    Return those that were still there. Then call it again, because the killed processes leave orphans. Linux only.
    """
    children = _children()
    adopted = [pid for pid, sid in children.get(os.getpid(), {}).items() if not ours(pid, sid)]
    killed: set[int] = set()
    for pid in adopted:
        below = [pid]
        for descendant in below:
            below += children.get(descendant, ())
            if _kill(descendant):
                killed.add(descendant)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    _stuck.intersection_update(killed)  # the number of an ended process may be given to another one
    return killed


def end_strays(ours: Callable[[int, int], bool]) -> None:
    """Call `kill_strays` until none is left, or for a while. Processes that the kernel holds on to end when they can."""
    deadline = time.monotonic() + _STRAYS_S
    pause, longest = _LOOK_S
    while (left := kill_strays(ours)) - _stuck:
        if time.monotonic() >= deadline:
            _stuck.update(left)
            return
        time.sleep(pause)
        pause = min(2 * pause, longest)


def stop_below(root: int, stopped: list[int]) -> None:
    """Stop all processes below a stopped process, and add them to `stopped`. Linux only."""
    while new := [pid for pid in _below(root) if pid not in stopped]:
        for pid in new:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP)
        stopped += new  # before they stopped, they may have started more


def _below(root: int) -> list[int]:
    """Return the processes below a process. This takes 10 µs for each thread, or milliseconds to look at every
    process of the machine.
    """
    below, by_parent = [root], None
    for pid in below:
        try:
            below += _children_of(pid)
        except OSError:  # it has ended, or the kernel has no such files
            by_parent = by_parent or _children()
            below += by_parent.get(pid, ())
    return below[1:]


def _children_of(pid: int) -> list[int]:
    """Raises OSError."""
    children: list[int] = []
    for task in os.scandir(f"/proc/{pid}/task"):
        with open(f"{task.path}/children", "rb") as file:  # noqa: PTH123
            children += map(int, file.read().split())
    return children


def _kill(pid: int) -> bool:
    """Say whether there was something that can be killed."""
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _children() -> dict[int, dict[int, int]]:
    """Return parent -> its children, each with its session. (`/proc/*/task/*/children` is not in every kernel.)"""
    by_parent: dict[int, dict[int, int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry.name}/stat", "rb") as stat:  # noqa: PTH123
                # pid (any name) state parent group session …
                _, parent, _, session, *_ = stat.read().rpartition(b")")[2].split(maxsplit=4)
                by_parent.setdefault(int(parent), {})[int(entry.name)] = int(session)
    return by_parent


def command(pid: int) -> list[bytes]:
    """Return the command line of a process. It is empty if the process has ended. Linux only."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as words:  # noqa: PTH123
            return words.read().split(b"\0")
    except OSError:
        return []


def memory(root: int) -> int | None:
    """Return the bytes of memory that a process and all below it hold. Each shared page counts for its share. Return
    None if the system does not say. Linux only.
    """
    if _prctl is None:
        return None
    held = [_proportional(pid) for pid in _tree(root)]
    return sum(size for size in held if size is not None) if held[0] is not None else None


def written(root: int) -> int:
    """Return the bytes that a process and all below it have written to files, pipes and sockets, as far as the system
    says. Linux only.
    """
    return sum(_written(pid) for pid in _tree(root)) if _prctl is not None else 0


def _written(pid: int) -> int:
    """Return what one process and its ended children have written: what they passed to `write`, or what was written
    through mapped memory.
    """
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/io", "rb") as counts:  # noqa: PTH123
        known = dict(line.split(b":") for line in counts.read().splitlines())
        return max(int(known.get(name, 0)) for name in (b"wchar", b"write_bytes"))
    return 0


def _tree(root: int) -> list[int]:
    children = _children()
    tree = [root]
    for pid in tree:
        tree += children.get(pid, ())
    return tree


def _proportional(pid: int) -> int | None:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup", "rb") as sizes:  # noqa: PTH123
        for line in sizes:
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) << 10
    return None


def end_marked(worker: str) -> None:
    """Kill the programs of a worker that was killed before it could end them. Linux only.

    They were handed to init, so only their environment says whose they are. A daemon that cleared or overwrote its
    environment is not found.
    """
    if _prctl is None:
        return
    wanted = f"{MARK}={worker}".encode()
    deadline = time.monotonic() + _STRAYS_S
    killed: set[int] = set()
    more = True
    while more and time.monotonic() < deadline:  # what is killed may have started others meanwhile
        more = False
        for entry in os.scandir("/proc"):
            if entry.name.isdigit() and int(entry.name) not in {os.getpid(), *killed}:
                with contextlib.suppress(OSError), open(f"/proc/{entry.name}/environ", "rb") as environ:  # noqa: PTH123
                    if wanted in environ.read().split(b"\0") and _kill(int(entry.name)):
                        killed.add(int(entry.name))
                        more = True


async def exit_status(process: asyncio.subprocess.Process) -> int:
    """Return the leader's exit code, or minus its signal, as soon as it ends.

    `Process.wait` would also wait for the pipes, which a process that left the group may hold open as long as it
    likes.
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
    limit: int = limits.OUTPUT.most,
    memory: int | None = None,
) -> tuple[int, str, str]:
    """Run `command` to its end. Return (status, stdout, stderr), each output cut at `limit` bytes. `memory` is as in
    `start`.

    Raises OSError if it cannot be started and TimeoutError after `timeout_s`. However this ends, cancellation
    included, the whole group is gone when it returns.
    """
    process = await start(command, cwd=cwd, env=env, memory=memory)
    if started:
        started(process.pid, True)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(timeout_s):
            out, err = await asyncio.gather(_read(process.stdout, limit), _read(process.stderr, limit))
            status = (
                await process.wait()
            )  # its pipes have ended; asyncio then closes them, before a loop that ends
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
