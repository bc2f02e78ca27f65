"""Which files of a workspace ignore files exclude.

`.gitignore` and `.orbitignore` mean what git means by them, in every folder from the repository's top
down; in one folder `.orbitignore` has the last word, so `!weights.bin` there brings back what git does
not keep.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_remote.common import limits, regular_files

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

BOTH = (".orbitignore", ".gitignore")
"""In the order in which they are asked."""


class Ignores:
    """What the ignore files of a workspace exclude."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._specs: dict[str, list[GitIgnoreSpec]] = {}
        self._folders: dict[tuple[str, tuple[str, ...]], bool] = {}
        self._above = list(_repository_above(root))

    def excludes(self, place: str, *, folder: bool = False, names: tuple[str, ...] = BOTH) -> bool:
        """Whether the file (or folder) is excluded, itself or with a folder that holds it."""
        holder = posixpath.dirname(place)
        if holder:
            if (holder, names) not in self._folders:
                self._folders[holder, names] = self.excludes(holder, folder=True, names=names)
            if self._folders[holder, names]:
                return True
        return self._is_named(place, names, folder=folder)

    def _is_named(self, place: str, names: tuple[str, ...], *, folder: bool) -> bool:
        parts = place.split("/")
        ending = "/" if folder else ""
        for i in range(len(parts) - 1, -1, -1):
            holder = posixpath.join(self._root, *parts[:i])
            if (ignored := self._decided_by(holder, "/".join(parts[i:]) + ending, names)) is not None:
                return ignored
        for holder in self._above:
            rest = os.path.relpath(self._root, holder).replace(os.sep, "/")
            if (ignored := self._decided_by(holder, f"{rest}/{place}{ending}", names)) is not None:
                return ignored
        return False

    def _decided_by(self, holder: str, path: str, names: tuple[str, ...]) -> bool | None:
        for name in names:
            key = f"{holder}/{name}"
            if key not in self._specs:
                self._specs[key] = _specs(key)
            for spec in self._specs[key]:
                if (ignored := spec.check_file(path).include) is not None:
                    return ignored
        return None


def _specs(path: str) -> list[GitIgnoreSpec]:
    try:
        text = regular_files.head(path, limits.IGNORES).decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return []
    spec = _compiled(text)
    return [spec] if spec else []


@lru_cache(maxsize=256)
def _compiled(text: str) -> GitIgnoreSpec | None:
    from pathspec import GitIgnoreSpec

    lines: list[str] = []
    for line in text.splitlines():
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:  # git passes over a pattern that is none
            continue
        lines.append(line)
    return GitIgnoreSpec.from_lines(lines) if lines else None


def _repository_above(root: str) -> Iterator[str]:
    """The folders above `root`, nearest first, up to the top of the repository that holds it."""
    if Path(root, ".git").exists():
        return
    parents = list(Path(root).parents)
    top = next((i for i, parent in enumerate(parents) if (parent / ".git").exists()), None)
    if top is not None:
        yield from map(str, parents[: top + 1])
