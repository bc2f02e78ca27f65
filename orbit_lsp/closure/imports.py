"""Finds the modules of the workspace that a Python file imports, as Python finds them."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import tree_sitter_python
from tree_sitter import Language, Node, Parser
from tree_sitter import Tree as SyntaxTree

from orbit_lsp.closure.tree import SentTree, Spot, below, shown
from orbit_remote.common.requests import Job

_LANGUAGE = Language(tree_sitter_python.language())
_BY_NAME = (b"import_module", b"__import__", b"run_module")
_BY_FILE = (b"spec_from_file_location", b"run_path")
_SLOW_LINE = re.compile(rb"^[ \t]*+(?:#[^\n]*+|\\\r?$)", re.MULTILINE)
"""Comments and bare continuations: from each of them the parser reads ahead over all that follow."""
_HOLDERS = {
    "module", "block", "if_statement", "elif_clause", "else_clause", "for_statement", "while_statement", "try_statement",
    "except_clause", "except_group_clause", "finally_clause", "with_statement", "function_definition", "class_definition",
    "decorated_definition", "match_statement", "case_clause", "ERROR",
}  # fmt: skip
"""Nodes that statements can be in."""
_COMPILED = (".so", ".pyd")


class Import(NamedTuple):
    """An import. `level` counts the leading dots. `names` are the words behind `import` in `from module import …`."""

    level: int
    module: tuple[str, ...]
    names: tuple[str, ...] = ()
    star: bool = False


class TextImports(NamedTuple):
    """What a text imports. `unknown` are the lines of imports whose module is known only at run time."""

    imports: tuple[Import, ...]
    unknown: tuple[int, ...]
    exports: tuple[str, ...]
    changes_path: bool


def parse(content: bytes) -> TextImports:
    """Return every import in the text, also those in functions and branches. A syntax error loses only its own
    import.
    """
    tree = Parser(_LANGUAGE).parse(_SLOW_LINE.sub(b"", content))
    everywhere = b"__all__" in content or any(name in content for name in (*_BY_NAME, *_BY_FILE))
    imports: dict[Import, None] = {}
    unknown: list[int] = []
    exports: list[str] = []
    for node in _nodes(tree, everywhere=everywhere):
        if node.type == "import_statement":
            for name in node.children_by_field_name("name"):
                imports[Import(0, _dotted(name))] = None
        elif node.type == "import_from_statement":
            if imported := _from(node):
                imports[imported] = None
        elif node.type == "call":
            name = _called(node)
            if name in _BY_NAME and (imported := _by_name(node)):
                imports[imported] = None
            elif name in _BY_NAME + _BY_FILE:
                unknown.append(node.start_point[0] + 1)
        elif node.type == "assignment":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            if left and right and left.text == b"__all__":
                exports += _strings(right)
    return TextImports(tuple(imports), tuple(unknown), tuple(exports), b"sys.path" in content)


def _nodes(tree: SyntaxTree, *, everywhere: bool) -> Iterator[Node]:
    """Yield the nodes of a tree, each before those in it. Without `everywhere`, nodes in expressions are left out.

    This is no query: the time of a query grows with the square of how deep brackets are nested.
    """
    cursor = tree.walk()
    while node := cursor.node:
        yield node
        if (everywhere or node.type in _HOLDERS) and cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return


def _from(node: Node) -> Import | None:
    module = node.child_by_field_name("module_name")
    if module is None:
        return None
    level = 0
    if module.type == "relative_import":
        dots = [child.text or b"" for child in module.children if child.type == "import_prefix"]
        level = sum(each.count(b".") for each in dots)
        module = next((child for child in module.children if child.type == "dotted_name"), None)
    names = tuple(".".join(_dotted(name)) for name in node.children_by_field_name("name"))
    star = any(child.type == "wildcard_import" for child in node.children)
    return Import(level, _dotted(module) if module else (), names, star)


def _called(call: Node) -> bytes:
    function = call.child_by_field_name("function")
    if function and function.type == "attribute":
        function = function.child_by_field_name("attribute")
    return (function.text or b"") if function and function.type == "identifier" else b""


def _by_name(call: Node) -> Import | None:
    """Return the import of `import_module("a.b")`. Return None if the name is computed at run time."""
    arguments = call.child_by_field_name("arguments")
    given = arguments.named_children if arguments else []
    first = next((child for child in given if child.type != "comment"), None)
    text = _literal(first) if first else None
    if text is None:
        return None
    module = text.lstrip(".")
    return Import(len(text) - len(module), tuple(module.split(".")) if module else ())


def _dotted(node: Node) -> tuple[str, ...]:
    if node.type == "aliased_import":
        node = node.child_by_field_name("name") or node
    return tuple((node.text or b"").decode("utf-8", "replace").replace(" ", "").split("."))


def _literal(node: Node) -> str | None:
    """Return the text of a plain string. Return None for anything that is computed at run time."""
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


class FoundModule(NamedTuple):
    """What a module was found as: the file that importing it runs (none for a namespace package), and the folders of
    its submodules.
    """

    file: str
    inside: tuple[str, ...]


def look_up(
    folders: Sequence[str], name: str, is_file: Callable[[str], bool], is_folder: Callable[[str], bool]
) -> FoundModule:
    """Return what Python finds for a module in these folders: the first package or file, else all folders with that
    name.
    """
    spaces: list[str] = []
    for folder in folders:
        place = posixpath.join(folder, name)
        if is_file(init := f"{place}/__init__.py"):
            return FoundModule(init, (place,))
        if is_file(f"{place}.py"):
            return FoundModule(f"{place}.py", ())
        if is_folder(place):
            spaces.append(place)
    return FoundModule("", tuple(spaces))


def follow(tree: SentTree, job: Job, read: Sequence[str], python_path: Sequence[str] = ()) -> None:
    """Include the modules that the job's file imports. `read` are files that an earlier run read.

    They are looked up where the author's Python looks, and in `src`, which usually has packages that are installed
    for editing.
    """
    _ImportWalk(tree, job, python_path).run(read)


class _ImportWalk:
    def __init__(self, tree: SentTree, job: Job, python_path: Sequence[str]) -> None:
        self.tree = tree
        self.waiting: list[tuple[Spot, TextImports]] = []
        self.asks: dict[str, TextImports] = {}
        self.folders: dict[str, bool] = {}
        self.compiled: dict[str, list[str]] = {}
        own = posixpath.dirname(tree.main.place)
        directory = below(os.path.normpath(job.directory), tree.root) if job.directory else None
        package = own
        while package and self._is_file(posixpath.join(package, "__init__.py")):
            package = posixpath.dirname(package)
        self.given = {own, own if directory is None else directory}
        """The folders in which Python looks without further settings."""
        here = [below(os.path.normpath(folder), tree.root) for folder in python_path]
        folders = [own, *self.given, *(place for place in here if place is not None), "", "src", package]
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

    def _follow(self, spot: Spot, asks: TextImports) -> None:
        folder = posixpath.dirname(spot.place)
        roots = self.roots
        if asks.changes_path:  # what it adds is not known: any folder above the file may be
            roots = [*roots, *_above(folder)]
        for wanted in asks.imports:
            if not wanted.level:
                paths = self._import(roots, wanted.module)
                self._note_root(roots, wanted.module)
            else:
                package = self._package(spot, wanted)
                paths = self._import([package], wanted.module) if package is not None else []
            names = wanted.names
            if (
                wanted.star
                and len(paths) == 1
                and (package := self.asks.get(posixpath.join(paths[0], "__init__.py")))
            ):
                names = package.exports
            for name in names:
                self._import(paths, tuple(name.split(".")))
        if asks.unknown:
            lines = ", ".join(map(str, asks.unknown[:5])) + (", …" if len(asks.unknown) > 5 else "")
            self.tree.remark(
                f"{shown(spot.place)} imports modules whose names are known only when it runs (line {lines}); "
                "if they are in the workspace, name their files in the setting `data`."
            )

    def _package(self, spot: Spot, wanted: Import) -> str | None:
        """Return the folder that a relative import starts from. The packages that hold it are sent, because Python
        runs them.
        """
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
        """Take the files that importing `module` runs. Return the folders in which its submodules are looked up."""
        for part in module:
            if not part.isidentifier():
                return []
            found = look_up(folders, part, self._is_file, self._is_folder)
            for folder in folders:
                place = posixpath.join(folder, part)
                if found.file in (f"{place}.py", f"{place}/__init__.py"):
                    break
                self._look_for_compiled(folder, part)
            if found.file:
                self._take(found.file)
            folders = found.inside
        return list(folders)

    def _note_root(self, roots: Sequence[str], module: Sequence[str]) -> None:
        """Note the folder in which a module was found, so that Python looks there. It is not noted if Python does so
        anyway, or the code arranges it itself.
        """
        for root in roots:
            place = posixpath.join(root, module[0])
            if self._is_file(f"{place}/__init__.py") or self._is_file(f"{place}.py"):
                known = True
            else:
                known = self._is_folder(place) and any(p.startswith(f"{place}/") for p in self.tree.files)
            if known:
                if root in self.roots and root not in self.given:
                    self.tree.roots[root] = None
                return

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
                    f"{shown(posixpath.join(folder, name))} is not sent: it was compiled for this machine and its Python."
                )


def _above(folder: str) -> Iterator[str]:
    while folder:
        folder = posixpath.dirname(folder)
        yield folder
