"""The user's Python file as a module: from the text in the editor, under its real path, and its entry.

What the file sees is what it would see as a script or an import: `__file__`, the first entry of the path, the
arguments. Its source is put where Python and Triton look sources up (linecache), because the text may not be saved,
and on another machine the path may not exist at all.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import itertools
import linecache
import os
import re
import site
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Place

ENTRIES = ("benchmark", "benchmark_kernel", "main", "run", "test")
"""Functions that need no argument and run a file's kernels; the first of these that it has is called."""
_PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
_MOST_FOLDERS = 12
"""Above a file, that are asked whether they are a project's."""


def site_folders() -> dict[str, int]:
    """Return where packages are installed, and when something was last installed there."""
    folders = (Path(folder) for folder in site.getsitepackages())
    return {str(folder): folder.stat().st_mtime_ns for folder in folders if folder.is_dir()}


AT_THE_START = site_folders()
"""As this process, or the template that it was forked from, has read their `.pth` files."""


def read_new_sites() -> None:
    """Read new packages. They may lie in folders that a `.pth` file names, as those of `pip install -e` do."""
    for folder, changed in site_folders().items():
        if AT_THE_START.get(folder) != changed:
            site.addsitedir(folder)


class _ProjectPackages(MetaPathFinder):
    """The packages of the project that a file is part of, if they are not installed. This finder is asked after all
    others.
    """

    def __init__(self, path: str) -> None:
        projects = (
            folder
            for folder in itertools.islice(Path(path).parents, _MOST_FOLDERS)
            if any(_is_file(folder / name) for name in _PROJECT_FILES)
        )
        self._folders = [str(place) for folder in projects for place in (folder / "src", folder)]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: object = None
    ) -> ModuleSpec | None:
        del target
        if path is not None:  # inside a package
            return None
        specs = (PathFinder.find_spec(fullname, [folder]) for folder in self._folders)
        # a folder without `__init__.py` may only have the name of what is not installed
        return next((spec for spec in specs if spec and spec.loader), None)


def _is_file(path: Path) -> bool:
    """Say whether a path is a file. It is not in a folder that the user who runs a judged file may not enter."""
    try:
        return path.is_file()
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """How a file is run: a function of it, or the file itself as `__main__`.

    `certain` is false for a file whose only sign of a way in is a call at its top level. It may be a script, or a
    file of kernels that sets a seed.
    """

    function: str | None
    certain: bool = True


@dataclass(frozen=True, slots=True)
class UserFile:
    path: str
    text: str
    directory: str | None = None
    arguments: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()

    def entry(self) -> ModuleEntry | None:
        """Return the entry from the syntax alone, so that a file is executed once. Raises SyntaxError."""
        tree = ast.parse(self.text, self.path)
        statements = list(_top_level(tree.body))
        ready = {s.name for s in statements if isinstance(s, ast.FunctionDef) and _needs_nothing(s)}
        for name in ENTRIES:
            if name in ready:
                return ModuleEntry(name)
        if any(isinstance(s, ast.If) and _is_main_guard(s.test) for s in tree.body):
            return ModuleEntry(None)
        if any(isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) for s in statements):
            return ModuleEntry(None, certain=False)
        return None

    def kernels(self) -> dict[str, Place]:
        """Return the functions in its text that look like kernels, by name. Return none if its syntax is wrong.
        Functions that share a name, as methods may, are left out.
        """
        try:
            tree = ast.parse(self.text, self.path)
        except SyntaxError:
            return {}
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        kernels = [function for function in functions if _is_kernel(function)]
        count = Counter(function.name for function in kernels)
        return {f.name: Place(self.path, f.lineno) for f in kernels if count[f.name] == 1}

    def prepare(self) -> None:
        """Make this process one in which the file may run: path, folder, arguments, its source."""
        folder = str(Path(self.path).parent)
        for place in dict.fromkeys(filter(None, (self.directory, folder))):
            if place not in sys.path:
                sys.path.insert(0, place)
        sys.path += [place for place in self.roots if place not in sys.path]
        read_new_sites()
        sys.meta_path.append(_ProjectPackages(self.path))
        sys.argv = [self.path, *self.arguments]
        where = self.directory or folder
        # on another machine the author's folder may not exist, and the user of a judged file may not enter it
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            os.chdir(where)
        self._know_source()

    def execute(self, name: str) -> types.ModuleType:
        """Run the file's text as the module `name`, and leave it in sys.modules."""
        self._know_source()
        code = compile(self.text, self.path, "exec", dont_inherit=True)
        module = self.empty(name)
        if module.__package__:
            importlib.import_module(module.__package__)
        sys.modules[name] = module
        exec(code, module.__dict__)  # noqa: S102 - running the user's file is what this is for
        return module

    def _know_source(self) -> None:
        """Give tracebacks, and compilers of kernels, the text that runs: the disk may have another, or may not be
        readable.
        """
        lines = self.text.splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        # no time of change: linecache then never asks the disk whether it knows better
        linecache.cache[self.path] = (len(self.text), None, lines, self.path)

    def empty(self, name: str) -> types.ModuleType:
        """Return the module before anything of the file or its package has run."""
        module = types.ModuleType(name)
        module.__file__ = self.path
        module.__dict__["__builtins__"] = __builtins__
        module.__package__ = self._package() or module.__package__
        return module

    def module_name(self) -> str:
        """Return the file's stem, unless something else that may be imported has that name."""
        stem = Path(self.path).stem
        taken = stem in sys.stdlib_module_names or stem in sys.modules
        return stem if stem.isidentifier() and not taken else "orbit_user_" + re.sub(r"\W", "_", stem)

    def way_in(self, entry: ModuleEntry) -> Callable[[], Any]:
        """Execute the file as a module and return its function, or return the whole of it as `__main__`."""
        if entry.function is None:
            return lambda: self.execute("__main__")
        module = self.execute(self.module_name())
        return getattr(module, entry.function)

    def _package(self) -> str | None:
        """Return the package the file is in, if it imports from it relatively. Folders of a package may have no
        `__init__.py`.
        """
        tree = ast.parse(self.text, self.path)
        if not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree)):
            return None
        folder = Path(self.path).parent
        names: list[str] = []
        while folder.name and any((each / "__init__.py").is_file() for each in (folder, folder.parent)):
            names.insert(0, folder.name)
            folder = folder.parent
        if names and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        return ".".join(names) or None


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when the file does, without the main part."""
    for node in body:
        if isinstance(node, ast.If) and _is_main_guard(node.test):
            continue
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            for inner in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(node, inner, ()))


def _needs_nothing(function: ast.FunctionDef) -> bool:
    arguments = function.args
    positional = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    if positional > 0 or any(default is None for default in arguments.kw_defaults):
        return False
    return not _is_kernel(function)  # a kernel may be called `main` too


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _is_main_guard(test: ast.expr) -> bool:
    names = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
    values = {node.value for node in ast.walk(test) if isinstance(node, ast.Constant)}
    return "__name__" in names and "__main__" in values
