"""Finds other processes on the GPU while our work runs, as NVML sees them: the driver shares its time among all.

A lease (`worker/lease.py`) keeps our own jobs apart. Other programs can only be observed, and only if NVML uses this
process's numbers: in a container they may be from another name space. So nothing is reported unless NVML also lists a
process of ours.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

from orbit_remote.common import limits, regular_files
from orbit_remote.common.plain_text import visible
from orbit_remote.process import process_groups

_MOST = 3
"""How many of them a remark names."""
_PROCESSES = Path("/proc")


class Neighbours:
    """Collects what NVML says of the processes of one GPU."""

    def __init__(self, ask: Callable[..., Any], handle: Any, begin_us: int) -> None:
        """Make a collection. `ask` calls a function of NVML by name, and returns None if it fails. `begin_us` is Unix
        time.
        """
        self._ask = ask
        self._handle = handle
        self._begin_us = begin_us
        self._ours: dict[int, bool] = {}
        self._names: dict[int, str] = {}
        self._used: dict[int, list[int]] = defaultdict(list)
        self._counted = False
        self._last_us = begin_us

    def look(self) -> None:
        """Ask once more; a process that has ended between two looks is not seen."""
        for function in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
            self._see(process.pid for process in self._ask(function, self._handle) or ())
        samples = self._ask("nvmlDeviceGetProcessUtilization", self._handle, self._last_us)
        for process in samples or ():
            self._counted = True
            if process.timeStamp > self._begin_us:
                self._last_us = max(self._last_us, process.timeStamp)
                self._used[process.pid].append(process.smUtil)
                self._see([process.pid])

    def _see(self, pids: Iterable[int]) -> None:
        for pid in pids:
            if pid not in self._ours:
                self._ours[pid] = _is_ours(pid)
            if not self._ours[pid] and pid not in self._names:
                self._names[pid] = _name(pid)

    def busy(self) -> list[tuple[float, int]]:
        """Return (mean share of the GPU in percent, process) for each other process that used the GPU, the largest
        first.
        """
        if not any(self._ours.values()):
            return []
        shares = {pid: fmean(used) for pid, used in self._used.items() if pid in self._names}
        return sorted(((share, pid) for pid, share in shares.items() if share > 0), reverse=True)

    def remarks(self) -> tuple[str, ...]:
        """Return a sentence on the other processes that used the GPU. Processes that only had it open are not
        mentioned.
        """
        if not any(self._ours.values()):
            return ()
        if busy := self.busy():
            named = [f"{self._names[pid]} for {share:.0f} % of the time" for share, pid in busy[:_MOST]]
            return (
                f"other processes used the GPU meanwhile, so times may be longer: {_listed(named, len(busy))}",
            )
        if self._names and not self._counted:
            named = list(self._names.values())[:_MOST]
            text = f"other processes have the GPU open: {_listed(named, len(self._names))}"
            return (f"{text}; NVML does not say whether they used it",)
        return ()


def _listed(named: list[str], count: int) -> str:
    more = f" and {count - len(named)} more" if count > len(named) else ""
    return ", ".join(named) + more


def _is_ours(pid: int) -> bool:
    """Say whether a process is this one, one below it, or another of the same worker."""
    if pid == os.getpid():
        return True
    if mark := os.environ.get(process_groups.MARK):
        try:
            if f"{process_groups.MARK}={mark}".encode() in _read(pid, "environ").split(b"\0"):
                return True
        except OSError:
            pass  # another user's
    seen = {pid}
    while (pid := _parent(pid)) > 1 and pid not in seen:
        if pid == os.getpid():
            return True
        seen.add(pid)
    return False


def _parent(pid: int) -> int:
    """Return a process's parent, or 0 if the process has ended."""
    try:
        return int(_read(pid, "stat").rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _name(pid: int) -> str:
    """Return `python3 (process 4242)`, with its user if that is another one."""
    try:
        name = visible(_read(pid, "comm").decode(errors="replace").strip())
        owner = (_PROCESSES / str(pid)).stat().st_uid
    except OSError:
        return f"process {pid}"
    return f"{name} (process {pid}{'' if owner == os.getuid() else f' of {_user(owner)}'})"


def _user(uid: int) -> str:
    try:
        import pwd  # not on Windows

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return f"uid {uid}"


def _read(pid: int, name: str) -> bytes:
    return regular_files.read(_PROCESSES / str(pid) / name, limits.STATE)
