"""Keeps finished builds on disk, found by the content of everything that went into them.

A build is looked up in two steps. What is known before compiling (text, flags, compilers) leads to the list of files
that the last such build read. The present contents of those files lead to the build. So an edited header is a miss
and an undone edit a hit. One thing is not noticed: a new file that would be found earlier on the include path than
the one that was read.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import content_hash

_MAGIC = b"orbit-build 1\n"
_DIGEST = 32
_ABANDONED_S = 3600.0  # a temporary file this old belongs to a process that died


@dataclass(frozen=True, slots=True)
class CachedBuild:
    """A finished build. `record` is JSON, `artifact` is the executable or cubin."""

    record: dict[str, Any]
    artifact: bytes
    files: dict[str, str]


class Cache:
    """A folder of entries, at most `limit` bytes. The ones used longest ago are removed first.

    Several processes may share it: an entry is written under another name and renamed, and an entry that does not
    match its own checksum counts as absent.
    """

    def __init__(self, folder: Path, limit: int = 2 << 30) -> None:
        self._folder = folder
        self.limit = limit

    def load(self, known: str) -> CachedBuild | None:
        """Return the build for everything known before compiling, if no file that it read has changed."""
        paths = self._read(self._paths_file(known))
        if paths is None:
            return None
        try:
            listed = [str(path) for path in codec.read_json(paths[1])["paths"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        files = {path: regular_files.file_hash(path) for path in listed}
        content = self._read(self._folder / _name(known, files.items()))
        if content is None:
            return None
        try:
            return CachedBuild(
                dict(codec.read_json(content[1])), content[2], {p: h for p, h in files.items() if h}
            )
        except (ValueError, TypeError, RecursionError):
            return None

    def store(self, known: str, entry: CachedBuild) -> None:
        """Keep a build. Raises OSError where the folder cannot be written; nothing half-written stays."""
        self._folder.mkdir(parents=True, exist_ok=True)
        record = json.dumps(entry.record, ensure_ascii=False).encode("utf-8", "surrogatepass")
        if len(record) + len(entry.artifact) > self.limit:
            return
        self._write(self._folder / _name(known, entry.files.items()), record, entry.artifact)
        self._write(self._paths_file(known), json.dumps({"paths": sorted(entry.files)}).encode(), b"")
        self._evict()

    def _paths_file(self, known: str) -> Path:
        return self._folder / f"{known}.paths"

    def _read(self, path: Path) -> tuple[Path, bytes, bytes] | None:
        """Return (path, record, artifact) of a complete and unharmed file."""
        try:
            content = regular_files.read(path, limits.BUILD)
        except OSError:
            return None
        head = len(_MAGIC)
        body = content[head + _DIGEST :]
        if (
            not content.startswith(_MAGIC)
            or blake2b(body, digest_size=_DIGEST).digest() != content[head : head + _DIGEST]
        ):
            return None
        record, _, artifact = body.partition(b"\n")
        with contextlib.suppress(OSError):
            os.utime(path)  # the time of last use, for eviction
        return path, record, artifact

    def _write(self, path: Path, record: bytes, artifact: bytes) -> None:
        body = record + b"\n" + artifact
        handle, temporary = tempfile.mkstemp(dir=self._folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + blake2b(body, digest_size=_DIGEST).digest() + body)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _evict(self) -> None:
        kept: list[tuple[float, int, Path]] = []
        for item in os.scandir(self._folder):
            with contextlib.suppress(OSError):  # another process may have removed it
                status = item.stat()
                if item.name.endswith(".tmp") and time.time() - status.st_mtime > _ABANDONED_S:
                    Path(item.path).unlink()
                else:
                    kept.append((status.st_mtime, status.st_size, Path(item.path)))
        total = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if total <= self.limit:
                break
            path.unlink(missing_ok=True)
            total -= size


def _name(known: str, files: Iterable[tuple[str, str | None]]) -> str:
    return content_hash(json.dumps([known, sorted((p, h or "") for p, h in files)]).encode()) + ".build"
