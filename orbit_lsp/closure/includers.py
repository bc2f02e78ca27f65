"""Which source file of the workspace includes a header: the one through which the header's kernels are compiled."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_lsp.kernels import CUDA_SUFFIXES, HEADER_SUFFIXES
from orbit_remote.common import limits, regular_files

_INCLUDE = re.compile(r'^[ \t]*\#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_SKIPPED = frozenset(("build", "out", "node_modules", "third_party", "site-packages", "__pycache__"))
_MOST_FILES = 4_000
_SECONDS = 2.0
"""A longer search ends with what was read so far: the header is then compiled on its own."""


def read(path: str, folders: Sequence[str], *, templates: bool = False) -> tuple[str, str] | None:
    """Path and text of the source through which the kernels of a header are compiled; None for what is no header, or
    is included nowhere. A `.cuh` is compiled by itself, unless it has nothing but `templates`, of which that makes
    nothing. Takes time.
    """
    suffixes = (*HEADER_SUFFIXES, ".cuh") if templates else HEADER_SUFFIXES
    if not path.lower().endswith(suffixes) or not (source := source_of(path, folders)):
        return None
    try:
        return source, regular_files.text(Path(source), limits.SOURCE)
    except (OSError, ValueError):
        return None


def source_of(header: str, folders: Sequence[str]) -> str:
    """The nearest `.cu` that includes a header, directly or through other headers; empty if there is none.

    Reads files of the innermost of `folders` that holds the header, else of the header's own folder.
    """
    holding = [folder for folder in folders if Path(header).is_relative_to(folder)]
    root = max(holding, key=len, default=str(Path(header).parent))
    including: dict[str, list[str]] = {}
    for path in _files(root, time.monotonic() + _SECONDS):
        try:
            text = regular_files.text(Path(path), limits.HEADER)
        except (OSError, ValueError):
            continue
        for name in {name.rpartition("/")[2] for name in _INCLUDE.findall(text)}:
            including.setdefault(name, []).append(path)
    seen: set[str] = set()
    level = [header]
    while level:
        level = [path for of in level for path in including.get(Path(of).name, ()) if path not in seen]
        seen.update(level)
        if sources := [path for path in level if path.endswith(".cu")]:
            return max(sources, key=lambda path: (len(os.path.commonpath((path, header))), -len(path)))
    return ""


def _files(root: str, until: float) -> Iterator[str]:
    """Ends after `_MOST_FILES`, and at the time `until`: most folders of `/` have no source."""
    count = 0
    for folder, inner, names in os.walk(root):
        if time.monotonic() > until:
            return
        inner[:] = sorted(name for name in inner if name not in _SKIPPED and not name.startswith("."))
        for name in sorted(names):
            if name.lower().endswith((*CUDA_SUFFIXES, *HEADER_SUFFIXES)):
                count += 1
                if count > _MOST_FILES or time.monotonic() > until:
                    return
                yield os.path.join(folder, name)
