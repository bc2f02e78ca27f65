"""The modules of the workspace that a Python file imports, found as Python finds them."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import tree_sitter_python
from tree_sitter import Language, Node, Parser, Query, QueryCursor

from orbit_lsp.closure.tree import Spot, Tree, below, shown
from orbit_remote.contracts import Job

_LANGUAGE = Language(tree_sitter_python.language())
_IMPORTS = "(import_statement) @plain (import_from_statement) @from"
_CALLS = "(call function: [(identifier) (attribute)] @function arguments: (argument_list) @arguments)"
_ALL = '(assignment left: (identifier) @name right: (_) @value (#eq? @name "__all__"))'
_BY_NAME = (b"import_module", b"__import__", b"run_module")
_BY_FILE = (b"spec_from_file_location", b"run_path")
_COMPILED = (".so", ".pyd")


class Import(NamedTuple):
    """`level` counts the leading dots; `names` are what stands behind `import` in `from module import …`."""

    level: int
    module: tuple[str, ...]
    names: tuple[str, ...] = ()
    star: bool = False


class Asks(NamedTuple):
    """What a text imports; `unknown` are the lines of imports whose module is known only at run time."""

    imports: tuple[Import, ...]
    unknown: tuple[int, ...]
    exports: tuple[str, ...]
    changes_path: bool


def parse(content: bytes) -> Asks:
    """Every import in the text, those in functions and branches too; a syntax error costs only its own."""
    root = Parser(_LANGUAGE).parse(content).root_node
    imports: dict[Import, None] = {}
    for node in _captured(_IMPORTS, root, "plain"):
        for name in node.children_by_field_name("name"):
            imports[Import(0, _dotted(name))] = None
    for node in _captured(_IMPORTS, root, "from"):
        module = node.child_by_field_name("module_name")
        if module is None:
            continue
        level = 0
        if module.type == "relative_import":
            level = sum(
                child.text.count(b".")
                for child in module.children
                if child.type == "import_prefix" and child.text
            )
            module = next((child for child in module.children if child.type == "dotted_name"), None)
        names = tuple(".".join(_dotted(name)) for name in node.children_by_field_name("name"))
        star = any(child.type == "wildcard_import" for child in node.children)
        imports[Import(level, _dotted(module) if module else (), names, star)] = None
    unknown: list[int] = []
    if any(name in content for name in (*_BY_NAME, *_BY_FILE)):
        for found, line in _calls(root):
            if found is None:
                unknown.append(line)
            else:
                imports[found] = None
    exports = tuple(
        text
        for node in (_captured(_ALL, root, "value") if b"__all__" in content else ())
        for text in _strings(node)
    )
    return Asks(tuple(imports), tuple(unknown), exports, b"sys.path" in content)


@cache
def _query(source: str) -> Query:
    return Query(_LANGUAGE, source)


def _captured(source: str, root: Node, name: str) -> list[Node]:
    return QueryCursor(_query(source)).captures(root).get(name, [])


def _calls(root: Node) -> Iterator[tuple[Import | None, int]]:
    for _, captures in QueryCursor(_query(_CALLS)).matches(root):
        function, arguments = captures["function"][0], captures["arguments"][0]
        name = (function.text or b"").rpartition(b".")[2]
        if name not in _BY_NAME + _BY_FILE:
            continue
        first = next((child for child in arguments.named_children if child.type != "comment"), None)
        text = _literal(first) if first and name in _BY_NAME else None
        line = function.start_point[0] + 1
        if text is None:
            yield None, line
        else:
            module = text.lstrip(".")
            yield Import(len(text) - len(module), tuple(module.split(".")) if module else ()), line


def _dotted(node: Node) -> tuple[str, ...]:
    if node.type == "aliased_import":
        node = node.child_by_field_name("name") or node
    return tuple((node.text or b"").decode("utf-8", "replace").replace(" ", "").split("."))


def _literal(node: Node) -> str | None:
    """The text of a plain string; None for anything that is put together when it runs."""
    if node.type != "string" or any(
        child.type in ("interpolation", "escape_sequence") for child in node.children
    ):
        return None
    return "".join(
        (c.text or b"").decode("utf-8", "replace") for c in node.children if c.type == "string_content"
    )


def _strings(node: Node) -> Iterator[str]:
    for child in node.named_children:
        if (text := _literal(child)) is not None:
            yield text


def follow(tree: Tree, job: Job, read: Sequence[str]) -> None:
    """Let travel the modules that the job's file imports; `read` are files that an earlier run is known to have read."""
    _Walk(tree, job).run(read)


