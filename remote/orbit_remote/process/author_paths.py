"""Translates names of files between the author's machine and the one that has a copy of them, both ways."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Job

_PROGRAM_OUTPUT = {"stdout", "stderr", "report", "dumps", "brought"}
_NAME = r"(?P<rest>[\\/][^\s:;,\"'<>|()\[\]]*)?"


@dataclass(frozen=True, slots=True)
class Paths:
    """Pairs of (the author's folder, the same folder here), both absolute and without a last slash.

    The author's may be in Windows' spelling; here it is always POSIX.
    """

    pairs: tuple[tuple[str, str], ...]

    def inward(self, text: str) -> str:
        """Return `text`, a path or a flag, with every name under one of the author's folders replaced by the name
        here.
        """
        for author, here in sorted(self.pairs, key=lambda pair: -len(pair[0])):
            windows = _is_windows(author)
            folder = (
                r"[\\/]".join(map(re.escape, re.split(r"[\\/]", author))) if windows else re.escape(author)
            )
            name = re.compile(folder + r"(?![^\\/\s\"';,])" + _NAME, re.IGNORECASE if windows else 0)

            def moved(match: re.Match[str], here: str = here, windows: bool = windows) -> str:
                rest = match["rest"] or ""
                return here + (rest.replace("\\", "/") if windows else rest)

            text, times = name.subn(moved, text)
            if times:
                break
        return text

    def outward(self, text: str) -> str:
        """Return `text` with every name under one of the folders here replaced by the author's name."""
        for author, here in sorted(self.pairs, key=lambda pair: -len(pair[1])):
            name = re.compile(re.escape(here) + r"(?![\w.-])" + _NAME)

            def moved(match: re.Match[str], author: str = author) -> str:
                rest = match["rest"] or ""
                return author + (rest.replace("/", "\\") if _is_windows(author) else rest)

            text = name.sub(moved, text)
        return text

    def job(self, job: Job, tree: str) -> Job:
        """Return the job for this machine. A folder that was not sent becomes `tree`."""
        directory = self.inward(job.directory) if job.directory else None
        return replace(
            job,
            path=self.inward(job.path),
            directory=directory if directory and directory.startswith(tree) else tree,
            flags=tuple(map(self.inward, job.flags)),
            arguments=tuple(map(self.inward, job.arguments)),
            roots=tuple(map(self.inward, job.roots)),
            nvcc=None,
            device=0,
        )

    def event(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return an event for the author: names of files in it are replaced, but not what the program printed."""
        if event.get("kind") == "output":
            return event
        return {
            name: value if name in _PROGRAM_OUTPUT else self._outward(value) for name, value in event.items()
        }

    def _outward(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.outward(value)
        if isinstance(value, Mapping):
            items = cast("Mapping[str, Any]", value).items()
            return {self.outward(name): self._outward(item) for name, item in items}
        if isinstance(value, list):
            return [self._outward(item) for item in cast("list[Any]", value)]
        return value


def _is_windows(folder: str) -> bool:
    return "\\" in folder or re.match(r"[A-Za-z]:", folder) is not None
