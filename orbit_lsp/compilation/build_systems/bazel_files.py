"""Reads how Bazel compiles a CUDA file from the lists in BUILD files. They are read as text; nothing of them is run."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems.makefiles import without_option_files
from orbit_lsp.compilation.build_systems.reading import BuildFile, BuildSystem, Reading
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
_MOST_TEXTS = 2_001
"""Of one list: one more than may become flags, so that it is seen where there are more."""
_MOST_DEPTH = 12
_MOST_PARTS = 20_000
"""Of all lists: a few lines can repeat one without end."""
_MOST_WORDS = 2_000
"""Of all options, macros and folders."""
_MOST_CHARACTERS = 64 << 10
"""Of these words."""
_MOST_SHOWN = 500
"""Parts of an expression that is named as it is written."""
_MARKS = ",[({=+-*.<>|&~!/:;@%^"
_MOST_TOKENS = 20_000
"""Marks and words of all BUILD files that are read for one library; Python's parser takes 10 µs for each and cannot be
interrupted. A BUILD file of 3,000 lines has about as many.
"""
_LONGEST_PATTERN = 200
_DEEPEST_PATTERN = 16
_NOT_IN_FLAGS = ("name", "deps", *_SOURCES)


def read(file: str, path: str, root: str) -> Reading:
    """Read the library in the BUILD file `file` that has the source `path`: its options and macros, and the macros
    and include folders of what it depends on, which Bazel passes on. Reads the BUILD files of those too. Option files
    that it names are left out: they could be any file of this machine.
    """
    above = [each for each in Path(file).parents if each.is_relative_to(root)]
    top = next((each for each in above if any(os.path.isfile(each / name) for name in _ROOTS)), Path(root))
    packages = _Packages(top)
    package = os.path.relpath(os.path.dirname(file), top)
    return packages.library("" if package == "." else package, path)


class _Budget:
    """Limits how much of all lists together is read."""

    def __init__(self) -> None:
        self.parts = self.words = self.characters = 0
        self.shown: dict[int, str] = {}
        """Each expression that is named, by its identity: a list can have one a thousand times."""


class _Lists:
    """A call's lists, as far as they are literal."""

    def __init__(self, names: dict[str, ast.expr], budget: _Budget, source: str = "") -> None:
        self.names = names
        self.budget = budget
        self.source = source
        """The file, as its package names it, that a glob may exclude."""
        self.left_out: dict[str, None] = {}

    def of(self, call: ast.Call, keyword: str) -> list[str]:
        node = next((each.value for each in call.keywords if each.arg == keyword), None)
        texts = islice(self._texts(node, keyword), _MOST_TEXTS) if node else ()
        if keyword in _NOT_IN_FLAGS:
            return list(texts)
        words: list[str] = []
        for text in texts:
            self.budget.words += 1
            self.budget.characters += len(text)
            if self.budget.words > _MOST_WORDS or self.budget.characters > _MOST_CHARACTERS:
                limits = f"{_MOST_WORDS:,} words or {_MOST_CHARACTERS:,} characters"
                self.left_out[f"{keyword} behind the first {limits} of lists"] = None
                break
            words.append(text)
        return words

    def _texts(self, node: ast.expr, keyword: str, depth: int = 0) -> Iterator[str]:
        self.budget.parts += 1
        if self.budget.parts > _MOST_PARTS:
            self.left_out[f"{keyword} behind the first {_MOST_PARTS:,} parts of lists"] = None
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
            case ast.Call(func=ast.Name(id="glob")) if depth < _MOST_DEPTH:
                included, excluded = (_argument(node, *each) for each in ((0, "include"), (1, "exclude")))
                without = islice(self._texts(excluded, keyword, depth + 1), _MOST_TEXTS) if excluded else ()
                if included and not (self.source and any(_means(each, self.source) for each in without)):
                    yield from self._texts(included, keyword, depth + 1)
            case _:
                self.left_out[f"{keyword} = {self.shown(node)}"] = None

    def shown(self, node: ast.expr) -> str:
        key = id(node)  # the tree lives as long as the packages
        if key not in self.budget.shown:
            self.budget.shown[key] = _shown(node)
        return self.budget.shown[key]


