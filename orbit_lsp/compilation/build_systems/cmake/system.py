"""CMake as a build system: how a project compiles a source, from all its files above the source together, and its
executables.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems.cmake import declarations, language
from orbit_lsp.compilation.build_systems.reading import (
    MOST_FOLDERS,
    RELOCATABLE,
    SHELL,
    SWITCHES,
    BuildFile,
    BuildSystem,
    Folder,
    Reading,
    named_folders,
)
from orbit_lsp.drivers.declared import DeclaredProgram
from orbit_remote.common.configured import cmake_folder

_OF_OBJECTS = re.compile(r"\$<TARGET_OBJECTS:([\w.:+-]+)>")
_PROJECT = re.compile(r"^[ \t]*project[ \t\n]*\(", re.MULTILINE | re.IGNORECASE)
_PACKAGE = re.compile(r"\bfind_package\s{0,20}\(\s{0,20}([\w+-]{2,80})", re.IGNORECASE)
_MOST_PACKAGES = 400
"""The calls of `find_package` that are read of one file."""
_MOST_BESIDE = 32
"""Files of CMake in the folder of a source."""
_MOST_SOURCES = 2_000
_MOST_STARS = 4
_MOST_FOLDERS = 500


def _read_together(files: Sequence[BuildFile]) -> list[tuple[str, Reading]]:
    """Return what the CMakeLists.txt above a source say of it, by the file that says it."""
    return list(_readings(files))


def _readings(files: Sequence[BuildFile]) -> Iterator[tuple[str, Reading]]:
    """Yield the readings of files, each with the file. A text that no real build has may raise any error."""
    top, source = files[0], files[0].source
    for each in reversed(files):
        switches = filter(language.is_switch, language.options_off(each.text))
        packages = islice(_PACKAGE.findall(each.text), _MOST_PACKAGES)
        yield each.path, Reading(switches=tuple(switches), packages=tuple(packages))
    flags = declarations.read([each.path for each in files], source, top.included)
    folders = tuple(_folders(flags, top.root))
    yield (
        files[-1].path,
        Reading(folders=folders, is_source=flags.is_source, by_command=flags.of_find_cuda),
    )
    # what lies beside the source may be included by a name that only a run knows
    for file in islice(sorted(Path(source).parent.glob("*.cmake")), _MOST_BESIDE):
        text = language.without_comments(top.included(str(file)))
        yield str(file), Reading(tuple(SWITCHES.findall(text)))
    if relocatable := _relocatable(flags, files):
        yield relocatable, Reading(("-rdc=true",))
    standard, file = flags.standard
    if standard.isdecimal():
        yield file, Reading((f"-std=c++{standard}",))
    for file in dict.fromkeys(file for _, file in flags.words):
        words = [word for word, of in flags.words if of == file]
        command = command_line.parse(["nvcc", *words], os.path.dirname(file), source)
        # of standards the newest of the text counts
        options = tuple(flag for flag in command.flags if not command_line.year(flag))
        yield file, Reading(options, command.left_out)
    yield from ((file, Reading(architectures=(each,))) for each, file in flags.architectures)
    yield from ((file, Reading(macros=(each,))) for each, file in flags.macros)
    yield from ((file, Reading(left_out=(each,))) for each, file in flags.left_out)


def _folders(flags: declarations.CMakeFlags, root: str) -> Iterator[Folder]:
    for each in flags.folders[:MOST_FOLDERS]:
        yield from named_folders(each.path, each.file, each.line, root)


def _relocatable(flags: declarations.CMakeFlags, files: Sequence[BuildFile]) -> str:
    """Return the file that says that device code is linked later, "" for none. If no target has the source, any such
    file counts.
    """
    if flags.relocatable is None and not flags.is_source:
        return next((each.path for each in reversed(files) if RELOCATABLE.search(each.text)), "")
    return flags.relocatable or ""


def _database_command(folder: str, switches: Sequence[str]) -> str:
    build = os.path.normpath(os.path.join(folder, "build"))
    with_cuda = "".join(f" -D{each}=ON" for each in switches)
    return f"cmake -S {shlex.quote(folder)} -B {shlex.quote(build)} -DCMAKE_EXPORT_COMPILE_COMMANDS=ON{with_cuda}"


def _of_cmake(
    source: str, folders: Sequence[str], text_of: Callable[[str], str]
) -> Iterator[DeclaredProgram]:
    """Yield the programs of the project that the author has configured. Else yield those of the smallest project that
    has all their sources.
    """
    tops = [
        each for folder in folders if _PROJECT.search(text_of(each := os.path.join(folder, "CMakeLists.txt")))
    ]
    by_name: dict[str, list[DeclaredProgram]] = {}
    for top in tops:
        for program in _of_project(top, source, text_of):
            by_name.setdefault(program.name, []).append(program)

    @cache
    def is_configured(folder: str) -> bool:
        return bool(cmake_folder.existing(folder).folder)

    for programs in by_name.values():
        several = len(programs) > 1
        configured = [each for each in programs if several and is_configured(each.folder)]
        largest = programs[-1].sources
        yield configured[-1] if configured else next(each for each in programs if each.sources >= largest)


def _of_project(top: str, source: str, text_of: Callable[[str], str]) -> Iterator[DeclaredProgram]:
    """Yield the programs of CMake's project with the first file `top` that have the source among their own."""
    targets = declarations.targets(top, text_of)
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
    target: declarations.CMakeTarget, by_name: dict[str, declarations.CMakeTarget]
) -> list[declarations.CMakeTarget]:
    """Return a target and those that it links, one after another."""
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
    """Yield the files that the sources name, and those that match where a source is a pattern."""
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


SYSTEMS = (
    BuildSystem(
        1,
        (declarations.NAME,),
        read_together=_read_together,
        programs=_of_cmake,
        database_command=_database_command,
        from_top=True,
        without_comments=language.without_comments,
    ),
)
