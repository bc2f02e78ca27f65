"""Finds packages that are installed for editing, or whose folders have other names, from build files and what
installers left.
"""

from __future__ import annotations

import ast
import glob
import os
import re
from typing import Any, NamedTuple

from orbit_lsp.closure.tree import below
from orbit_lsp.drivers.index import WordIndex
from orbit_remote.common import regular_files
from orbit_remote.common.limits import DRIVER_FILE

_MAPPING = re.compile(r"^MAPPING(?::[^=\n]+)?\s*=\s*(\{.*?\})\s*$", re.MULTILINE | re.DOTALL)
_PACKAGE_DIR = re.compile(r"package_dir\s*=\s*(\{[^{}]*\})")
_PLACES = ("lib/python3*/site-packages", "Lib/site-packages")


class EditablePackages(NamedTuple):
    """Packages by name with the folders that hold them, and the `folders` in which Python looks."""

    packages: dict[str, str]
    folders: tuple[str, ...]


def installed(index: WordIndex) -> EditablePackages:
    """Return the packages of the environments in the project's folder, of its `pyproject.toml` and of its `setup.py`,
    from their texts.
    """
    packages: dict[str, str] = {}
    folders: dict[str, None] = {}

    def note(name: str, path: str) -> None:
        place = below(os.path.normpath(os.path.join(index.root, path)), index.root)
        if place is None:
            return
        if name:
            packages[name] = place
        else:
            folders[place] = None

    for name, path in (
        *_declared(_text(index.path("pyproject.toml"))),
        *_written(_text(index.path("setup.py"))),
    ):
        note(name, path)
    for environment in (".venv", "venv", "env"):
        for pattern in _PLACES:
            site = os.path.join(glob.escape(os.path.join(index.root, environment)), pattern)
            for path in sorted(glob.glob(os.path.join(site, "__editable__*.py"))):
                for name, folder in _mapping(_text(path)).items():
                    note(name, folder)
            for path in sorted(glob.glob(os.path.join(site, "*.pth"))):
                for line in _text(path).splitlines():
                    if line.strip() and not line.startswith(("import ", "#")):
                        note("", line.strip())
    return EditablePackages(packages, tuple(folders))


def _text(path: str) -> str:
    try:
        return regular_files.read(path, DRIVER_FILE).decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return ""


def _mapping(text: str) -> dict[str, str]:
    """Return the dictionary of setuptools' finder: package -> folder, or the file of a single module."""
    match = _MAPPING.search(text)
    return {k: v.removesuffix(".py") for k, v in _literal(match[1]).items()} if match else {}


def _literal(text: str) -> dict[str, str]:
    try:
        value: Any = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return {}
    return {str(k): str(v) for k, v in value.items()} if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]


def _declared(text: str) -> list[tuple[str, str]]:
    """Return setuptools' `package-dir`, and the folders in which it looks for packages."""
    if not text:
        return []
    import tomllib

    try:
        tool: Any = tomllib.loads(text).get("tool", {})
        setuptools: dict[str, Any] = tool.get("setuptools", {})
        renamed: dict[str, Any] = setuptools.get("package-dir", {})
        found: Any = setuptools.get("packages", {})
        where: list[Any] = found["find"]["where"] if "find" in found and "where" in found["find"] else []
        return [*((str(k), str(v)) for k, v in renamed.items()), *(("", str(each)) for each in where)]
    except (tomllib.TOMLDecodeError, RecursionError, AttributeError, TypeError):
        return []


def _written(text: str) -> list[tuple[str, str]]:
    match = _PACKAGE_DIR.search(text)
    return list(_literal(match[1]).items()) if match else []
