"""The headers of a workspace by name: which of them an `#include` may mean that no include folder has."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import time
from collections import defaultdict
from dataclasses import field

from orbit_lsp.compilation.build_systems.elsewhere import may_compile
from orbit_remote.common.lazy_dataclass import dataclass

FOLDERS = 30_000
"""Folders that a search visits."""
SECONDS = 2.0
"""How long it may take."""

_MOST_BUILDS = 1_000
"""Of one folder."""
_SUFFIXES = (
    ".h", ".hh", ".hpp", ".hxx", ".h++", ".cuh", ".inl", ".inc", ".ipp", ".tpp", ".tcc", ".def", ".impl",
    ".cu", ".cpp", ".cc", ".cxx", ".c", ".in",
)  # fmt: skip
_SKIPPED = {
    ".git", ".hg", ".svn", "node_modules", "__pycache__", "site-packages", "CMakeFiles", ".tox", ".nox", ".mypy_cache",
    ".ruff_cache", ".pytest_cache", ".cache", ".idea", ".vscode", ".ccache", "dist-packages",
}  # fmt: skip


@dataclass(slots=True)
class Headers:
    """Every file of a workspace that can be included: by its name, the folders that have it, relative to `root`."""

    root: str
    folders: int = 0
    complete: bool = True
    at: float = field(default_factory=time.monotonic)
    builds: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    """Build files and scripts: for each folder, relative to `root`, their names."""
    _by_name: dict[str, list[str]] = field(default_factory=lambda: defaultdict[str, "list[str]"](list))

    def roots(self, name: str) -> list[str]:
        """Return the folders from which `#include <name>` leads to a file. They are relative to the workspace's
        folder, which is `""`.
        """
        folder, _, last = posixpath.normpath(name).rpartition("/")
        if folder.startswith(".."):
            return []
        folders: list[str] = []
        for place in self._by_name.get(last, ()):
            if not folder:
                folders.append(place)
            elif place == folder:
                folders.append("")
            elif place.endswith("/" + folder):
                folders.append(place[: -len(folder) - 1])
        return folders

    def named(self, name: str) -> list[str]:
        """Return the files whose name is the last part of `name`, wherever they lie."""
        last = posixpath.basename(name)
        return [posixpath.join(place, last) for place in self._by_name.get(last, ())]

    def add(self, folder: str, name: str) -> None:
        if name.endswith(_SUFFIXES) or "." not in name:
            self._by_name[name].append(folder)
        if may_compile(name) and len(names := self.builds.setdefault(folder, [])) < _MOST_BUILDS:
            names.append(name)


def search(root: str) -> Headers:
    """Walk the workspace, except for folders that hold no sources. Links to folders are not followed. Blocks."""
    headers = Headers(root)
    end = headers.at + SECONDS
    waiting = [""]
    while waiting:
        if headers.folders >= FOLDERS or time.monotonic() > end:
            headers.complete = False
            break
        folder = waiting.pop()
        headers.folders += 1
        waiting += _look_in(folder, headers)
    return headers


def _look_in(folder: str, headers: Headers) -> list[str]:
    """Add a folder's headers, and return its folders. An entry that cannot be read, or vanishes meanwhile, ends the
    look.
    """
    below: list[str] = []
    with contextlib.suppress(OSError, ValueError), os.scandir(os.path.join(headers.root, folder)) as entries:
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=False):
                if name not in _SKIPPED:
                    below.append(f"{folder}/{name}" if folder else name)
            elif name == "pyvenv.cfg":  # a virtual environment
                return []
            else:
                headers.add(folder.replace(os.sep, "/"), name)
    return below


def distance(start: str, other: str) -> int:
    """Return how many steps lead from a folder to another, both relative to the workspace."""
    left, right = [
        [part for part in re.split(r"[\\/]", folder) if part not in ("", ".")] for folder in (start, other)
    ]
    common = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        common += 1
    return len(left) + len(right) - 2 * common