def _argument(call: ast.Call, at: int, name: str) -> ast.expr | None:
    named = next((each.value for each in call.keywords if each.arg == name), None)
    return call.args[at] if at < len(call.args) else named


class _Package(NamedTuple):
    calls: list[ast.Call]
    names: dict[str, ast.expr]
    """What its names stand for."""
    targets: dict[str, list[ast.Call]]
    """Its calls by their `name`."""


class _Packages:
    def __init__(self, top: Path) -> None:
        self.top = top
        self.read: dict[str, _Package] = {}
        self.budget = _Budget()
        self.tokens = 0
        self.unread: dict[str, None] = {}
        """BUILD files that are too long, with those before them."""

    def library(self, package: str, path: str) -> Reading:
        made = self._package(package)
        name = os.path.relpath(path, self.top / package)
        sources = _Lists(made.names, self.budget, name)
        libraries = [call for call in made.calls if self._has(call, sources, name)]
        if not libraries:
            left_out = (*self.unread, *self._too_many(sources))
            return Reading((), left_out, certain=bool(left_out))
        self.budget.parts = 0  # what the search took is not missing in the flags
        lists = _Lists(made.names, self.budget)
        (call, *_) = sorted(libraries, key=lambda each: "cuda" not in _function(each))
        words: list[str] = []
        for option in _OPTIONS:
            words += lists.of(call, option)
        macros = lists.of(call, "local_defines") + lists.of(call, "defines")
        folders = self._folders(package, lists.of(call, "includes"))
        for define, folder in self._passed_on(package, lists.of(call, "deps"), lists):
            macros += [define] if define else []
            folders += [folder] if folder else []
        words += [f"-D{macro}" for macro in macros]
        if _function(call) == "cuda_objects":  # a rule of rules_cuda, whose objects a cuda_library links
            words.append("-rdc=true")
        elif rdc := next((each.value for each in call.keywords if each.arg == "rdc"), None):
            literal = rdc.value if isinstance(rdc, ast.Constant) else None
            if literal in (True, 1):
                words.append("-rdc=true")
            elif literal not in (False, 0):
                lists.left_out[f"rdc = {lists.shown(rdc)}"] = None
        words, option_files = without_option_files(words)
        known = [word for word in words if not re.search(r"\$[(@<]", word)]
        left_out = dict.fromkeys(word for word in words if re.search(r"\$[(@<]", word))
        command = command_line.parse(
            ["nvcc", *known, *(f"-I{each}" for each in folders)], str(self.top), path
        )
        relevant = (each for each in lists.left_out if each.partition(" =")[0] not in ("deps", *_SOURCES))
        left_out |= dict.fromkeys((*option_files, *relevant, *self.unread, *command.left_out))
        certain = bool(command.flags or left_out)
        return Reading(command.flags, tuple(left_out), is_source=True, certain=certain)

    def _too_many(self, sources: _Lists) -> Iterator[str]:
        if sources.budget.parts > _MOST_PARTS:
            yield f"sources behind the first {_MOST_PARTS:,} parts of lists"

    def _has(self, call: ast.Call, sources: _Lists, name: str) -> bool:
        """Say whether the file `name` of the package is one of the call's sources."""
        return self.budget.parts <= _MOST_PARTS and any(
            _means(each, name) for keyword in _SOURCES for each in sources.of(call, keyword)
        )

    def _passed_on(self, package: str, deps: list[str], lists: _Lists) -> Iterator[tuple[str, str]]:
        """Yield the macros and the include folders of the libraries that a library depends on, directly or through
        others.
        """
        waiting = [self._label(dep, package) for dep in deps]
        seen: set[tuple[str, str]] = set()
        while waiting and len(seen) < _MOST_LIBRARIES:
            label = waiting.pop(0)
            if label in seen:
                continue
            seen.add(label)
            made = self._package(label[0])
            own = _Lists(made.names, self.budget)
            for call in made.targets.get(label[1], ()):
                own.left_out.clear()
                yield from ((define, "") for define in own.of(call, "defines"))
                yield from (("", each) for each in self._folders(label[0], own.of(call, "includes")))
                lists.left_out |= own.left_out
                waiting += [self._label(dep, label[0]) for dep in own.of(call, "deps")]

    def _label(self, label: str, package: str) -> tuple[str, str]:
        """Return the package and the name of `//lib/math:pixel`, `:pixel`, `//lib/pixel` or `@repository//:pixel`."""
        repository, slashes, rest = label.partition("//")
        if not slashes:
            return package, label.removeprefix(":")
        within, _, name = rest.partition(":")
        if repository.strip("@"):
            within = os.path.join("external", repository.strip("@"), within)
        return within.rstrip("/"), name or os.path.basename(within)

    def _folders(self, package: str, includes: list[str]) -> list[str]:
        return [os.path.normpath(self.top / package / each) for each in includes]

    def _package(self, package: str) -> _Package:
        """Return what a package's BUILD file has."""
        if package not in self.read:
            self.read[package] = _Package([], {}, {})
            folder = Path(os.path.normpath(self.top / package))
            # os.path.isfile: a name may be too long for the system, which raises elsewhere
            file = next((str(folder / name) for name in NAMES if os.path.isfile(folder / name)), "")
            if file and folder.is_relative_to(self.top):
                text = _text(file)
                tokens = sum(map(text.count, _MARKS)) + len(text.split())
                if self.tokens + tokens <= _MOST_TOKENS:
                    self.tokens += tokens
                    self.read[package] = _parsed(text)
                else:
                    name = os.path.relpath(file, self.top)
                    self.unread[f"what {name} adds, which is too long to be read"] = None
        return self.read[package]


