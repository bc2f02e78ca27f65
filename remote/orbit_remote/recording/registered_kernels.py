"""Finds kernels of shared libraries, by the names under which the CUDA runtime registers them."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

from orbit_remote.common import limits, regular_files

LIBRARIES = (".so", ".pyd")
_KERNEL = re.compile(r"\b__global__\b([^;{}]{0,400})")
_ATTRIBUTE = re.compile(r"\b__\w+__\s*\((?:[^()]|\([^()]*\))*\)")
_NAME = re.compile(r"(\w+)\s*\(")
_MAPS = Path("/proc/self/maps")
_NEVER = ("/usr/", "/lib", "/opt/", "/torch/lib/", "/nvidia/", "/triton/")


def names(text: str) -> frozenset[str]:
    """Return the names of the kernels that a C++ text defines or declares, without their namespaces."""
    heads = (_ATTRIBUTE.sub("", head) for head in _KERNEL.findall(text))
    return frozenset(match[1] for head in heads if (match := _NAME.search(head)))


def has_one(path: str, kernels: frozenset[str]) -> bool:
    """Return whether a library contains the name of one of these kernels, and so registers it. Takes time."""
    try:
        with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return any(content.find(name.encode()) >= 0 for name in kernels)
    except (OSError, ValueError):  # an empty file cannot be mapped
        return False


def loaded(kernels: frozenset[str]) -> list[str]:
    """Return the libraries of this process that register one of these kernels. Return none if the system does not
    list them.
    """
    try:
        lines = regular_files.text(_MAPS, limits.SOURCE).splitlines()
    except (OSError, ValueError):
        return []
    paths = dict.fromkeys(parts[5] for line in lines if len(parts := line.split(maxsplit=5)) == 6)
    return [
        path
        for path in paths
        if path.endswith(LIBRARIES) and not any(part in path for part in _NEVER) and has_one(path, kernels)
    ]
