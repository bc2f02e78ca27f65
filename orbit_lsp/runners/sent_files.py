"""A job's files on their way to another machine: their description, and their contents."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from orbit_lsp.closure import Closure, absolute_flags
from orbit_remote.common import limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job


class SentFileError(Exception):
    """A file cannot be sent. The text is a sentence. `again`: it changed while it was read."""

    def __init__(self, text: str, *, again: bool = False) -> None:
        super().__init__(text)
        self.again = again


def message(job: Job, tree: Closure, run: str) -> dict[str, Any]:
    """Return the job as it is sent, with the names of its files. The host calls it `run`."""
    flags = absolute_flags(job) if job.language == "cuda" else job.flags
    return {
        "job": asdict(replace(job, run=run, flags=flags, roots=tree.roots)),
        "manifest": asdict(tree.manifest),
        "folders": {tree.root: ""} | tree.mapped,
    }


def read(tree: Closure, digests: Iterable[str]) -> dict[str, bytes]:
    """Return contents by hash, compressed. Raises SentFileError if a file was deleted or changed."""
    contents: dict[str, bytes] = {}
    for digest in digests:
        content = tree.contents[digest]
        try:
            data = content if isinstance(content, bytes) else regular_files.read(content, limits.TRAVELLING)
        except OSError as error:
            raise SentFileError(f"{error.filename} cannot be read: {error.strerror}") from None
        if c.content_hash(data) != digest:
            name = content if isinstance(content, Path) else "a file"
            raise SentFileError(f"{name} changed while it was read", again=True)
        contents[digest] = zlib.compress(data, 1)
    return contents
