"""How Bazel compiles a CUDA file: the libraries of BUILD files, whose lists are read as text; nothing of them is run"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from orbit_lsp.compilation import command_line
from orbit_remote.common import regular_files
from orbit_remote.common.limits import BUILD_FILE, OUTLINED

NAMES = ("BUILD.bazel", "BUILD")
"""Bazel takes the first that is there."""
_ROOTS = ("MODULE.bazel", "WORKSPACE.bazel", "WORKSPACE", "REPO.bazel")
_SOURCES = ("srcs", "hdrs", "textual_hdrs", "cuda_srcs", "device_srcs")
_OPTIONS = ("copts", "nvcc_copts", "cuda_copts", "cudaopts")
_MOST_LIBRARIES = 64
"""Whose defines one library may be given."""
_LONGEST = 80
"""Characters of an expression that is named."""
_MOST_TEXTS = 400
"""Of one list."""
_MOST_DEPTH = 12
_MOST_PARTS = 20_000
"""Of all lists of a file: a few lines can repeat one without end."""


class Library(NamedTuple):
    """`flags` are nvcc's, as a database's command would have them; `left_out` is what its lists have that only Bazel knows."""

    flags: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def read(file: str, path: str, root: str) -> Library:
    """Of the library in the BUILD file `file` that has the source `path`: its options and macros, and the macros and include
    folders of what it depends on, which Bazel passes on. Reads the BUILD files of those.
    """
    above = [each for each in Path(file).parents if each.is_relative_to(root)]
    top = next((each for each in above if any((each / name).is_file() for name in _ROOTS)), Path(root))
    packages = _Packages(top)
    package = os.path.relpath(os.path.dirname(file), top)
    return packages.library("" if package == "." else package, path)


class _Lists:
    """A call's lists, as far as they are literal."""

    def __init__(self, names: dict[str, ast.expr]) -> None:
        self.names = names
        self.left_out: dict[str, None] = {}
        self.parts = 0

    def of(self, call: ast.Call, keyword: str) -> list[str]:
        node = next((each.value for each in call.keywords if each.arg == keyword), None)
        return list(islice(self._texts(node, keyword), _MOST_TEXTS)) if node else []

    def _texts(self, node: ast.expr, keyword: str, depth: int = 0) -> Iterator[str]:
        self.parts += 1
        if self.parts > _MOST_PARTS:
            return
        match node:
            case ast.Constant(value=str() as text):
                yield text
            case ast.List() | ast.Tuple() if depth < _MOST_DEPTH:
                for each in node.elts[:_MOST_TEXTS]:
                    yield from self._texts(each, keyword, depth + 1)
            case ast.BinOp(op=ast.Add()) if depth < _MOST_DEPTH:
                yield from self._texts(node.left, keyword, depth + 1)
                yield from self._texts(node.right, keyword, depth + 1)
            case ast.Name() if node.id in self.names and depth < _MOST_DEPTH:
                yield from self._texts(self.names[node.id], keyword, depth + 1)
            case ast.Call(func=ast.Name(id="glob"), args=[patterns, *_]):
                yield from self._texts(patterns, keyword, depth + 1)
            case _:
                self.left_out[f"{keyword} = {_shown(node)}"] = None


class _Packages:
    def __init__(self, top: Path) -> None:
        self.top = top
        self.read: dict[str, tuple[list[ast.Call], dict[str, ast.expr]]] = {}

    def library(self, package: str, path: str) -> Library:
        calls, names = self._calls(package)
        name = os.path.relpath(path, self.top / package)
        lists = _Lists(names)
        found = [call for call in calls if any(_means(each, name) for each in self._sources(call, names))]
        if not found:
            return Library()
        (call, *_) = sorted(found, key=lambda each: "cuda" not in _function(each))
        words: list[str] = []
        for option in _OPTIONS:
            words += lists.of(call, option)
        macros = lists.of(call, "local_defines") + lists.of(call, "defines")
        folders = self._folders(package, lists.of(call, "includes"))
        for define, folder in self._passed_on(package, lists.of(call, "deps"), lists):
            macros += [define] if define else []
            folders += [folder] if folder else []
        words += [f"-D{macro}" for macro in macros]
        known = [word for word in words if not re.search(r"\$[(@<]", word)]
        left_out = dict.fromkeys(word for word in words if word not in known)
        flags = command_line.parse(["nvcc", *known, *(f"-I{each}" for each in folders)], str(self.top), path)
        relevant = (each for each in lists.left_out if each.partition(" =")[0] not in ("deps", *_SOURCES))
        return Library(flags.flags, (*left_out, *relevant))

    def _sources(self, call: ast.Call, names: dict[str, ast.expr]) -> Iterator[str]:
        for keyword in _SOURCES:
            yield from _Lists(names).of(call, keyword)

    def _passed_on(self, package: str, deps: list[str], lists: _Lists) -> Iterator[tuple[str, str]]:
        """The macros and the include folders of libraries that a library depends on, and of those that they depend on."""
        waiting = [self._label(dep, package) for dep in deps]
        seen: set[tuple[str, str]] = set()
        while waiting and len(seen) < _MOST_LIBRARIES:
            label = waiting.pop(0)
            if label in seen:
                continue
            seen.add(label)
            calls, names = self._calls(label[0])
            own = _Lists(names)
            for call in calls:
                if own.of(call, "name") == [label[1]]:
                    own.left_out.clear()
                    yield from ((define, "") for define in own.of(call, "defines"))
                    yield from (("", each) for each in self._folders(label[0], own.of(call, "includes")))
                    lists.left_out |= own.left_out
                    waiting += [self._label(dep, label[0]) for dep in own.of(call, "deps")]

    def _label(self, label: str, package: str) -> tuple[str, str]:
        """The package and the name of `//lib/math:pixel`, `:pixel`, `//lib/pixel` or `@repository//:pixel`."""
        repository, slashes, rest = label.partition("//")
        if not slashes:
            return package, label.removeprefix(":")
        within, _, name = rest.partition(":")
        if repository.strip("@"):
            within = os.path.join("external", repository.strip("@"), within)
        return within.rstrip("/"), name or os.path.basename(within)

    def _folders(self, package: str, includes: list[str]) -> list[str]:
        return [os.path.normpath(self.top / package / each) for each in includes]

    def _calls(self, package: str) -> tuple[list[ast.Call], dict[str, ast.expr]]:
        """The calls of a package's BUILD file, and what its names stand for."""
        if package not in self.read:
            self.read[package] = [], {}
            folder = Path(os.path.normpath(self.top / package))
            file = next((folder / name for name in NAMES if (folder / name).is_file()), None)
            if file and folder.is_relative_to(self.top):
                self.read[package] = _parsed(str(file))
        return self.read[package]


def _parsed(file: str) -> tuple[list[ast.Call], dict[str, ast.expr]]:
    """Starlark that is no Python has nothing."""
    try:
        text = regular_files.text(file, BUILD_FILE)
        body = ast.parse(text).body if len(text) <= OUTLINED.most else []
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return [], {}
    calls = [each.value for each in body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    names = {
        target.id: each.value
        for each in body
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    return calls, names


def _shown(node: ast.expr) -> str:
    try:
        text = ast.unparse(node)
    except RecursionError:
        return "…"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _function(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _means(source: str, name: str) -> bool:
    """Whether an entry of `srcs`, which may be a pattern, is the file `name` of the package."""
    source = source.removeprefix(":")
    if "*" not in source:
        return source == name
    if len(source) > 200:
        return False
    head, _, tail = source.partition("*")
    return name.startswith(head) and name.endswith(tail.lstrip("*/").rpartition("*")[2])
