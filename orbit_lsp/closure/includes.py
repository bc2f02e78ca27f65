"""Finds what a CUDA file includes, as nvcc finds it, and the folders and files that its flags name."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from orbit_lsp.closure.tree import SentTree, Spot, below, shown
from orbit_lsp.kernels.cuda.lexer import clean_directive
from orbit_lsp.kernels.cuda.macros import directives
from orbit_remote.common.requests import Job

Form = Literal["quoted", "angle", "next"]
Kind = Literal["quote", "folder", "system", "file", "define", "input"]

_INCLUDE = re.compile(
    r'\#\s*(?P<word>include_next|include|import)\s*(?:"(?P<quoted>[^"\n]+)"|<(?P<angle>[^>\n]+)>|(?P<macro>\w.*))'
)
_DEFINE = re.compile(r'\#\s*define\s+(\w+)[ \t]+("[^"]+"|<[^>]+>|[^\W\d]\w*)\s*$')
_NAMED = re.compile(r'"([^"]+)"|<([^>]+)>')
_SOURCES = (".cu", ".c", ".cc", ".cpp", ".cxx")

_OPTIONS: dict[str, Kind] = {
    "-I": "folder", "--include-path": "folder", "-isystem": "system", "--system-include": "system",
    "-include": "file", "--pre-include": "file", "-D": "define", "--define-macro": "define",
}  # fmt: skip
_HOST_OPTIONS: dict[str, Kind] = {
    "-I": "folder", "-isystem": "system", "-iquote": "quote", "-idirafter": "system", "-include": "file",
}  # fmt: skip
_TO_HOST = ("-Xcompiler", "--compiler-options")
_SYSTEM = (
    "/usr/include", "/usr/lib", "/Library/Developer", "/Applications/Xcode.app",
    r"C:\Program Files\Microsoft Visual Studio", r"C:\Program Files (x86)\Windows Kits",
)  # fmt: skip
_OF_THE_TOOLKIT = "crt/host_config.h"  # in every CUDA toolkit's include folder, and in no other


class Include(NamedTuple):
    name: str
    form: Form


class TextIncludes(NamedTuple):
    """What a text includes. `macros` are the words behind `#include` that are no file names."""

    includes: tuple[Include, ...]
    macros: tuple[str, ...]
    definitions: tuple[tuple[str, str], ...]


def parse(content: bytes) -> TextIncludes:
    """Read what a text includes. Comments, strings and branches that are never taken do not count."""
    includes: dict[Include, None] = {}
    macros: dict[str, None] = {}
    definitions: dict[tuple[str, str], None] = {}
    for directive in directives(content.decode("utf-8", "replace")):
        text = clean_directive(directive).strip()
        if match := _INCLUDE.match(text) or _INCLUDE.match(directive):  # <a//b.h> is no comment
            if match["macro"]:
                macros[match["macro"].strip()] = None
                continue
            form: Form = "quoted" if match["quoted"] else "angle"
            name = match["quoted"] or match["angle"].strip()
            includes[Include(name, "next" if match["word"] == "include_next" else form)] = None
        elif define := _DEFINE.match(text):
            definitions[define[1], define[2]] = None
    return TextIncludes(tuple(includes), tuple(macros), tuple(definitions))


def rewrite(flags: Sequence[str], change: Callable[[Kind, str], str]) -> tuple[str, ...]:
    """Return the flags with each folder, file and macro definition in them replaced by `change`. Other flags stay.

    `input` is a word that belongs to no option known here: another source or object file, or the value of some other
    option.
    """
    out: list[str] = []
    words = iter(flags)
    open_option: Kind | None = None  # an option among those for the host compiler whose value comes next

    def host(part: str) -> str:
        nonlocal open_option
        if open_option:
            kind, open_option = open_option, None
            return change(kind, part)
        if part in _HOST_OPTIONS:
            open_option = _HOST_OPTIONS[part]
            return part
        for name, kind in _HOST_OPTIONS.items():
            if part.startswith(name) and name != "-include":
                return name + change(kind, part[len(name) :])
        return part

    def each(kind: Kind, value: str) -> str:
        if kind == "define":
            return change(kind, value)
        return ",".join(change(kind, part) for part in value.split(","))

    for word in words:
        name, joined, value = word.partition("=")
        if word in _TO_HOST:
            out += [word, *(",".join(map(host, v.split(","))) for v in _next(words))]
        elif name in _TO_HOST and joined:
            out.append(f"{name}=" + ",".join(map(host, value.split(","))))
        elif word in _OPTIONS:
            kind = _OPTIONS[word]
            out += [word, *(each(kind, v) for v in _next(words))]
        elif name in _OPTIONS and joined and value:
            out.append(f"{name}={each(_OPTIONS[name], value)}")
        elif word[:2] in ("-I", "-D") and len(word) > 2:
            out.append(word[:2] + each(_OPTIONS[word[:2]], word[2:]))
        elif word.startswith("-"):
            out.append(word)
        else:
            out.append(change("input", word))
    return tuple(out)


def absolute(job: Job) -> tuple[str, ...]:
    """Return the job's flags with absolute paths in them, without `..`. They are relative to where the compiler runs."""
    directory = job.directory or str(Path(job.path).parent)

    def change(kind: Kind, value: str) -> str:
        path = os.path.normpath(os.path.join(directory, value))
        searched = kind in ("input", "file")  # `-include` looks along the include folders too
        return value if kind == "define" or (searched and not os.path.isfile(path)) else path

    return rewrite(job.flags, change)


def _next(words: Iterator[str]) -> list[str]:
    value = next(words, None)
    return [] if value is None else [value]


