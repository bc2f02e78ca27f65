"""How `process_groups.start` starts a program from a process of pytest: what the product's Python does between fork and exec, a small
program does after exec, and then becomes the program that was asked for.

A process that has imported the tests and torch has half a gigabyte and more, whose page tables a fork copies: 50 to 100 ms of
processor time for each start. Without a function to call in the child, Python forks none of it (vfork). Real servers, workers and
commands are not touched: they start what they start as they do at a user's. A test of what `start` itself
does asks for `real_starts`.
"""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
from pathlib import Path
from typing import Any

from orbit_remote.common import limits
from orbit_remote.process import process_groups

SOURCE = r"""
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static void at_most(int kind, rlim_t wanted) {
  struct rlimit now;
  getrlimit(kind, &now);
  if (now.rlim_max != RLIM_INFINITY && now.rlim_max < wanted) wanted = now.rlim_max;
  now.rlim_cur = now.rlim_max = wanted;
  setrlimit(kind, &now);
}

// MEMORY FILE PATH WORD...: PATH with these words; MEMORY and FILE are limits in bytes, or empty
int main(int count, char** words) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  signal(SIGINT, SIG_DFL);
  signal(SIGQUIT, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  if (*words[1]) {
    at_most(RLIMIT_DATA, strtoull(words[1], NULL, 10));
    at_most(RLIMIT_FSIZE, strtoull(words[2], NULL, 10));
  }
  execv(words[3], words + 4);
  return 127;
}
"""
_real = asyncio.create_subprocess_exec


def built(folder: Path) -> Path:
    """The small program, compiled once for all processes of a run."""
    program = folder / "lead"
    if not program.exists():
        own = folder / f"lead-{os.getpid()}"
        subprocess.run(
            ["g++", "-O1", "-Wall", "-Werror", "-x", "c", "-", "-o", str(own)],
            input=SOURCE, text=True, check=True,
        )  # fmt: skip
        own.rename(program)
    return program


class Starts:
    """In the place of `asyncio.create_subprocess_exec`."""

    def __init__(self, lead: Path) -> None:
        self.count = 0
        self._lead = str(lead)

    async def __call__(self, *command: str, **options: Any) -> asyncio.subprocess.Process:
        how = options.get("preexec_fn")
        if not (isinstance(how, functools.partial) and how.func is process_groups._lead):
            return await _real(*command, **options)
        path = _program(command[0], options)
        if path is None:  # the error is Python's
            return await _real(*command, **options)
        self.count += 1
        (memory,) = how.args
        bounds = ["", ""] if memory is None else [str(memory), str(limits.COMPILER_FILE.most)]
        return await _real(self._lead, *bounds, path, *command, **options | {"preexec_fn": None})


def _program(name: str, options: dict[str, Any]) -> str | None:
    """Where it lies; None where it may not start."""
    folder = Path(options.get("cwd") or ".").absolute()
    if not folder.is_dir():
        return None
    places = [""] if "/" in name else os.get_exec_path(options.get("env"))
    for place in places:
        path = folder / place / name
        if path.is_file() and os.access(path, os.X_OK):
            return str(path) if _starts(path) else None
    return None


def _starts(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(1000)
    words = first[2:].split()
    return os.access(words[0], os.X_OK) if first.startswith(b"#!") and words else first.startswith(b"\x7fELF")
