"""Finds the source file of the workspace that includes another file. That file's kernels are compiled through it."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from orbit_lsp.kernels import CUDA_SUFFIXES, HEADER_SUFFIXES, SOURCE_SUFFIXES
from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass

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
    r"\#[ \t]*define[ \t]+(\w+)|\btypedef\b[^;{}]{0,200}?(\w+)[ \t]*;|\busing\s+(\w+)\s*=|\b(?:struct|class|union|enum|namespace)\s+(\w+)\s*[{:]|"
    r"\b(?:constexpr|const)\s+[\w:]+\s+(\w+)\s*="
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_OF_LIBRARIES = re.compile(
    r"\b(?:std|cub|thrust|torch|at|c10|cg|cooperative_groups|nvcuda)::|\b(?:__half2?|half2?|__nv_bfloat162?|nv_bfloat16)\b|\bu?int\d+_t\b"
)
_OF_HOST = (".cpp", ".cc", ".cxx")
_CALLED = re.compile(r"\b(\w+)\s*\(")
_OF_DEVICE = re.compile(r"__device__([^;{}()]{1,200})\(")
_MACRO = re.compile(r"^[ \t]*\#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_MAIN = re.compile(r"^[ \t]*(?:int|auto|void)\s+main\s*\(", re.MULTILINE)
_OF_TESTS = re.compile(r"(?:^|[/_])(?:unit_?)?tests?(?:[/_.]|$)", re.IGNORECASE)
_SHORT = 3
"""Characters of a name that may as well be of a template's parameter."""
_MOST_FOLLOWED = 64
"""Files that are read for what stands before a file where it is included."""
_UNITY = re.compile(r"unity_\d+_\w+\.\w+")
"""CMake's files of a unity build: it makes them of sources that compile alone."""


def read(
    path: str,
    text: str,
    folders: Sequence[str],
    *,
    templates: bool = False,
    runs: bool = False,
    of_host: bool = False,
) -> tuple[str, str] | None:
    """Return path and text of the source through which the kernels of a file are compiled. Takes time.

    Return None if the file is compiled by itself. That is so for a file that nothing includes, and one that `runs`
    because it has a `main`. It is also so for a `.cuh`, or a source that includes headers itself, if it needs nothing
    of the files that include it. A file that has only `templates` makes nothing by itself. `of_host`: sources of C++
    count too, because the build compiles them as CUDA.
    """
    if not path.lower().endswith((*HEADER_SUFFIXES, *CUDA_SUFFIXES)):
        return None
    source = None
    seen = {path}
    while (
        not runs
        and (way := _IncludeWay.to_source(path, folders, (*SOURCE_SUFFIXES, *(_OF_HOST if of_host else ()))))
        and way.files[-1] not in seen
    ):
        before, including = way.texts()
        # C++ that nvcc compiles as CUDA includes sources as parts alone
        alone = _has_headers(text) and not (len(way.files) == 2 and way.files[-1].lower().endswith(_OF_HOST))
        apart = path.lower().endswith(".cuh") or (path.lower().endswith(SOURCE_SUFFIXES) and alone)
        if including is None or (apart and not templates and not way.needs(text, before)):
            break
        # a source may be a part of another one itself
        path, text = source = way.files[-1], including
        seen.add(path)
        templates, runs = False, bool(_MAIN.search(text))
    return source


