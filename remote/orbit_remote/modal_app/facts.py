"""Finds out what a container is like, as far as that is possible without a GPU. `scripts/modal_smoke.py` uses it; its
report answers what Modal's documentation leaves open.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orbit_remote.common import limits, regular_files

_LANDLOCK_CREATE_RULESET = 444
_TOOLS = ("nvcc", "ncu", "compute-sanitizer", "g++", "python3", "nvidia-smi")


def facts(
    volume: Path, commit: Callable[[], None] | None, reload: Callable[[], None] | None
) -> dict[str, str]:
    """Return a sentence or a figure for each question. What cannot be answered says why."""
    asked: dict[str, Callable[[], object]] = {
        "user": lambda: f"{os.getuid()}, capabilities {_status('CapEff')}",
        "kernel": lambda: f"{platform.system()} {platform.release()}",
        "python": lambda: f"{sys.version.split()[0]}, {sys.executable}",
        "path": lambda: os.environ.get("PATH", ""),
        **{f"which {tool}": lambda tool=tool: shutil.which(tool) or "none" for tool in _TOOLS},
        "landlock": _landlock,
        "seccomp": lambda: _status("Seccomp"),
        "pidfd": lambda: os.close(os.pidfd_open(os.getpid())) or "there",
        "cores": os.cpu_count,
        "cores that may be used": lambda: len(os.sched_getaffinity(0)),
        "/dev/shm": lambda: _room(Path("/dev/shm")),  # noqa: S108
        "volume": lambda: _room(volume),
        "volume: a file written and renamed": lambda: _timed(
            lambda: regular_files.replace(volume / "smoke.tmp", b"x")
        ),
        "volume: a time set": lambda: _timed(lambda: os.utime(volume / "smoke.tmp")),
        "volume: commit": lambda: _timed(commit) if commit else "none",
        "volume: reload": lambda: _timed(reload) if reload else "none",
        "variables of Modal": lambda: " ".join(
            sorted(name for name in os.environ if name.startswith("MODAL_"))
        ),
        "driver parameters": lambda: regular_files.text("/proc/driver/nvidia/params", limits.STATE)[:500],
    }
    try:
        return {name: _answer(ask) for name, ask in asked.items()}
    finally:
        (volume / "smoke.tmp").unlink(missing_ok=True)


def _answer(ask: Callable[[], object]) -> str:
    try:
        return str(ask())
    except Exception as error:  # noqa: BLE001 - that it cannot be asked is the answer
        return f"{type(error).__name__}: {error}"


def _status(name: str) -> str:
    lines = regular_files.text("/proc/self/status", limits.STATE).splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")), "not said")


def _landlock() -> str:
    library: Any = ctypes.CDLL(None, use_errno=True)
    version = library.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return f"version {version}" if version > 0 else os.strerror(ctypes.get_errno())


def _room(folder: Path) -> str:
    usage = shutil.disk_usage(folder)
    return f"{usage.free >> 20} MiB of {usage.total >> 20} MiB free"


def _timed(work: Callable[[], object]) -> str:
    began = time.perf_counter()
    work()
    return f"{1e3 * (time.perf_counter() - began):.1f} ms"
