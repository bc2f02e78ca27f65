"""GPU core dumps of processes, in a folder: the driver's variables that ask for them, and the reader of the dumps.

With these variables the driver ends a process after its dump. It writes none in a process in which CUPTI records (see
`second_look`).
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from orbit_remote.process import process_groups
from orbit_remote.toolchain import gpu_dump

LONGEST_S = 60.0
"""How long the driver may take to write a dump. A GPU with 8,448 warps took 5.5 s (H200)."""
UNSET = {"CUDA_INJECTION64_PATH": ""}
"""With it the driver writes no dump."""
_QUIET_S = 0.05
"""How long nothing has been written to a dump that is whole."""
_SKIPPED = "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory"


def on_exception(folder: Path) -> dict[str, str]:
    """Return variables of the CUDA driver (CUDA-GDB's documentation, "GPU core dump support"). %p is the process id."""
    return {
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
        "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP": "1",
        "CUDA_COREDUMP_GENERATION_FLAGS": _SKIPPED,
        "CUDA_COREDUMP_FILE": str(folder / "%p.core"),
        **UNSET,
    }


def on_request(folder: Path) -> dict[str, str]:
    """Return variables with which one byte written into the pipe asks for a dump."""
    own = {"CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1", "CUDA_COREDUMP_PIPE": str(folder / "%p.pipe")}
    return {**on_exception(folder), **own}


def request(folder: Path) -> bool:
    """Ask every process that has a context for a dump. Return False if no process has one."""
    asked = False
    for pipe in folder.glob("*.pipe"):
        with contextlib.suppress(OSError):
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            try:
                asked = os.write(descriptor, b"\n") == 1 or asked
            finally:
                os.close(descriptor)
    return asked


def _dumps(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.core") if path.stem.isdigit())


def all_whole(folder: Path) -> bool:
    dumps = _dumps(folder)
    return bool(dumps) and all(map(_is_whole, dumps))


def _is_whole(dump: Path) -> bool:
    """Return whether a dump is complete: its process has ended, or the file no longer changes and can be read."""
    if not process_groups.alive(int(dump.stem)):
        return True
    try:
        if time.time() - dump.stat().st_mtime < _QUIET_S:
            return False
        gpu_dump.read(dump)
    except (OSError, ValueError):
        return False
    return True


def read_first(folder: Path) -> gpu_dump.CoreDump | None:
    """Return the first dump with a fault, else the first. Raises OSError and ValueError if none can be read."""
    dumps: list[gpu_dump.CoreDump] = []
    error: Exception | None = None
    for path in _dumps(folder):
        try:
            dumps.append(gpu_dump.read(path))
        except (OSError, ValueError) as caught:
            error = caught
    if not dumps and error:
        raise error
    return next(
        (dump for dump in dumps if dump.faults),
        next((dump for dump in dumps if dump.grids), dumps[0] if dumps else None),
    )
