"""Which source file of the workspace includes another file: the one through which that file's kernels are compiled."""

from __future__ import annotations

import contextlib
import itertools
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
_SECONDS_OF_SOURCE = 0.3
"""Few sources are included by others, and those by one that is near."""
_LEFT_OUT = re.compile(r"^[ \t]*#if 0\b(?:(?!^[ \t]*#(?:if|el|endif)).*\n?)*", re.MULTILINE)
_MOST_KEPT = 20_000
_known: dict[str, tuple[tuple[int, int], tuple[str, ...]]] = {}
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
    that is included nowhere, one that `runs` because it has a `main`, and a `.cuh`, or a source that includes headers itself, that
    needs nothing of who includes it. One that has nothing but `templates` makes nothing by itself. Takes time.
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
    apart = name.endswith(".cuh") or (name.endswith(SOURCE_SUFFIXES) and _INCLUDE.search(text))
    if apart and not templates and not _needs(text, os.path.basename(path), including):
        return None
    return source, including


def _needs(text: str, name: str, including: str) -> bool:
    """Return whether a header uses what the text that includes it defines or includes before it."""
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
    """Return the nearest source that includes a file, directly or through other headers; empty if no source does.

    Reads files of the innermost of `folders` that holds the header, else of the header's own folder.
    """
    holding = [folder for folder in folders if Path(header).is_relative_to(folder)]
    root = max(holding, key=len, default=str(Path(header).parent))
    including: dict[str, list[tuple[str, str]]] = {}
    seconds = _SECONDS_OF_SOURCE if header.lower().endswith(SOURCE_SUFFIXES) else _SECONDS
    for path, state in _files(header, root, time.monotonic() + seconds):
        for name in _included(path, state):
            including.setdefault(name.rpartition("/")[2], []).append((path, name))
    seen: set[str] = set()
    level = [header]
    while level:
        level = [
            path
            for of in level
            for path, name in including.get(os.path.basename(of), ())
            if path not in seen and _means(name, path, of)
        ]
        seen.update(level)
        if sources := [path for path in level if path.lower().endswith(SOURCE_SUFFIXES) and path != header]:
            return max(sources, key=lambda path: (len(os.path.commonpath((path, header))), -len(path)))
    return ""


def _means(name: str, including: str, file: str) -> bool:
    """Return whether `#include "name"` in the file `including` means `file`: a file of that name beside it comes first."""
    beside = os.path.normpath(os.path.join(os.path.dirname(including), name))
    return beside == file or (
        f"/{file}".endswith(f"/{os.path.normpath(name)}") and not os.path.isfile(beside)
    )


def _included(path: str, state: tuple[int, int]) -> tuple[str, ...]:
    """Return what a file includes, as it is written. A file is read again only once it has changed: each look for a source asks."""
    known = _known.get(path)
    if known is None or known[0] != state:
        try:
            text = regular_files.text(Path(path), limits.HEADER)
        except (OSError, ValueError):
            text = ""
        if len(_known) >= _MOST_KEPT:
            _known.clear()
        text = _LEFT_OUT.sub("", text) if "#if 0" in text else text
        known = _known[path] = state, tuple(dict.fromkeys(_INCLUDE.findall(text)))
    return known[1]


def _files(near: str, root: str, until: float) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the files nearest to the file `near` first, each with when it changed and its size. Ends after `_MOST_FILES`, and at the time
    `until`: most folders of `/` have no source.
    """
    count = 0
    walked = ""
    for top in itertools.takewhile(lambda folder: folder.is_relative_to(root), Path(near).parents):
        for folder, inner, names in os.walk(top):
            if time.monotonic() > until:
                return
            inner[:] = sorted(
                name
                for name in inner
                if name not in _SKIPPED and not name.startswith(".") and os.path.join(folder, name) != walked
            )
            for name in sorted(names):
                if name.lower().endswith((*CUDA_SUFFIXES, *HEADER_SUFFIXES)) and not _UNITY.fullmatch(name):
                    count += 1
                    if count > _MOST_FILES or time.monotonic() > until:
                        return
                    path = os.path.join(folder, name)
                    with contextlib.suppress(OSError, ValueError):
                        status = os.stat(path)
                        yield path, (status.st_mtime_ns, status.st_size)
        walked = str(top)