@dataclass(frozen=True, slots=True)
class _IncludeWay:
    """How a source includes a file. `files` lead from the file through its includers to the source. `by_name` has all
    files that were looked at.
    """

    files: tuple[str, ...]
    by_name: dict[str, list[str]]

    @classmethod
    def to_source(cls, header: str, folders: Sequence[str], suffixes: tuple[str, ...]) -> _IncludeWay | None:
        """Return the way to the nearest source that includes a file, directly or through other headers. Return None
        if no source does.

        Reads files of the innermost of `folders` that holds the header, else of the header's own folder.
        """
        holding = [folder for folder in folders if Path(header).is_relative_to(folder)]
        root = max(holding, key=len, default=str(Path(header).parent))
        including: dict[str, list[tuple[str, str]]] = {}
        by_name: dict[str, list[str]] = {}
        seconds = _SECONDS_OF_SOURCE if header.lower().endswith(SOURCE_SUFFIXES) else _SECONDS
        for path, state in _files(header, root, time.monotonic() + seconds, suffixes):
            by_name.setdefault(os.path.basename(path), []).append(path)
            for name in _included(path, state):
                including.setdefault(name.rpartition("/")[2], []).append((path, name))
        includes: dict[str, str] = {}
        level = [header]
        best: tuple[tuple[bool, int, int, int], str] | None = None
        distance = 0
        while level:
            found = {
                path: of
                for of in level
                for path, name in including.get(os.path.basename(of), ())
                if path not in includes and path != header and _means(name, path, of)
            }
            includes |= found
            level = list(found)
            for path in level:
                if path.lower().endswith(suffixes):
                    rank = _rank(path, header, distance)
                    best = (rank, path) if best is None or rank > best[0] else best
            distance += 1
        if best is None:
            return None
        files = [best[1]]
        while files[-1] in includes:
            files.append(includes[files[-1]])
        return cls(tuple(reversed(files)), by_name)

    def texts(self) -> tuple[list[tuple[str, str]], str | None]:
        """Return each including file with its text before the include that leads to the file. Return also the text of
        the source, None if it cannot be read.
        """
        before: list[tuple[str, str]] = []
        text = None
        for file, including in pairwise(self.files):
            text = _text(including)
            name = re.escape(os.path.basename(file))
            pattern = rf'^[ \t]*\#[ \t]*include[ \t]*["<](?:[^">\n]*/)?{name}[">]'
            match = re.search(pattern, text or "", re.MULTILINE)
            before.append((including, text[: match.start()] if text and match else ""))
        return before, text

    def needs(self, text: str, before: Sequence[tuple[str, str]]) -> bool:
        """Return whether a file uses what its includers define or include before it. In a file that includes nothing,
        any name that they include counts. In any other file only macros and types count that are called as in C.
        """
        alone = not _has_headers(text)
        if alone and any(_INCLUDE.search(each) for _, each in before) and _OF_LIBRARIES.search(text):
            return True
        words = set(_WORD.findall(text))
        if any(words & _defined(each) for _, each in before):
            return True
        names = _defined if alone else _macros_and_types
        if of_others := words & self._names(before, names):
            own = names(text) | self._names([(self.files[0], text)], names)
            if of_others - own:
                return True
        return self._is_source_of_source() and self._continues(text, before)

    def _is_source_of_source(self) -> bool:
        return all(file.lower().endswith(SOURCE_SUFFIXES) for file in self.files[:2])

    def _continues(self, text: str, before: Sequence[tuple[str, str]]) -> bool:
        """Return whether a source, or what it includes, uses what only the files before it have. That is a device
        function of another source, or (in an included file) a type.
        """
        own = [text, *(each for _, each in self._included_by([(self.files[0], text)]))]
        of_sources = [
            each for file, each in self._included_by(before) if file.lower().endswith(SOURCE_SUFFIXES)
        ]
        if (_functions(of_sources) - _functions(own)) & set(_CALLED.findall(text)):
            return True
        others = {name for name in self._names(before, _defined) if len(name) > _SHORT}
        if not others:
            return False
        used = {name for each in own for name in _WORD.findall(each)}
        return bool((others & used) - {name for each in own for name in _defined(each)})

    def _names(self, texts: Sequence[tuple[str, str]], names: Callable[[str], set[str]]) -> set[str]:
        return {name for _, text in self._included_by(texts) for name in names(text)}

    def _included_by(self, texts: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yield the files of the workspace that texts include, and the files that those include."""
        seen = {file for file, _ in texts}
        waiting = list(texts)
        while waiting and len(seen) < _MOST_FOLLOWED:
            file, text = waiting.pop(0)
            for name in _INCLUDE.findall(text):
                meant = next(
                    (
                        each
                        for each in self.by_name.get(os.path.basename(name), ())
                        if _means(name, file, each)
                    ),
                    "",
                )
                if meant and meant not in seen:
                    seen.add(meant)
                    waiting.append((meant, _text(meant) or ""))
                    yield waiting[-1]


def _rank(path: str, header: str, distance: int) -> tuple[bool, int, int, int]:
    """Rank a source among those that include a file. A test comes last, because its framework may not be installed."""
    common = len(os.path.commonpath((path, header)))
    return not _OF_TESTS.search(path[common:]), -distance, common, -len(path)


def _has_headers(text: str) -> bool:
    """Say whether a text includes anything except further sources."""
    return any(not name.lower().endswith(SOURCE_SUFFIXES) for name in _INCLUDE.findall(text))


def _defined(text: str) -> set[str]:
    return {name for names in _DEFINED.findall(text) for name in names if name}


def _functions(texts: Sequence[str]) -> set[str]:
    """Return the names of device functions. Short names are left out, because they could be variables."""
    heads = (head for text in texts for head in _OF_DEVICE.findall(text))
    names = (words[-1] for head in heads if (words := _WORD.findall(head)))
    return {name for name in names if len(name) > _SHORT and name != "operator" and not name.startswith("__")}


def _macros_and_types(text: str) -> set[str]:
    return _macros(text) | {name for name in _defined(text) if name.endswith("_t") and len(name) > _SHORT}


def _macros(text: str) -> set[str]:
    return set(_MACRO.findall(text))


def _text(path: str) -> str | None:
    try:
        return regular_files.text(Path(path), limits.SOURCE)
    except (OSError, ValueError):
        return None


def _means(name: str, including: str, file: str) -> bool:
    """Return whether `#include "name"` in the file `including` means `file`. A file of that name beside it comes
    first.
    """
    beside = os.path.normpath(os.path.join(os.path.dirname(including), name))
    return beside == file or (
        f"/{file}".endswith(f"/{os.path.normpath(name)}") and not os.path.isfile(beside)
    )


def _included(path: str, state: tuple[int, int]) -> tuple[str, ...]:
    """Return what a file includes, as it is written. The file is read again only after it has changed, because each
    search for a source asks.
    """
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


def _files(
    near: str, root: str, until: float, sources: tuple[str, ...]
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield files with the time of their change and their size, those nearest to the file `near` first. Stop after
    `_MOST_FILES`, and at the time `until`: most folders of `/` have no source.
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
                if name.lower().endswith(
                    (*CUDA_SUFFIXES, *HEADER_SUFFIXES, *sources)
                ) and not _UNITY.fullmatch(name):
                    count += 1
                    if count > _MOST_FILES or time.monotonic() > until:
                        return
                    path = os.path.join(folder, name)
                    with contextlib.suppress(OSError, ValueError):
                        status = os.stat(path)
                        yield path, (status.st_mtime_ns, status.st_size)
        walked = str(top)
