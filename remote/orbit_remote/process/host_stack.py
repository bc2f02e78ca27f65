"""Finds what the host code of a program does that launches nothing: whether it computes or waits, and in which
function.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from orbit_remote.common.messages import Place

_WATCHED_S = 0.1
"""How long a process is watched, to see whether it uses a core."""
_DEBUGGER_S = 5.0
_FRAMES = 32
_FRAME = re.compile(
    r"^#\d+\s+(?:0x[0-9a-f]+ in )?(?P<function>.+?) ?\((?P<rest>.*)\)(?: at (?P<file>.+):(?P<line>\d+)| from (?P<library>.+))?$",
    re.MULTILINE,
)
"""A frame of gdb's `backtrace`: `#1  0x… in spin (n=1) at host.cpp:7`, `#0  0x… in read () from /lib/libc.so.6`."""


def of(group: int, nvcc: str | None, own: Callable[[str], str | None]) -> tuple[str, Place | None]:
    """Return words such as `computed, in spin`, and the line, if the program has line information and a debugger is
    here. Return no words if the group has no process. `own` names the author's files. Takes a few tenths of a second.
    Linux only.
    """
    before = _used(group)
    if not before:
        return "", None
    time.sleep(_WATCHED_S)
    busy = {pid: seen != before.get(pid) or seen[0] == "R" for pid, seen in _used(group).items()}
    if not busy:
        return "", None
    pid = max(busy, key=lambda each: (busy[each], each == group))
    function, place = innermost(_frames(pid, nvcc), own)
    return ("computed" if busy[pid] else "waited") + (f", in {function}" if function else ""), place


def _used(group: int) -> dict[int, tuple[str, int]]:
    """Return the state of each process of a group and the clock ticks that it has used (proc(5), /proc/pid/stat). In
    the state R it runs, or would run if a core were free.
    """
    used: dict[int, tuple[str, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                used[int(stat.parent.name)] = fields[0], int(fields[11]) + int(fields[12])
    return used


def _frames(pid: int, nvcc: str | None) -> str:
    """Return gdb's backtrace of a process; empty without a debugger, or where it may not look."""
    beside = shutil.which("cuda-gdb", path=str(Path(nvcc).parent)) if nvcc else None
    debugger = shutil.which("gdb") or beside or shutil.which("cuda-gdb")
    if debugger is None:
        return ""
    command = [debugger, "-nx", "-nh", "-batch", "-p", str(pid), "-ex", f"backtrace {_FRAMES}"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DEBUGGER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def innermost(frames: str, own: Callable[[str], str | None]) -> tuple[str, Place | None]:
    """Return the author's innermost function, and its line if that is known: the first frame in a file of the
    author's, else the first of the program itself.
    """
    program = ""
    for frame in _FRAME.finditer(frames):
        function = frame["function"]
        if frame["file"] and (file := own(frame["file"])):
            return function, Place(file, int(frame["line"]))
        if not program and not frame["file"] and not frame["library"] and function != "??":
            program = function
    return program, None
