"""Says which files of a workspace are excluded by ignore files.

`.gitignore` and `.orbitignore` have git's meaning, in every folder from the repository's top down. In one folder
`.orbitignore` decides last, so `!weights.bin` there includes again what git does not keep.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from orbit_remote.common import limits, regular_files

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

_FOLDER_MARK = "ps_d"
"""The group of pathspec's patterns that matches the `/` behind a folder."""
BOTH = (".orbitignore", ".gitignore")
"""In the order in which they are asked."""


class Ignores:
    """What the ignore files of a workspace exclude."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._specs: dict[str, list[GitIgnoreSpec]] = {}
        self._folders: dict[tuple[str, tuple[str, ...]], bool] = {}
        self._above = list(_repository_above(root))
        self._deciding: dict[tuple[str, tuple[str, ...]], list[tuple[str, int, GitIgnoreSpec]]] = {}

    def excludes(self, place: str, *, folder: bool = False, names: tuple[str, ...] = BOTH) -> bool:
        """Say whether a file or folder is excluded, by itself or with a folder that holds it."""
        holder = place.rpartition("/")[0]
        if holder:
            if (holder, names) not in self._folders:
                self._folders[holder, names] = self.excludes(holder, folder=True, names=names)
            if self._folders[holder, names]:
                return True
        return self._is_named(place, holder, names, folder=folder)

    def _is_named(self, place: str, holder: str, names: tuple[str, ...], *, folder: bool) -> bool:
        path = f"{place}/" if folder else place
        for prefix, cut, spec in self._specs_for(holder, names):
            here = f"{prefix}{path[cut:]}"
            ignored = _of_folder(spec, here) if folder else spec.check_file(here).include
            if ignored is not None:
                return ignored
        return False

    def _specs_for(self, holder: str, names: tuple[str, ...]) -> list[tuple[str, int, GitIgnoreSpec]]:
        """Return what decides about the entries of a folder, in the order in which it is asked. Each has how a place
        is written in it: what comes before the place, and how many characters of the place are left out.
        """
        key = (holder, names)
        if key not in self._deciding:
            parts = holder.split("/") if holder else []
            folders = ["/".join(parts[:i]) for i in range(len(parts), -1, -1)]
            deciding = [
                ("", len(folder) + 1 if folder else 0, spec)
                for folder in folders
                for spec in self._specs_in(posixpath.join(self._root, folder).rstrip("/"), names)
            ]
            for above in self._above:
                rest = os.path.relpath(self._root, above).replace(os.sep, "/")
                deciding += [(f"{rest}/", 0, spec) for spec in self._specs_in(above, names)]
            self._deciding[key] = deciding
        return self._deciding[key]

    def _specs_in(self, folder: str, names: tuple[str, ...]) -> Iterator[GitIgnoreSpec]:
        for name in names:
            key = f"{folder}/{name}"
            if key not in self._specs:
                self._specs[key] = _specs(key)
            yield from self._specs[key]


def _of_folder(spec: GitIgnoreSpec, path: str) -> bool | None:
    """Return what the last pattern that names a folder says, or None without one.

    pathspec applies such patterns to the files in the folder. There `!*/` includes nothing again, and a folder whose
    ignore file has `*`, `!*.*` and `!*/` would be excluded as a whole.
    """
    for pattern in reversed(spec.patterns):
        regex: re.Pattern[str] | None = getattr(pattern, "regex", None)
        for match in regex.finditer(path) if regex else ():
            # a folder's pattern also matches the folder's content; the folder's own entry is enough
            if match.groupdict().get(_FOLDER_MARK) is None or match.end(_FOLDER_MARK) == len(path):
                return pattern.include
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
        except ValueError:  # git skips an invalid pattern
            continue
        lines.append(line)
    spec = GitIgnoreSpec.from_lines(lines) if lines else None
    for pattern in spec.patterns if spec else ():
        if (regex := getattr(pattern, "regex", None)) and regex.pattern.count("+)?") + regex.pattern.count(
            "*"
        ) > 2:
            pattern.regex = re.compile(linear(regex.pattern))
    return spec


_STAR, _ABOVE, _BETWEEN = "[^/]*", "^(?:.+/)?", "(?:/.+)?"
"""What pathspec makes of `*`, and of `**` at the start and within."""


def linear(regex: str) -> str:
    """Return a pattern of pathspec with the same matches that takes linear time. It keeps the first match of each `*`
    or `**` except the last. Trying all matches has no bound: `*a*a*a*a*a*b` takes years for a name of 200 letters.
    """
    parts = ["/".join(map(_component, re.split(r"(?<!\^)/", part))) for part in regex.split(_BETWEEN)]
    if len(parts) == 1:
        return parts[0]
    first, *between, last = parts
    if first.startswith(_ABOVE):
        first = f"^(?>(?:.+?/)??{first.removeprefix(_ABOVE)}(?=/))"
    return "".join([first, *(f"(?>(?:/.+?)??{part}(?=/))" for part in between), _BETWEEN, last])


def _component(regex: str) -> str:
    first, *between = regex.split(_STAR)
    if not between:
        return first
    return "".join([first, *(f"(?>{_STAR}?{part})" for part in between[:-1]), _STAR, between[-1]])


def _repository_above(root: str) -> Iterator[str]:
    """Yield the folders above `root`, nearest first, up to the top of the repository that holds it."""
    if Path(root, ".git").exists():
        return
    parents = list(Path(root).parents)
    top = next((i for i, parent in enumerate(parents) if (parent / ".git").exists()), None)
    if top is not None:
        yield from map(str, parents[: top + 1])
