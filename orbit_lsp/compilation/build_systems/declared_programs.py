"""The programs that build files declare: CMake's executables, and the files that a Makefile links; read as text, nothing is run"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems import cmake_files, makefiles
from orbit_lsp.drivers.declared import DeclaredProgram

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_OBJECTS = (".o", ".obj", ".cu.o", ".cpp.o")
_NO_PROGRAM = (
    ".o",
    ".obj",
    ".a",
    ".so",
    ".d",
    ".ptx",
    ".cubin",
    ".fatbin",
    ".h",
    ".cuh",
    ".cu",
    ".cpp",
    ".c",
    ".cc",
    ".txt",
    ".py",
    ".md",
)
_OF_OBJECTS = re.compile(r"\$<TARGET_OBJECTS:([\w.:+-]+)>")
_PROJECT = re.compile(r"^[ \t]*project[ \t\n]*\(", re.MULTILINE | re.IGNORECASE)
_SHELL = re.compile(r"[|<>&;`$(){}*?\ue000\ue001]|orbit-input")
_COMPILERS = re.compile(r"nvcc|g\+\+|clang|\bcc\b|gcc|CXX|NVCC|CC\b|LD\b", re.IGNORECASE)
_MOST_FILES = 12
_MOST_SOURCES = 2_000
_MOST_STARS = 4
_MOST_FOLDERS = 500


def of_source(source: str, root: str, text_of: Callable[[str], str]) -> list[DeclaredProgram]:
    """Return the programs that have a source among their own, of build files from its folder up to the project's in `root`, the nearest
    first.
    """
    folders = list(_above(source, root))
    found = list(_of_makefiles(source, folders, text_of))
    found += _of_cmake(source, folders, text_of)
    return list(dict.fromkeys(found))


def _above(source: str, root: str) -> Iterator[str]:
    for count, folder in enumerate(map(str, Path(source).parents)):
        if count > _MOST_FILES or not Path(folder).is_relative_to(root):
            return
        yield folder


# -- CMake ------------------------------------------------------------------------------------------


def _of_cmake(
    source: str, folders: Sequence[str], text_of: Callable[[str], str]
) -> Iterator[DeclaredProgram]:
    """Those of the project that the author has configured, else of the smallest one that has all that the program is made of."""
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
    """Whether a folder of a build lies in a project's: a guess from its names, which a click replaces by CMake's own word."""
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
        arguments = next((words for words in target.tested if not any(map(_SHELL.search, words))), ())
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
    """The files that sources name, where one is a pattern, too."""
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


# -- make -------------------------------------------------------------------------------------------


def _of_makefiles(
    source: str, folders: Sequence[str], text_of: Callable[[str], str]
) -> Iterator[DeclaredProgram]:
    for folder in folders:
        for name in _MAKEFILES:
            if text := text_of(os.path.join(folder, name)):
                read = makefiles.rules(
                    os.path.join(folder, name), text, lambda name, at=folder: text_of(os.path.join(at, name))
                )
                yield from _Made(folder, read, source).programs()
                break


class _Made:
    """What the rules of a Makefile make of a source."""

    def __init__(self, folder: str, read: Sequence[makefiles.MakeRule], source: str) -> None:
        self._folder, self._rules, self._source = folder, read, source
        self._here = os.path.relpath(source, folder)
        self._phony = {need for rule in read if ".PHONY" in rule.targets for need in rule.needs}

    def programs(self) -> Iterator[DeclaredProgram]:
        for rule in self._rules:
            for target in rule.targets:
                name = self._here.rpartition(".")[0] if target == "%" else target
                output = self._output(name, rule) if _can_be_program(name) else None
                if output is None:
                    continue
                sources = list(dict.fromkeys(self._sources(name, rule)))
                if self._here not in sources:
                    continue
                paths = frozenset(os.path.normpath(os.path.join(self._folder, each)) for each in sources)
                yield DeclaredProgram(
                    "make", self._folder, name, output, paths, self._arguments(output), whole=True
                )

    def _output(self, name: str, rule: makefiles.MakeRule) -> str | None:
        """The file that a rule's recipe writes, None where it compiles nothing: its target, unless a compiler is told another one."""
        for line in rule.recipe:
            words = command_line.split(line)
            if not _COMPILERS.search(line) or "-c" in words or "-dc" in words or "-shared" in words:
                continue
            if "-o" in words[:-1]:
                written = words[words.index("-o") + 1]
                return name if written in ("orbit-input", "$@") else os.path.normpath(written)
            return None if name in self._phony else name
        # without a recipe make links a program of an object that is called so
        linked = not rule.recipe and any(need.endswith(_OBJECTS) for need in rule.needs)
        return name if linked and name not in self._phony else None

    def _sources(self, name: str, rule: makefiles.MakeRule, depth: int = 4) -> Iterator[str]:
        """What a rule's target is made of, through objects and libraries, as the Makefile names it."""
        stem = name if "%" in rule.targets else ""
        named = [each.replace("%", stem) for each in rule.needs]
        named += [
            word
            for line in rule.recipe
            for word in command_line.split(line)
            if word.endswith((".cu", ".cpp", ".cc", ".cxx", ".c"))
        ]
        for need in dict.fromkeys(map(os.path.normpath, named)):
            if need.endswith((".cu", ".cpp", ".cc", ".cxx", ".c")):
                yield need
            elif depth and need != name:
                yield from self._made_of(need, depth)

    def _made_of(self, need: str, depth: int) -> Iterator[str]:
        for rule in self._rules:
            if need in rule.targets:
                yield from self._sources(need, rule, depth - 1)
                if rule.needs or rule.recipe:
                    return
        if not need.endswith(_OBJECTS):
            return
        for rule in self._rules:
            for target in rule.targets:
                stem = makefiles.stem_of(target, need) if "%" in target else None
                if stem is None:
                    continue
                for pattern in rule.needs:
                    made = os.path.normpath(pattern.replace("%", stem))
                    if made.endswith((".cu", ".cpp", ".cc", ".cxx", ".c")) and os.path.isfile(
                        os.path.join(self._folder, made)
                    ):
                        yield made
                        return
        # a suffix rule, or one of make's own
        base = need.rpartition(".")[0]
        for suffix in ("", ".cu", ".cpp", ".cc", ".cxx", ".c"):
            if os.path.isfile(os.path.join(self._folder, base + suffix)):
                yield base + suffix
                return

    def _arguments(self, output: str) -> tuple[str, ...]:
        """Those with which a recipe of the Makefile starts the program."""
        for rule in self._rules:
            for line in rule.recipe:
                words = command_line.split(line.lstrip("@-+ \t"))
                first = words[0] if words else ""
                first = rule.needs[0] if first.endswith("orbit-input") and rule.needs else first
                if os.path.normpath(first) == output and not any(map(_SHELL.search, words[1:])):
                    return tuple(words[1:])
        return ()


def _can_be_program(name: str) -> bool:
    return (
        bool(name)
        and "%" not in name
        and "\ue000" not in name
        and not name.startswith(".")
        and not name.endswith(_NO_PROGRAM)
    )
