"""Handles imports of a file that fail: stand-ins replace them while its kernels are compiled.

A kernel seldom needs all that its file imports. An import of a package that is not installed gets a stand-in. A
package of the project whose own `__init__` fails is entered without it. Nobody can compute with a stand-in. So
whatever depends on one does not compile, rather than compile wrongly.
"""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import re
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, NoReturn

from orbit_remote.common.lazy_dataclass import dataclass

NEEDED = ("torch", "triton")
"""Without these nothing is compiled."""
_MOST_TRIED = 32
_NOT_GIVEN = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


class AbsentError(Exception):
    """A value that only the missing import has."""


class Absent:
    """Stands in for what an import would have given. As a decorator it changes nothing, and it has no value."""

    def __init__(self, name: str) -> None:
        self._absent = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._absent}.{name}")

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if len(arguments) == 1 and not keywords and (callable(arguments[0]) or hasattr(arguments[0], "fn")):
            return arguments[0]
        return Absent(f"{self._absent}()")

    def __getitem__(self, item: Any) -> Any:
        return self

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return ()

    def _unknown(self, *_: Any) -> NoReturn:
        message = f"{self._absent} cannot be imported"
        raise AbsentError(message)

    __bool__ = __iter__ = __len__ = __int__ = __index__ = __float__ = __contains__ = _unknown
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown  # type: ignore[assignment]
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _unknown
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = _unknown
    __hash__ = object.__hash__

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__


class _Module(types.ModuleType):
    """A package without the code of its `__init__`: it has its modules, if any, and stand-ins for all else."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        whole = f"{self.__name__}.{name}"
        if self.__path__:
            try:
                return importlib.import_module(whole)
            except ModuleNotFoundError as error:
                if error.name != whole:
                    raise
        return Absent(whole)


class _AbsentLoader:
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: there is nothing to run."""


@dataclass(slots=True)
class Imports:
    """Makes imports of the file at `path` succeed, one after another. `remarks` say what was left out. `absent` has
    the error of each module or name that is not there.
    """

    path: str
    packages: dict[str, str] = field(default_factory=dict[str, str])
    """Packages of the project -> their folders."""
    modules: set[str] = field(default_factory=set[str])
    remarks: dict[str, None] = field(default_factory=dict[str, None])
    absent: list[ImportError] = field(default_factory=list[ImportError])

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        """Find a module's spec, as importlib asks for it."""
        del path, target
        parents = {name[:at] for at, letter in enumerate(name) if letter == "."} | {name}
        if name not in self.packages and not parents & self.modules:
            return None
        spec = importlib.machinery.ModuleSpec(name, _AbsentLoader(), is_package=True)  # type: ignore[arg-type]
        spec.submodule_search_locations = [self.packages[name]] if name in self.packages else []
        return spec

    def attempt(self, action: Callable[[], object]) -> Exception | None:
        """Do an action that imports, again and again while another import that fails can be left out. Return the
        error that is left.
        """
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)  # type: ignore[arg-type]
        for _ in range(_MOST_TRIED):
            try:
                action()
            except Exception as error:  # noqa: BLE001 - a module raises anything
                if is_needed(error) or not self._leaves_out(error):
                    return error
            else:
                return None
        return None

    def _leaves_out(self, error: Exception) -> bool:
        reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        for name, folder in _packages(error, self.path):
            if name not in self.packages:
                self.packages[name] = folder
                for module in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
                    del sys.modules[module]
                self.remarks[f"{name} was imported without its __init__.py, which fails here ({reason})"] = (
                    None
                )
                return True
        if isinstance(error, ModuleNotFoundError) and error.name and error.name not in self.modules:
            top = error.name.partition(".")[0]
            name = error.name if top in sys.modules else top
            self.modules.add(name)
            self.absent.append(error)
            return True
        if isinstance(error, ImportError) and (match := _NOT_GIVEN.search(str(error))):
            module = sys.modules.get(match[2])
            if module is not None and not hasattr(module, match[1]):
                setattr(module, match[1], Absent(f"{match[2]}.{match[1]}"))
                self.absent.append(error)
                return True
        return False


def is_needed(error: BaseException) -> bool:
    return isinstance(error, ModuleNotFoundError) and error.name in NEEDED


def stand_ins(statement: ast.Import | ast.ImportFrom) -> dict[str, Absent]:
    """Return a stand-in for each name that an import would have given."""
    names = [each.asname or each.name.partition(".")[0] for each in statement.names if each.name != "*"]
    return {name: Absent(name) for name in names}


def imported_at(text: str, line: int) -> bool:
    """Say whether the statement on this line of a file's top level is an import."""
    return any(
        isinstance(node, ast.Import | ast.ImportFrom) and node.lineno <= line <= (node.end_lineno or line)
        for node in ast.walk(ast.parse(text))
    )


def _packages(error: BaseException, path: str) -> Iterator[tuple[str, str]]:
    """Yield the packages above the file whose `__init__` an error came through, the innermost first, with their
    folders.
    """
    packages: list[tuple[str, str]] = []
    at = error.__traceback__
    while at is not None:
        file = Path(at.tb_frame.f_code.co_filename)
        name = at.tb_frame.f_globals.get("__name__", "")
        inside = file.name == "__init__.py" and Path(path).is_relative_to(file.parent)
        if inside and at.tb_frame.f_code.co_name == "<module>":
            packages.append((name, str(file.parent)))
        at = at.tb_next
    return reversed(packages)
