"""What pytest collects, from the text of its configuration files: which files, classes and functions hold tests."""

from __future__ import annotations

import configparser
import posixpath
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

from orbit_lsp.drivers.index import WordIndex
from orbit_remote.common import regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.limits import DRIVER_FILE

_FILES = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")
"""In the order in which pytest looks at them."""


@dataclass(frozen=True, slots=True)
class Pytest:
    """The options of pytest that decide what a test is. The defaults are pytest's."""

    folder: str = ""
    files: tuple[str, ...] = ("test_*.py", "*_test.py")
    classes: tuple[str, ...] = ("Test",)
    functions: tuple[str, ...] = ("test",)
    testpaths: tuple[str, ...] = ()
    pythonpath: tuple[str, ...] = ()

    def is_file(self, place: str) -> bool:
        name = posixpath.basename(place)
        return any(fnmatchcase(name if "/" not in each else place, each) for each in self.files)

    def is_class(self, name: str) -> bool:
        return any(_matches(name, each) for each in self.classes)

    def is_function(self, name: str) -> bool:
        return any(_matches(name, each) for each in self.functions)

    def in_testpaths(self, place: str) -> bool:
        """Say whether pytest without arguments would look there."""
        below = place[len(self.folder) + 1 if self.folder else 0 :]
        return not self.testpaths or any(
            below == each or below.startswith(f"{each.rstrip('/')}/") or fnmatchcase(below, f"{each}/*")
            for each in self.testpaths
        )


def _matches(name: str, pattern: str) -> bool:
    """Match as pytest does: by a prefix, or by a pattern if it has a pattern's characters."""
    return fnmatchcase(name, pattern) if re.search(r"[*?\[]", pattern) else name.startswith(pattern)


def configuration(index: WordIndex, folder: str) -> Pytest:
    """Return the configuration for the tests of a folder: the first file in it or above it that pytest would take."""
    while True:
        for name in _FILES:
            place = posixpath.join(folder, name)
            if (options := _options(index, place, name)) is not None:
                return _pytest(folder, options)
        if not folder:
            return Pytest()
        folder = posixpath.dirname(folder)


def _options(index: WordIndex, place: str, name: str) -> dict[str, Any] | None:
    """Return the options in one file. Return None if it does not configure pytest."""
    try:
        text = regular_files.read(index.path(place), DRIVER_FILE).decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return None
    if name == "pyproject.toml":
        return _table(text)
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    section = "tool:pytest" if name == "setup.cfg" else "pytest"
    if parser.has_section(section):
        return dict(parser.items(section))
    return {} if name in ("pytest.ini", ".pytest.ini") else None


def _table(text: str) -> dict[str, Any] | None:
    if "pytest" not in text:
        return None
    import tomllib

    try:
        tool: Any = tomllib.loads(text).get("tool", {})
        table: Any = tool.get("pytest")
        options: Any = table.get("ini_options", table)
    except (tomllib.TOMLDecodeError, RecursionError, AttributeError):
        return None
    return cast("dict[str, Any]", options) if isinstance(options, dict) else None


def _pytest(folder: str, options: dict[str, Any]) -> Pytest:
    default = Pytest()

    def words(name: str, otherwise: Sequence[str]) -> tuple[str, ...]:
        given = options.get(name)
        if isinstance(given, str):
            return tuple(given.split())
        return tuple(map(str, cast("list[Any]", given))) if isinstance(given, list) else tuple(otherwise)

    python_path = [posixpath.normpath(posixpath.join(folder, each)) for each in words("pythonpath", ())]
    return Pytest(
        folder,
        words("python_files", default.files),
        words("python_classes", default.classes),
        words("python_functions", default.functions),
        words("testpaths", ()),
        tuple("" if each == "." else each for each in python_path),
    )