def follow(tree: SentTree, job: Job, read: Sequence[str]) -> None:
    """Add to the closure what the job's file includes. `read` are files that an earlier build is known to have read."""
    _IncludeWalk(tree, job).run(read)


class _IncludeWalk:
    def __init__(self, tree: SentTree, job: Job) -> None:
        self.tree = tree
        self.directory = job.directory or str(Path(job.path).parent)
        self.folders: dict[Kind, list[Spot]] = {"quote": [], "folder": [], "system": []}
        self.first: list[str] = []
        self.inputs: list[str] = []
        self.definitions: dict[str, dict[str, None]] = {}
        self.waiting: list[tuple[Spot, TextIncludes]] = []
        self.macros: dict[tuple[Spot, str], bool] = {}
        """What stands behind `#include` in which file, and whether a meaning is known."""
        self.spots: dict[tuple[str, str, Form], list[Spot]] = {}
        rewrite(job.flags, self._note)

    def run(self, read: Sequence[str]) -> None:
        tree = self.tree
        self._take(tree.main)
        for name in self.first:
            self._take_first(name)
        for name in self.inputs:
            if (spot := tree.spot(name)) is None:
                tree.remark(f"{shown(name)}, named by a flag, lies outside of the workspace and is not sent.")
            else:
                self._take(spot, source=name.lower().endswith(_SOURCES))
        for name in read:
            if not _is_systems(str(Path(name).parent)) and (spot := tree.spot(name)) and tree.is_file(name):
                self._take(spot)
        while self.waiting:
            self._follow(*self.waiting.pop())
            if not self.waiting:
                self._resolve_macros()
        for (spot, macro), known in self.macros.items():
            if not known:
                tree.remark(
                    f"{shown(spot.place)} includes {shown(macro)}, whose name is not known before it is compiled; "
                    "name that file in the setting `data`."
                )

    def _note(self, kind: Kind, value: str) -> str:
        path = os.path.normpath(os.path.join(self.directory, value))
        if kind == "define":
            name, _, body = value.replace("\\", "").partition("=")
            self.definitions.setdefault(name, {})[body] = None
        elif kind == "file":
            self.first.append(value)
        elif kind == "input":
            if self.tree.is_file(path):
                self.inputs.append(path)
        elif Path(path).is_dir() and not _is_systems(path) and (spot := self.tree.map(path)):
            self.folders[kind].append(spot)
        return value

    def _take(self, spot: Spot, *, source: bool = True) -> None:
        if spot.place in self.tree.files or self.tree.full:
            return
        asks = self.tree.take(spot, parse if source else None)
        if asks is not None:
            self.waiting.append((spot, asks))

    def _take_first(self, name: str) -> None:
        """Find a file of `-include`: relative to where the compiler runs, else as `#include "…"`."""
        path = os.path.normpath(os.path.join(self.directory, name))
        if self.tree.is_file(path):
            folder = self.tree.map(str(Path(path).parent))
            spots = [self.tree.beside(folder, Path(path).name)] if folder else []
        else:
            spots = self._find(self.tree.main, Include(name, "quoted"))
        for spot in filter(None, spots):
            self._take(spot)

    def _follow(self, spot: Spot, asks: TextIncludes) -> None:
        for include in asks.includes:
            for reached in self._find(spot, include):
                self._take(reached)
        for macro in asks.macros:
            self.macros.setdefault((spot, macro), False)
        for name, body in asks.definitions:
            self.definitions.setdefault(name, {})[body] = None

    def _find(self, source: Spot, include: Include) -> list[Spot]:
        """Return where nvcc finds a header: the first place that has it, or every place for `#include_next`."""
        name, form = include
        folder = self.tree.folder_of(source)
        key = (folder.place if form == "quoted" else "", name, form)
        if key not in self.spots:
            self.spots[key] = self._search(source, folder, include)
        return self.spots[key]

    def _search(self, source: Spot, folder: Spot, include: Include) -> list[Spot]:
        name, form = include
        if "\\" in name:
            self.tree.remark(
                f"{shown(source.place)} includes {shown(name)} with a backslash, which no compiler on Linux finds; "
                "write it with /."
            )
            return []
        if os.path.isabs(name):
            if self.tree.is_file(name) and not _is_systems(str(Path(name).parent)):
                self.tree.remark(
                    f"{shown(source.place)} includes {shown(name)} by its absolute path, which another machine "
                    "does not have; include it relative to a folder."
                )
            return []
        quoted = [folder] if form == "quoted" else []
        quoted += self.folders["quote"] if form != "angle" else []
        spots: list[Spot] = []
        for place in (*quoted, *self.folders["folder"], *self.folders["system"]):
            spot = self.tree.beside(place, name)
            if spot and spot not in spots:
                spots.append(spot)
                if form != "next":
                    break
        return spots

    def _resolve_macros(self) -> None:
        for (spot, macro), known in list(self.macros.items()):
            named = list(self._meanings(macro))
            self.macros[spot, macro] = known or bool(named)
            for include in named:
                for reached in self._find(spot, include):
                    self._take(reached)

    def _meanings(self, macro: str) -> Iterator[Include]:
        """Yield every name that a macro may stand for, by all of its definitions."""
        waiting, seen = [macro], {macro}
        while waiting:
            for body in self.definitions.get(waiting.pop(), ()):
                if match := _NAMED.fullmatch(body):
                    yield Include(match[1] or match[2], "quoted" if match[1] else "angle")
                elif body not in seen:
                    seen.add(body)
                    waiting.append(body)


def _is_systems(folder: str) -> bool:
    """Say whether a folder belongs to the system or a CUDA toolkit: the other machine has its own."""
    return (
        any(below(folder, system) is not None for system in _SYSTEM)
        or Path(folder, _OF_THE_TOOLKIT).is_file()
    )
