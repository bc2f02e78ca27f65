"""The tree of files that is sent: each file with its path, and why a file is left out.

A place is a path relative to the tree with `/` between its parts. Files of the workspace keep their own paths. Files
of an include folder outside it stand under `.orbit-outside/<n>-<name>`. Each file is looked for *in the tree* where a
compiler or Python would look, so that it is found there too.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from orbit_lsp.closure.ignores import Ignores
from orbit_lsp.state import units
from orbit_remote.common import limits, regular_files
from orbit_remote.common.content_store import MOST_FILES, Hashes, unusable
from orbit_remote.common.messages import content_hash

T = TypeVar("T")

OUTSIDE = ".orbit-outside"
_INSTALLED = {".local", ".conda", ".pixi", ".cache", ".nix-profile"}
_MOST_REMEMBERED = 20_000

_hashes = Hashes()
_parsed: dict[tuple[Callable[[bytes], object], str], Any] = {}


class Spot(NamedTuple):
    """A file on the author's machine (`path`) and in the tree (`place`)."""

    place: str
    path: str


class SentTree:
    """Collects files. Nothing raises: a file that is not sent becomes a remark or, if a run would be of no use, a
    refusal.
    """

    def __init__(self, root: str, limit: int, main: str, content: bytes, *, mounted: bool = False) -> None:
        """Make a tree. `mounted`: all of `root` is wanted, not only what the main file needs."""
        self.root = root
        self._mounted = mounted
        self.remedy = "Mount a smaller folder" if mounted else "Narrow the setting `data`"
        self.main = Spot(below(main, root) or Path(main).name, main)
        self.files: dict[str, str] = {}
        self.contents: dict[str, bytes | Path] = {}
        self.mapped: dict[str, str] = {}
        self.roots: dict[str, None] = {}
        """Places that imports were found in and Python does not look in by itself."""
        self.remarks: dict[str, None] = {}
        self.refusals: dict[str, None] = {}
        self.ignores = Ignores(root)
        self._limit = limit
        self._sizes: dict[str, int] = {}
        self._total = 0
        self._content = content
        self._real = [os.path.realpath(root)]
        self._held_folders: dict[str, bool] = {}
        self._are: dict[str, bool] = {}
        self._spelling: dict[str, str] = {}
        self._passed: dict[str, None] = {}

    # -- places -------------------------------------------------------------------------------------

    def spot(self, path: str) -> Spot | None:
        """Return where an absolute path is in the tree. Return None if it is neither in the root nor in a mapped
        folder.
        """
        path = os.path.normpath(path)
        for folder, place in ((self.root, ""), *self.mapped.items()):
            if (rest := below(path, folder)) is not None:
                return Spot(f"{place}/{rest}" if place and rest else place or rest, path)
        return None

    def map(self, folder: str) -> Spot | None:
        """Return the place of an include folder, which may lie outside the root. Return None for a folder that holds
        more than headers.
        """
        folder = os.path.normpath(folder)
        if (rest := below(folder, self.root)) is not None:
            return Spot(rest, folder)
        if is_private(folder):
            self.remark(
                f"Nothing is sent from the include folder {shown(folder)}: a home folder and what lies above it, "
                "and the hidden folders in it, hold more than headers."
            )
            return None
        if folder not in self.mapped:
            name = re.sub(r"[^\w.+-]", "_", Path(folder).name, flags=re.ASCII)[:50] or "root"
            self.mapped[folder] = f"{OUTSIDE}/{len(self.mapped)}-{name}"
            self._real.append(os.path.realpath(folder))
            self._held_folders.clear()
        return Spot(self.mapped[folder], folder)

    def beside(self, folder: Spot, name: str) -> Spot | None:
        """Return the file `name` in a folder of the tree, if it exists. `..` may not lead out of the folder's part."""
        path = os.path.join(folder.path, name)
        if not self.is_file(path):
            return None
        place = posixpath.normpath(posixpath.join(folder.place, name))
        part = "/".join(folder.place.split("/")[:2]) + "/" if folder.place.startswith(OUTSIDE + "/") else ""
        if not place.startswith(part) or place.startswith("../") or os.path.isabs(name):
            self.refuse_outside(path)
            return None
        if part and any(each.startswith(".") for each in place[len(part) :].split("/")):
            self.refuse(
                f"{shown(path)} is needed, but hidden files from outside of the workspace are not sent."
            )
            return None
        self._pass(folder.place, name)
        return Spot(place, path)

    def _pass(self, folder: str, name: str) -> None:
        """Note a folder that a name passes through. `a/../b.h` is found only if there is a folder `a`, even if
        nothing in it is needed.
        """
        parts = name.split("/")
        for i, part in enumerate(parts[1:], 1):
            if part == ".." and parts[i - 1] not in ("..", "."):
                self._passed[posixpath.normpath(posixpath.join(folder, *parts[:i]))] = None

    def keep_folders(self) -> None:
        """Put an empty file into each folder that a path leads through and that would otherwise be missing."""
        held = {folder for place in self.files for folder in _folders(place)}
        for folder in self._passed.keys() - held:
            digest = content_hash(b"")
            self.files[f"{folder}/.orbit-folder"] = digest
            self.contents[digest] = b""

    def folder_of(self, spot: Spot) -> Spot:
        return Spot(posixpath.dirname(spot.place), str(Path(spot.path).parent))

    def is_file(self, path: str) -> bool:
        known = self._are.get(path)
        if known is None:
            try:
                known = path == self.main.path or stat.S_ISREG(os.stat(path).st_mode)
            except (OSError, ValueError):
                known = False
            self._are[path] = known
        return known

    # -- files --------------------------------------------------------------------------------------

    def take(
        self,
        spot: Spot,
        parse: Callable[[bytes], T] | None = None,
        *,
        named: bool = True,
        entry: os.DirEntry[str] | None = None,
    ) -> T | None:
        """Include a file. Return what `parse` makes of its content; None if it is not sent or is here already.
        `entry` is the file in a listing of its folder that was just made; then its status need not be asked for
        again.

        A link that leads outside is refused if the code names the file, and left out otherwise.
        """
        place, path = spot
        if place in self.files:
            return None
        if place.startswith(OUTSIDE) and below(path, os.path.join(self.root, OUTSIDE)) is not None:
            self.remark(f"{shown(place)} is not sent: other files are sent under that name.")
            return None
        if why := unusable(place):
            self.remark(f"{shown(place)} {why} and is not sent.")
            return None
        if path == self.main.path:
            digest, content, size = content_hash(self._content), self._content, len(self._content)
            self.contents[digest] = content
        else:
            if (
                named
                and not place.startswith(OUTSIDE)
                and self.ignores.excludes(place, names=(".orbitignore",))
            ):
                self.remark(f"{shown(place)} is needed, but .orbitignore excludes it, and it is not sent.")
                return None
            status = self._status_of(spot, entry, named=named)
            if status is None or not self._fits(place, status.st_size):
                return None
            try:
                digest, size, content = _hashes.read(path, most=self._limit, status=status)
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                self.remark(f"{shown(place)} cannot be read and is not sent: {why}.")
                return None
            self.contents.setdefault(digest, _path(path))
        self._fits(place, size)
        self.files[place] = digest
        other = self._spelling.setdefault(place.lower(), place)
        if other != place:
            self.remark(
                f"{shown(other)} and {shown(place)} differ in case only, which not every system can keep apart."
            )
        return self._parse(parse, digest, content, spot, size) if parse else None

    def _parse(
        self, parse: Callable[[bytes], T], digest: str, content: bytes | None, spot: Spot, size: int
    ) -> T | None:
        if (parse, digest) in _parsed:
            return _parsed[parse, digest]
        if size > limits.PARSED.most:
            self.remark(
                f"{shown(spot.place)} is {units.size(size)} long; what it includes or imports is not looked up."
            )
            return None
        if content is None:
            try:
                content = regular_files.read(spot.path, limits.PARSED)
            except OSError:
                return None
        asks = parse(content)
        if len(_parsed) >= _MOST_REMEMBERED:
            _parsed.clear()
        _parsed[parse, digest] = asks
        return asks

    def _status_of(self, spot: Spot, entry: os.DirEntry[str] | None, *, named: bool) -> os.stat_result | None:
        """Return the status of a regular file that really lies in the root or a mapped folder."""
        path = spot.path
        try:
            # on Windows a listing has no inode
            listed = entry if os.name != "nt" else None
            status = listed.stat(follow_symlinks=False) if listed else os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                inside = self.holds(path)
                status = os.stat(path)
            else:
                inside = self._holds_folder(os.path.dirname(path))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            self.remark(f"{shown(spot.place)} cannot be read and is not sent: {why}.")
            return None
        if not inside:
            (self.refuse if named else self.remark)(outside(spot.place, self.root))
            return None
        return status if stat.S_ISREG(status.st_mode) else None

    def holds(self, path: str) -> bool:
        """Say whether the target of a path, with links resolved, is in the root or a mapped folder."""
        real = os.path.realpath(path)
        return any(below(real, inside) is not None for inside in self._real)

    def _holds_folder(self, folder: str) -> bool:
        if folder not in self._held_folders:
            self._held_folders[folder] = self.holds(folder)
        return self._held_folders[folder]

    # -- bounds and words ---------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        return self._total

    @property
    def full(self) -> bool:
        """Say whether a limit is exceeded, so that nothing more needs to be looked for."""
        return self._total > self._limit or self.too_many

    @property
    def too_many(self) -> bool:
        return len(self._sizes) > MOST_FILES

    def _fits(self, place: str, size: int) -> bool:
        self._total += size - self._sizes.get(place, 0)
        self._sizes[place] = size
        return not self.full

    def too_large(self) -> str | None:
        if not self.full:
            return None
        name = Path(self.main.path).name
        what = f"{shown(self.root)} holds" if self._mounted else f"{name} needs"
        if self.too_many:
            what += f" more than {units.count(MOST_FILES)} files ({units.size(self._total)} so far)"
        elif self._mounted:
            what += (
                f" {units.size(self._total)} in {units.count(len(self._sizes))} files and perhaps more, and the setting "
                f"`modal.files_mib` allows {units.size(self._limit)}"
            )
        else:
            what = (
                f"the files that {name} needs come to {units.size(self._total)} in "
                f"{units.count(len(self._sizes))} files, more than the limit of {units.size(self._limit)}"
            )
        largest = sorted(self._sizes.items(), key=lambda item: (-item[1], item[0]))[:3]
        names = ", ".join(f"{shown(place)} ({units.size(size)})" for place, size in largest)
        return f"{what}; the largest are {names}. {self.remedy}, or name files in .orbitignore."

    def remark(self, sentence: str) -> None:
        self.remarks[sentence] = None

    def refuse(self, sentence: str) -> None:
        self.refusals[sentence] = None

    def refuse_outside(self, path: str) -> None:
        self.refuse(
            f"{shown(os.path.normpath(path))} is needed and lies outside of the workspace folder {shown(self.root)}: "
            "open a folder that holds both, or name its folder with -I and include it from there."
        )


