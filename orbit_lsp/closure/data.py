"""Finds the data files that match the patterns of the setting `data`, or all files of a folder, without those that
ignore files exclude.

Patterns are relative to the workspace folder. `*`, `?` and `[…]` match within a part, `**` matches any number of
folders; a folder means everything in it. As in a shell, no wildcard matches a name that begins with a dot: keys and
caches have such names.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from fnmatch import translate

from orbit_lsp.closure.tree import OUTSIDE, SentTree, Spot, outside, shown
from orbit_remote.common import regular_files

_NEVER = {".git", ".hg", ".svn", OUTSIDE}
_MOST_LOOKED_AT = 200_000
_ANY = "**"


def follow(tree: SentTree, patterns: Sequence[str]) -> None:
    """Pack the files that match the patterns for the job."""
    search = _DataSearch(tree)
    for pattern in patterns:
        search.run(pattern)


def mount(tree: SentTree) -> None:
    """Pack the whole folder for the job, but for hidden files, Python's own caches and its virtual environments."""
    search = _DataSearch(tree, mounted=True)
    search.walk([_ANY])
    if search.looked_at > _MOST_LOOKED_AT:
        tree.refuse(
            f"{shown(tree.root)} holds more than {_MOST_LOOKED_AT:,} files, ignored ones included. Mount a smaller folder."
        )


class _DataSearch:
    def __init__(self, tree: SentTree, *, mounted: bool = False) -> None:
        self.tree = tree
        self._mounted = mounted
        self.looked_at = 0
        self.matched = 0
        self.ignored: list[str] = []

    def run(self, pattern: str) -> None:
        plain = pattern.replace("\\", "/") if os.name == "nt" else pattern
        parts = [part for part in plain.split("/") if part not in ("", ".")]
        named = f"The setting `data` names {shown(pattern)!r}"
        if not parts or plain.startswith("/") or ".." in parts or re.match(r"[A-Za-z]:/", plain):
            self.tree.remark(
                f"{named}, which is not a path below the workspace folder, and none of it is sent."
            )
            return
        tree = self.tree
        self.walk(parts)
        if self.looked_at > _MOST_LOOKED_AT:
            tree.refuse(
                f"{named}, for which more than {_MOST_LOOKED_AT:,} files would have to be looked at: begin it with a folder."
            )
        elif self.ignored:
            more = f" and {len(self.ignored) - 1} more" if len(self.ignored) > 1 else ""
            first = shown(min(self.ignored))
            tree.remark(
                f"{first}{more} would match {shown(pattern)!r} of the setting `data` but for .gitignore or "
                f".orbitignore; `!{first}` in .orbitignore sends it."
            )
        elif not self.matched and not tree.full:
            tree.remark(f"{named}, but no file matches it.")

    def walk(self, parts: list[str]) -> None:
        self.matched, self.ignored = 0, []
        waiting: list[tuple[str, list[str]]] = [("", parts)]
        seen: set[tuple[str, int]] = set()
        while waiting and not self._enough():
            folder, rest = waiting.pop()
            if (folder, len(rest)) not in seen:
                seen.add((folder, len(rest)))
                waiting += self._folder(folder, rest)

    def _enough(self) -> bool:
        return self.looked_at > _MOST_LOOKED_AT or self.tree.too_many

    def _folder(self, folder: str, parts: list[str]) -> Iterator[tuple[str, list[str]]]:
        """Take the files in a folder that match the parts of a pattern. Return the folders to go on with."""
        part, rest = (parts[0], parts[1:]) if parts else (_ANY, [])
        anywhere = part == _ANY
        if anywhere and rest:
            yield folder, rest
        matches = re.compile(translate("*" if anywhere else part)).match
        hidden = part.startswith(".")
        path = self._path(folder)
        for name, is_folder, is_link, entry in self._entries(folder, part):
            if not matches(name) or (name.startswith(".") and not hidden):
                continue
            place = f"{folder}/{name}" if folder else name
            wanted = not rest
            if is_folder:
                if self.tree.ignores.excludes(place, folder=True):
                    if not anywhere:
                        self.ignored.append(place + "/")
                elif self._mounted and self._made_by_python(place):
                    continue
                elif self._mounted and is_link:
                    self.tree.remark(
                        f"{shown(place)} is a link to a folder and is not sent: put a copy in its place."
                    )
                elif not is_link:
                    yield place, (parts if anywhere and parts else rest)
                elif not anywhere:  # else it may lead back up
                    if self.tree.holds(self._path(place)):
                        yield place, rest
                    else:
                        self.matched += 1
                        self.tree.remark(outside(place, self.tree.root))
            elif wanted:
                if self.tree.ignores.excludes(place):
                    self.ignored.append(place)
                else:
                    self.matched += 1
                    self.tree.take(Spot(place, os.path.join(path, name)), named=False, entry=entry)

    def _made_by_python(self, place: str) -> bool:
        return posixpath.basename(place) == "__pycache__" or os.path.isfile(
            os.path.join(self._path(place), "pyvenv.cfg")
        )

    def _entries(self, folder: str, part: str) -> list[tuple[str, bool, bool, os.DirEntry[str] | None]]:
        """Return (name, is it a folder, is it a link, as it was listed) for a folder's entries, in order. Without a
        wildcard, return only the one entry that is named.
        """
        path = self._path(folder)
        try:
            if not re.search(r"[*?\[]", part):
                joined = os.path.join(path, part)
                listed = (
                    [(part, os.path.isdir(joined), os.path.islink(joined), None)]
                    if os.path.lexists(joined)
                    else []
                )
            else:
                with os.scandir(path) as entries:
                    listed = [
                        (entry.name, regular_files.is_folder(entry), entry.is_symlink(), entry)
                        for entry in sorted(entries, key=lambda entry: entry.name)
                    ]
        except (OSError, ValueError):
            return []
        self.looked_at += len(listed)
        return [entry for entry in listed if entry[0] not in _NEVER]

    def _path(self, place: str) -> str:
        return os.path.join(self.tree.root, *place.split("/")) if place else self.tree.root
