"""Make and Automake as build systems: what a Makefile says of a source, and the programs that it links."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems import make_functions, makefiles
from orbit_lsp.compilation.build_systems.reading import SHELL, BuildFile, BuildSystem, Reading, in_folder
from orbit_lsp.drivers.declared import DeclaredProgram

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
_COMPILERS = re.compile(r"nvcc|g\+\+|clang|\bcc\b|gcc|CXX|NVCC|CC\b|LD\b", re.IGNORECASE)
_OF_ANY = re.compile(
    r"[%*]\.cu\b|\.cu\.|\$[({]MAKE[)}]|\bmake -C|\$\((?:eval|call|wildcard) |\bfind\b|=[ \t]*\.?cu[ \t]*$|_SOURCES",
    re.MULTILINE,
)
"""Signs that a Makefile compiles sources which it does not name."""
_TO_FILL_IN = re.compile(r"@+(\w+)@+|\{\{\s{0,9}(\w+)\s{0,9}\}\}")
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)


def _of_file(file: BuildFile) -> Reading | None:
    """Read a Makefile. Return None if a build file of another system is nearer: then the Makefile belongs to another
    project.
    """
    if not makefiles.is_makefile(file.nearest):
        return None
    text = _TO_FILL_IN.sub(r"$(\1\2)", file.text) if file.template else file.text
    reading = makefiles.read(file.path, text, file.source, file.included)
    of_any = bool(_OF_ANY.search(_COMMENT.sub("", text)))
    return reading._replace(whole=reading.certain, of_any=of_any)


def _of_makefiles(
    source: str, folders: Sequence[str], text_of: Callable[[str], str]
) -> Iterator[DeclaredProgram]:
    for folder in folders:
        for name in _PLAIN:
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
        """Return the file that a rule's recipe writes. It is the rule's target, unless a compiler is given another
        one. Return None if the recipe compiles nothing.
        """
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
        """Yield the files that a rule's target is made of, through objects and libraries, as the Makefile names them."""
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
        for rule in self._rules:
            for target in rule.targets:
                stem = make_functions.stem_of(target, need) if "%" in target else None
                if stem is None:
                    continue
                for pattern in rule.needs:
                    made = os.path.normpath(pattern.replace("%", stem))
                    if made.endswith((".cu", ".cpp", ".cc", ".cxx", ".c")) and os.path.isfile(
                        os.path.join(self._folder, made)
                    ):
                        yield made
                        return
        if not need.endswith(_OBJECTS):
            return
        # a suffix rule, or one of make's own
        base = need.rpartition(".")[0]
        for suffix in ("", ".cu", ".cpp", ".cc", ".cxx", ".c"):
            if os.path.isfile(os.path.join(self._folder, base + suffix)):
                yield base + suffix
                return

    def _arguments(self, output: str) -> tuple[str, ...]:
        """Return the arguments with which a recipe of the Makefile starts the program."""
        for rule in self._rules:
            for line in rule.recipe:
                words = command_line.split(line.lstrip("@-+ \t"))
                first = words[0] if words else ""
                first = rule.needs[0] if first.endswith("orbit-input") and rule.needs else first
                if os.path.normpath(first) == output and not any(map(SHELL.search, words[1:])):
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


_PLAIN = ("GNUmakefile", "makefile", "Makefile")
SYSTEMS = (
    # make -B runs all, though nothing has changed, and bear notes what it runs
    BuildSystem(
        2,
        _PLAIN,
        _of_file,
        programs=_of_makefiles,
        database_command=in_folder("bear -- make -B"),
        fits=makefiles.is_makefile,
    ),
    BuildSystem(5, ("Makefile.am", "Makefile.in"), _of_file),
)
