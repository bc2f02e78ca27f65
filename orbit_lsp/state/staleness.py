"""Decides what a kernel's numbers depend on besides its own file's text: headers, modules, flags, machine.

The compiler (or Python's own import, for Triton) says which files were read. Their content hashes come with every
result. A result is stale if the kernel's tokens, one of these files or one of these settings has changed, and true
again if the change is undone.

This is known only after a build. Before a build, `closure` finds from the texts which files another machine needs; it
can also use what an earlier build read.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import field

from orbit_remote.common import regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import ContractStart, Job


def job_key(job: Job) -> str:
    """Return everything of a job except its text, its kernel and its own name. A driver has its own arguments and no
    flags: it launches kernels of several files, which may be compiled differently.
    """
    start = job.start
    arguments, flags = ((), ()) if start.through == "driver" else (job.arguments, job.flags)
    grade, allow = (start.grade, start.allow) if isinstance(start, ContractStart) else ("author", ())
    parts = (
        job.language, start.through, job.directory or "", *arguments, "|", job.stdin, "|", *flags, "|",
        job.nvcc or "", job.architecture or "", str(job.device), job.gpu or "",
        *([str(job.gpus)] if job.gpus > 1 else []),
        *([grade] if grade != "author" else []), *allow,
    )  # fmt: skip
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass(slots=True)
class Disk:
    """The files that were saved or changed on disk since the server started."""

    hashes: dict[str, str] = field(default_factory=dict[str, str])
    """Of their contents, by path."""
    changes: int = 0
    """Grows with every such change."""
    _noting: dict[str, int] = field(default_factory=dict[str, int])
    """Files that are being hashed, with `changes` as it was when they changed last."""

    async def note(self, path: str) -> None:
        """Note that a file's content is new. It is hashed off the event loop."""
        self.changes += 1
        change = self._noting[path] = self.changes
        digest = await asyncio.to_thread(regular_files.file_hash, path)
        if self._noting.get(path) == change:  # else it has changed again meanwhile
            del self._noting[path]
            self.hashes[path] = digest or "gone"

    def changed(self, main: str, files: Mapping[str, str]) -> bool:
        """Say whether a file differs from what was read. The file `main` is left out: its tokens are compared
        instead.
        """
        return any(path != main and self.hashes.get(path, known) != known for path, known in files.items())
