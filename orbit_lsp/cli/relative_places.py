"""Handles relative paths. In environment variables they are dropped, so that the folder in which we are started
chooses no program. In options they are relative to the current folder, and `~` is the user's.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

_LISTS = (
    "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LIBRARY_PATH", "COMPILER_PATH", "PYTHONPATH",
)  # fmt: skip
_FOLDERS = ("CUDA_HOME", "CUDA_PATH", "GCC_EXEC_PREFIX", "VIRTUAL_ENV", "CONDA_PREFIX")
_PROGRAMS = (
    "NVCC_CCBIN", "CC", "CXX", "LD_PRELOAD", "TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH",
    "TRITON_CUOBJDUMP_PATH", "TRITON_NVDISASM_PATH", "ORBIT_PYTHON", "ORBIT_NVCC",
)  # fmt: skip
"""A name without a folder is looked for on PATH."""


def program(name: str) -> str:
    """Return a program as a shell understands it: a name for PATH, or a path from the current folder."""
    return str(Path(name).expanduser().absolute()) if os.sep in name else name


def drop(environment: MutableMapping[str, str]) -> tuple[str, ...]:
    """Remove from an environment what depends on the current folder: relative entries of PATH and the like, and
    programs and toolkits with relative paths. Return the names of the removed programs and toolkits.
    """
    for name in _LISTS:
        if name in environment:
            entries = [part for part in environment[name].split(os.pathsep) if Path(part).is_absolute()]
            if entries:
                environment[name] = os.pathsep.join(entries)
            else:  # an empty one is the current folder
                del environment[name]
    if os.name == "nt":  # else the current folder comes before PATH
        environment["NoDefaultCurrentDirectoryInExePath"] = "1"
    dropped = [
        name
        for name in (*_FOLDERS, *_PROGRAMS)
        if (value := environment.get(name))
        and not Path(value).is_absolute()
        and (name in _FOLDERS or os.sep in value or "/" in value)
    ]
    for name in dropped:
        del environment[name]
    return tuple(dropped)
