"""Which source file of the workspace includes another file: the one through which that file's kernels are compiled."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from orbit_lsp.kernels import CUDA_SUFFIXES, HEADER_SUFFIXES, SOURCE_SUFFIXES
from orbit_remote.common import limits, regular_files

_INCLUDE = re.compile(r'^[ \t]*\#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_SKIPPED = frozenset(("build", "out", "node_modules", "third_party", "site-packages", "__pycache__"))
_MOST_FILES = 4_000
_SECONDS = 2.0
"""A longer search ends with what was read so far: the file is then compiled on its own."""
_DEFINED = re.compile(
    r"\#[ \t]*define[ \t]+(\w+)|\btypedef\b[^;{}]{0,200}?(\w+)[ \t]*;|\busing\s+(\w+)\s*=|\b(?:struct|class|union|enum)\s+(\w+)\s*[{:]|"
    r"\b(?:constexpr|const)\s+[\w:]+\s+(\w+)\s*="
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_OF_LIBRARIES = re.compile(
    r"\b(?:std|cub|thrust|torch|at|c10|cg|cooperative_groups|nvcuda)::|\b(?:__half2?|half2?|__nv_bfloat162?|nv_bfloat16)\b|\bu?int\d+_t\b"
)
_UNITY = re.compile(r"unity_\d+_\w+\.\w+")
"""CMake's files of a unity build: it makes them of sources that compile alone."""


def read(
    path: str, text: str, folders: Sequence[str], *, templates: bool = False, runs: bool = False
) -> tuple[str, str] | None:
    """Path and text of the source through which the kernels of a file are compiled; None where it is compiled by itself: a file
    that is included nowhere, one that `runs` because it has a `main`, and a `.cuh` that needs nothing of who includes it. One that
    has nothing but `templates` makes nothing by itself. Takes time.
    """
    name = path.lower()
    if (
        runs
        or not name.endswith((*HEADER_SUFFIXES, *CUDA_SUFFIXES))
        or not (source := source_of(path, folders))
    ):
        return None
    try:
        including = regular_files.text(Path(source), limits.SOURCE)
    except (OSError, ValueError):
        return None
    if name.endswith(".cuh") and not templates and not _needs(text, os.path.basename(path), including):
        return None
    return source, including


def _needs(text: str, name: str, including: str) -> bool:
    """Whether a header uses what the text that includes it defines or includes before it."""
    before = re.split(
        rf'^[ \t]*\#[ \t]*include[ \t]*["<][^">\n]*{re.escape(name)}[">]',
        including,
        maxsplit=1,
        flags=re.MULTILINE,
    )[0]
    if before == including:
        return False  # through another header
    if not _INCLUDE.search(text) and _INCLUDE.search(before) and _OF_LIBRARIES.search(text):
        return True
    defined = {name for names in _DEFINED.findall(before) for name in names if name}
    return bool(defined & set(_WORD.findall(text)))


def source_of(header: str, folders: Sequence[str]) -> str:
    """The nearest source that includes a file, directly or through other headers; empty if there is none.

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
        if sources := [path for path in level if path.lower().endswith(SOURCE_SUFFIXES) and path != header]:
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
            if name.lower().endswith((*CUDA_SUFFIXES, *HEADER_SUFFIXES)) and not _UNITY.fullmatch(name):
                count += 1
                if count > _MOST_FILES or time.monotonic() > until:
                    return
                yield os.path.join(folder, name)