_path = lru_cache(_MOST_REMEMBERED)(Path)
"""Half of the time of a folder that has not changed was this."""


def _folders(place: str) -> Iterator[str]:
    while place := posixpath.dirname(place):
        yield place


def is_private(folder: str) -> bool:
    """Say whether a folder is the home folder, one that holds it, or a hidden folder in it, except those where
    software is installed.
    """
    home = os.path.expanduser("~")
    if below(home, folder) is not None:
        return True
    first = (below(folder, home) or "").split("/")[0]
    return first.startswith(".") and first not in _INSTALLED


def below(path: str, folder: str) -> str | None:
    """Return the part of `path` below `folder`, with `/`. Return "" for the folder itself, None for a path outside
    it.
    """
    inner, other = os.path.normcase(path), os.path.normcase(folder)
    if inner == other:
        return ""
    other = other.rstrip(os.sep) + os.sep
    return path[len(other) :].replace(os.sep, "/") if inner.startswith(other) else None


def outside(place: str, root: str) -> str:
    return f"{shown(place)} leads out of the workspace folder {shown(root)} and is not sent: put a copy in its place."


def shown(name: str) -> str:
    """Return a path for use in a sentence: on one line, and of bounded length."""
    plain = name if name.isprintable() else ascii(name)[1:-1]
    return plain if len(plain) <= 200 else f"{plain[:80]}…{plain[-80:]}"