class _Walk:
    def __init__(self, tree: Tree, job: Job) -> None:
        self.tree = tree
        self.waiting: list[tuple[Spot, Asks]] = []
        self.asks: dict[str, Asks] = {}
        self.folders: dict[str, bool] = {}
        self.compiled: dict[str, list[str]] = {}
        own = posixpath.dirname(tree.main.place)
        directory = below(os.path.normpath(job.directory), tree.root) if job.directory else None
        package = own
        while package and self._is_file(posixpath.join(package, "__init__.py")):
            package = posixpath.dirname(package)
        folders = [own, own if directory is None else directory, "", "src", package]
        self.roots = list(dict.fromkeys(folders))

    def run(self, read: Sequence[str]) -> None:
        self._take(self.tree.main.place)
        for name in read:
            spot = self.tree.spot(name)
            if spot and name.endswith(".py") and self.tree.is_file(name):
                self._take(spot.place)
        while self.waiting:
            self._follow(*self.waiting.pop())

    def _path(self, place: str) -> str:
        return os.path.join(self.tree.root, *place.split("/")) if place else self.tree.root

    def _is_file(self, place: str) -> bool:
        return self.tree.is_file(self._path(place))

    def _is_folder(self, place: str) -> bool:
        if place not in self.folders:
            self.folders[place] = Path(self._path(place)).is_dir()
        return self.folders[place]

    def _take(self, place: str) -> None:
        if place in self.tree.files or self.tree.full:
            return
        spot = Spot(place, self._path(place))
        asks = self.tree.take(spot, parse)
        if asks is not None:
            self.asks[place] = asks
            self.waiting.append((spot, asks))

    def _follow(self, spot: Spot, asks: Asks) -> None:
        folder = posixpath.dirname(spot.place)
        roots = self.roots
        if asks.changes_path:  # what it adds is not known: any folder above the file may be
            roots = [*roots, *_above(folder)]
        for wanted in asks.imports:
            if not wanted.level:
                found = self._import(roots, wanted.module)
            else:
                package = self._package(spot, wanted)
                found = self._import([package], wanted.module) if package is not None else []
            names = wanted.names
            if (
                wanted.star
                and len(found) == 1
                and (package := self.asks.get(posixpath.join(found[0], "__init__.py")))
            ):
                names = package.exports
            for name in names:
                self._import(found, tuple(name.split(".")))
        if asks.unknown:
            lines = ", ".join(map(str, asks.unknown[:5])) + (", …" if len(asks.unknown) > 5 else "")
            self.tree.remark(
                f"{shown(spot.place)} imports modules whose names are known only when it runs (line {lines}); "
                "where they are in the workspace, name their files in the setting `data`."
            )

    def _package(self, spot: Spot, wanted: Import) -> str | None:
        """The folder that a relative import starts from; the packages that hold it travel, for Python runs them."""
        folder: str = posixpath.dirname(spot.place)
        for _ in range(wanted.level - 1):
            if not folder:
                self._refuse_above(wanted)
                return None
            folder = posixpath.dirname(folder)
        for package in (folder, *_above(folder)):
            if not self._is_file(init := posixpath.join(package, "__init__.py")):
                break
            self._take(init)
        return folder

    def _refuse_above(self, wanted: Import) -> None:
        above = os.path.join(self.tree.root, *[".."] * (wanted.level - 1), *wanted.module[:1])
        for path in (f"{above}.py", above):
            if os.path.exists(path):
                self.tree.refuse_outside(path)
                return

    def _import(self, folders: Sequence[str], module: Sequence[str]) -> list[str]:
        """Take what importing `module` runs; returns the folders in which its submodules are looked up."""
        for part in module:
            if not part.isidentifier():
                return []
            inside: list[str] = []
            for folder in folders:
                place = posixpath.join(folder, part)
                if self._is_file(init := f"{place}/__init__.py"):
                    self._take(init)
                    inside = [place]
                    break
                if self._is_file(f"{place}.py"):
                    self._take(f"{place}.py")
                    return []
                if self._is_folder(place):  # a namespace package, unless a later folder has a real one
                    inside.append(place)
                self._look_for_compiled(folder, part)
            folders = inside
        return list(folders)

    def _look_for_compiled(self, folder: str, part: str) -> None:
        if folder not in self.compiled:
            try:
                names = os.listdir(self._path(folder))
            except (OSError, ValueError):
                names = []
            self.compiled[folder] = [name for name in names if name.endswith(_COMPILED)]
        for name in self.compiled[folder]:
            if name.split(".")[0] == part:
                self.tree.remark(
                    f"{shown(posixpath.join(folder, name))} does not travel: it was compiled for this machine and its Python."
                )


def _above(folder: str) -> Iterator[str]:
    while folder:
        folder = posixpath.dirname(folder)
        yield folder