def _text(file: str) -> str:
    try:
        text = regular_files.text(file, BUILD_FILE)
    except (OSError, ValueError):
        return ""
    return text if len(text) <= OUTLINED.most else ""


def _parsed(text: str) -> _Package:
    """Parse a BUILD file. If its Starlark is not valid Python, the package has nothing."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Package([], {}, {})
    calls = [each.value for each in body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)]
    names = {
        target.id: each.value
        for each in body
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    targets: dict[str, list[ast.Call]] = {}
    for call in calls:
        node = _argument(call, len(call.args), "name")
        node = names.get(node.id) if isinstance(node, ast.Name) else node
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            targets.setdefault(node.value, []).append(call)
    return _Package(calls, names, targets)


def _shown(node: ast.expr) -> str:
    if len(list(islice(ast.walk(node), _MOST_SHOWN))) == _MOST_SHOWN:
        return f"{_function(node)}(…)" if isinstance(node, ast.Call) else "…"
    try:
        text = ast.unparse(node)
    except (RecursionError, ValueError):  # ValueError: a number that is too long to be written
        return "…"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _function(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _means(source: str, name: str) -> bool:
    """Say whether an entry of `srcs`, which may be a pattern, means the file `name` of the package."""
    source = source.removeprefix(":")
    if "*" not in source:
        return source == name
    if len(source) > _LONGEST_PATTERN or source.count("/") > _DEEPEST_PATTERN:
        return False
    return _fits(source.split("/"), name.split("/"))


def _fits(pattern: list[str], names: list[str]) -> bool:
    """Say whether folders match those of a pattern. `**` stands for any number of them. It takes as many steps as a
    table of both has cells.
    """
    fits = [True] + [False] * len(names)  # whether the pattern so far fits the first 0, 1, … names
    for part in pattern:
        if part == "**":
            first = fits.index(True) if True in fits else len(fits)
            fits = [at >= first for at in range(len(fits))]
        else:
            fits = [False, *(fit and _fits_one(part, name) for fit, name in zip(fits, names, strict=False))]
    return fits[-1]


def _fits_one(pattern: str, name: str) -> bool:
    """Match one name. `*` stands for any characters of it."""
    head, *between = pattern.split("*")
    if not between:
        return pattern == name
    *between, tail = between
    at, end = len(head), len(name) - len(tail)
    if end < at or not name.startswith(head) or not name.endswith(tail):
        return False
    for part in between:
        position = name.find(part, at, end)
        if position < 0:
            return False
        at = position + len(part)
    return True


def _of_file(file: BuildFile) -> Reading:
    return read(file.path, file.source, file.root)


SYSTEMS = (BuildSystem(4, ("BUILD", "BUILD.bazel"), _of_file, reaches_out=False),)
