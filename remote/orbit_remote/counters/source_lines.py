"""Sums up by the author's lines what was sampled or counted at instructions.

It does so for reports of Nsight Compute and for CUPTI's samples. An instruction is charged to the innermost of its
lines that is the author's.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from orbit_remote.common import limits, python_errors, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.measurements import Line
from orbit_remote.toolchain.dwarf_lines import Frame

_LIBRARY = re.compile(
    r"[/\\](?:site-packages|dist-packages|cccl|cuda(?:-[\d.]+)?[/\\](?:targets|include))[/\\]"
    r"|^/usr/(?:include|lib)|^[A-Z]:[/\\]Program Files|^<"
)
"""Paths of files that belong to a toolkit, a package or the system, on any machine."""
_GENERATED = re.compile(r"\s*# src\[(.+):(\d{1,9})(?:-\d{1,9})?\]: ")
"""Helion's comment above what it made of a line, or of the first of several, of the author's file."""


class Authorship:
    """Decides which lines are the author's."""

    def __init__(self, path: str, files: Sequence[str] = (), *, users: bool = False) -> None:
        """Make an authorship. `path` is the author's file, `files` are further files of theirs. `users` says that
        files outside of Python's own folders are the author's too. Without a `path` every file outside of a toolkit's
        and a package's folders is the author's.
        """
        self._path = path
        self._users = users
        self._own = {_normal(file): file for file in (*files, path)}
        self._authors: dict[str, str | None] = {}
        self._origins: dict[str, dict[int, int]] = {}

    def origin(self, file: str, line: int) -> Frame:
        """Return the line of the author's file from which a line of a generated file was made. Any other line stays."""
        if file not in self._origins:
            self._origins[file] = self._lines_of_origin(file)
        at = self._origins[file].get(line)
        return (self._path, at) if at else (file, line)

    def charged(self, frames: Sequence[Frame]) -> tuple[Frame, Frame] | None:
        """Return the innermost line that belongs to the author, and the innermost of all. Return None if no line is
        the author's.
        """
        for file, line in frames:
            if own := self._author(file):
                return (own, line), frames[0] if file != frames[0][0] else (own, frames[0][1])
        return None

    def _lines_of_origin(self, file: str) -> dict[int, int]:
        path = self._path
        if not path or not file.endswith(".py") or _normal(file) in self._own or _installed(file):
            return {}
        try:
            lines = regular_files.text(file, limits.SOURCE).split("\n")
        except (OSError, ValueError):
            return {}
        origins: dict[int, int] = {}
        at, within = 0, False  # a comment of several lines has the first of the author's first
        for number, line in enumerate(lines, 1):
            match = _GENERATED.match(line)
            if match and not within:
                at = int(match[2]) if match[1] == Path(path).name else 0
            within = match is not None
            if at:
                origins[number] = at
        return origins

    def _author(self, file: str) -> str | None:
        """Return a file's name as the author knows it. Return None for a library's file."""
        if file not in self._authors:
            own = self._own.get(_normal(file))
            if not self._path and file and not _LIBRARY.search(file):
                own = file
            if own is None and self._users and not _installed(file):
                own = file if python_errors.is_users(file, self._path) else None
            self._authors[file] = own
        return self._authors[file]


@dataclass(slots=True)
class _Counts:
    """The sums for one line."""

    stalls: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    inside: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    counted: dict[str, int] = field(default_factory=lambda: defaultdict(int))


class LineCounts:
    """Sums by line. An instruction that belongs to no line of the author's is left out. `frames` are its lines,
    innermost first.
    """

    def __init__(self, authorship: Authorship) -> None:
        self._authorship = authorship
        self._by_line: dict[Frame, _Counts] = defaultdict(_Counts)

    def stalled(self, frames: Sequence[Frame], reason: str, samples: int) -> None:
        if charged := self._authorship.charged(frames):
            place, inner = charged
            self._by_line[place].stalls[reason] += samples
            if inner != place:
                self._by_line[place].inside[f"{Path(inner[0]).name}:{inner[1]}"] += samples

    def counted(self, frames: Sequence[Frame], name: str, count: int) -> None:
        """Add a count. `name` is a field of `Line`."""
        if charged := self._authorship.charged(frames):
            self._by_line[charged[0]].counted[name] += count

    def lines(self) -> tuple[Line, ...]:
        return tuple(_line(place, self._by_line[place]) for place in sorted(self._by_line))


def _line(place: Frame, counts: _Counts) -> Line:
    return Line(
        file=place[0],
        line=place[1],
        samples=sum(counts.stalls.values()),
        stalls=dict(sorted(counts.stalls.items(), key=lambda stall: -stall[1])),
        inside=dict(sorted(counts.inside.items(), key=lambda stall: -stall[1])),
        **counts.counted,
    )


def _installed(file: str) -> bool:
    """Say whether a Python, this or another, has installed the file: a report may be read elsewhere."""
    return not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)


def _normal(file: str) -> str:
    return os.path.normpath(file) if file else ""
