"""CMake as a build system: the executables of a project; how it compiles a source is read of all its files together, by `cmake_files`"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from orbit_lsp.compilation.build_systems import cmake_files
from orbit_lsp.compilation.build_systems.reading import SHELL, BuildSystem
from orbit_lsp.drivers.declared import DeclaredProgram

_OF_OBJECTS = re.compile(r"\$<TARGET_OBJECTS:([\w.:+-]+)>")
_PROJECT = re.compile(r"^[ \t]*project[ \t\n]*\(", re.MULTILINE | re.IGNORECASE)
_MOST_SOURCES = 2_000
_MOST_STARS = 4
_MOST_FOLDERS = 500


def _of_cmake(
    source: str, folders: Sequence[str], text_of: Callable[[str], str]
) -> Iterator[DeclaredProgram]:
    """Yield the programs of the project that the author has configured. Else yield those of the smallest project that has all their
    sources.
    """
    tops = [
        each for folder in folders if _PROJECT.search(text_of(each := os.path.join(folder, "CMakeLists.txt")))
    ]
    by_name: dict[str, list[DeclaredProgram]] = {}
    for top in tops:
        for program in _of_project(top, source, text_of):
            by_name.setdefault(program.name, []).append(program)
    for programs in by_name.values():
        configured = [each for each in programs if _is_configured(each.folder)]
        largest = programs[-1].sources
        yield configured[-1] if configured else next(each for each in programs if each.sources >= largest)


def _is_configured(folder: str) -> bool:
    """Return whether a folder of a build lies in a project's: a guess from its names, which a click replaces by CMake's own word."""
    try:
        with os.scandir(folder) as entries:
            inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)][:_MOST_SOURCES]
    except OSError:
        return False
    return any(os.path.isfile(os.path.join(each, "CMakeCache.txt")) for each in (folder, *inner))


def _of_project(top: str, source: str, text_of: Callable[[str], str]) -> Iterator[DeclaredProgram]:
    """The programs of CMake's project whose first file is `top`, that have a source among their own."""
    targets = cmake_files.targets(top, text_of)
    by_name = {each.name: each for each in targets}
    for target in targets:
        if not (target.is_program and target.has(source)):
            continue
        linked = _linked(target, by_name)
        sources = [path for each in linked for path in each.sources[:_MOST_SOURCES]]
        arguments = next((words for words in target.tested if not any(map(SHELL.search, words))), ())
        yield DeclaredProgram(
            "cmake", os.path.dirname(top), target.name, "", frozenset(_existing(sources)), arguments,
            all(each.whole for each in linked),
        )  # fmt: skip


def _linked(
    target: cmake_files.CMakeTarget, by_name: dict[str, cmake_files.CMakeTarget]
) -> list[cmake_files.CMakeTarget]:
    """A target and those that it links, one after another."""
    found, waiting = [target], [target]
    while waiting:
        at = waiting.pop()
        names = [*at.linked, *(name for source in at.sources for name in _OF_OBJECTS.findall(source))]
        for name in names:
            other = by_name.get(name)
            if other and other not in found:
                found.append(other)
                waiting.append(other)
    return found


def _existing(sources: Sequence[str]) -> Iterator[str]:
    """Yield the files that sources name, where one is a pattern, too."""
    for each in sources:
        folder, name = os.path.split(each)
        if "*" not in each:
            yield each
        elif "*" not in folder and each.count("*") <= _MOST_STARS:
            pattern = name.replace("**", "*")
            for place, _, names in islice(os.walk(folder), _MOST_FOLDERS if "**" in name else 1):
                yield from (
                    os.path.join(place, found) for found in fnmatch.filter(names, pattern)[:_MOST_SOURCES]
                )


SYSTEMS = (BuildSystem(1, (cmake_files.NAME,), programs=_of_cmake),)
