"""The files from which a program is built, as its texts name them: what each source includes, of the project's own
files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from orbit_remote.common import limits, regular_files
from orbit_remote.common.configured import build_folders
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import content_hash

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]', re.MULTILINE)
_NEVER = frozenset(("node_modules", "__pycache__", "site-packages"))
_OF_BUILDS = "CMakeFiles"
_INSTALLED = ("/usr/", "/opt/", "/nix/store/")
_MOST_LISTED = 50_000
_MOST_READ = 2_000
SUFFIXES = (".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inl", ".inc")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file. `changed` is when its content or its name last changed, in nanoseconds since 1970: a copy may have an
    old time.
    """

    hash: str
    changed: int


@dataclass(slots=True)
class ProgramSources:
    """Files that were read, each with what it includes of the project. `folders` are the include folders in which
    they were found.
    """

    files: dict[str, SourceFile] = field(default_factory=dict[str, SourceFile])
    includes: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    folders: dict[str, None] = field(default_factory=dict[str, None])

    def closure(self, starts: Iterable[str]) -> dict[str, None]:
        """Return these files and all that they include."""
        seen = dict.fromkeys(start for start in starts if start in self.files)
        waiting = list(seen)
        while waiting:
            for each in self.includes.get(waiting.pop(), ()):
                if each not in seen:
                    seen[each] = None
                    waiting.append(each)
        return seen


def read(root: str, starts: Iterable[str], folders: Sequence[str] = ()) -> ProgramSources:
    """Read these files of the project in `root` and what they include of it. A header is looked for beside the file,
    in the include `folders`, else wherever the project has a file with its name. Takes time.
    """
    found, named = ProgramSources(), _Named(root)
    waiting = list(dict.fromkeys(map(os.path.normpath, starts)))
    while waiting and len(found.files) < _MOST_READ:
        path = waiting.pop(0)
        if path in found.files:
            continue
        try:
            content = regular_files.read(path, limits.SOURCE)
            status = os.stat(path)
        except (OSError, ValueError):
            continue
        found.files[path] = SourceFile(content_hash(content), max(status.st_mtime_ns, _moved(status)))
        included: list[str] = []
        for name in dict.fromkeys(_INCLUDE.findall(content.decode("utf-8", "replace"))):
            for other, folder in _meant(path, name, folders, named):
                included.append(other)
                if folder:
                    found.folders.setdefault(folder)
        found.includes[path] = tuple(included)
        waiting += included
    return found


def unsaved(read: ProgramSources, folder: str, texts: Mapping[str, str]) -> str | None:
    """Return the first of an editor's texts that differs from what was read from the disk. They are by their paths in
    `folder`.
    """
    for place, text in sorted(texts.items()):
        path = os.path.join(folder, *place.split("/"))
        known = read.files.get(path)
        if (
            known
            and known.hash != content_hash(text.encode("utf-8", "replace"))
            and not _same_text(path, text)
        ):
            return place
    return None


def _same_text(path: str, text: str) -> bool:
    """Say whether a file and a text differ at most in the ends of lines and a byte order mark, which editors do not
    send.
    """
    try:
        saved = regular_files.read(path, limits.SOURCE).decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return False
    return saved.replace("\r\n", "\n") == text.removeprefix("\ufeff").replace("\r\n", "\n")


def _moved(status: os.stat_result) -> int:
    """Return when a file was last put in its place. Windows has no such time."""
    return status.st_ctime_ns if os.name == "posix" else 0


def _meant(path: str, name: str, folders: Sequence[str], named: _Named) -> Iterator[tuple[str, str]]:
    """Yield the files that an `#include` of the file at `path` may mean, each with the include folder that it takes,
    "" for none.
    """
    for folder in ("", *folders):
        place = os.path.normpath(os.path.join(folder or os.path.dirname(path), name))
        if os.path.isfile(place) and not place.startswith(_INSTALLED):
            yield place, folder
            return
    tail = os.sep + os.path.normpath(name)
    for place in named.files(os.path.basename(name)):
        if place.endswith(tail):
            yield place, place[: -len(tail)]


class _Named:
    """The project's C++ files by their names, listed on demand."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._listed: dict[str, list[str]] | None = None

    def files(self, name: str) -> list[str]:
        if self._listed is None:
            self._listed = {}
            for count, path in enumerate(listed(self.root)):
                if count >= _MOST_LISTED:
                    break
                self._listed.setdefault(os.path.basename(path), []).append(path)
        return self._listed.get(name, [])


def listed(root: str, suffixes: tuple[str, ...] = SUFFIXES, *, built: bool = False) -> Iterator[str]:
    """Yield the files of a folder with one of these suffixes. Files in folders of builds are left out unless `built`
    ones are wanted.
    """
    for folder, inner, names in os.walk(root):
        if not built and folder != root and build_folders.CACHE in names:
            inner.clear()
            continue
        inner[:] = sorted(
            each
            for each in inner
            if not each.startswith(".") and each not in _NEVER and (built or each != _OF_BUILDS)
        )
        for name in sorted(names):
            if name.lower().endswith(suffixes):
                yield os.path.join(folder, name)
