"""Keeps builds and Triton's cache on the volume when a container ends.

Each container has its own caches, which its worker fills as another user; that user never sees the volume. Before a
job of a file, what its earlier jobs left on the volume is copied into the caches. After the job, new entries are
copied out. Each entry of a cache is a file on the volume, with a checksum, under a name that the cache made from
everything that went into the entry. It is written beside and renamed. So if several containers write one entry, the
last wins with the same content, and a partial entry does not exist.

Modal shows a container the volume as it was when the container began or last reloaded it. It stores writes every few
seconds and at the container's end (modal.com/docs/guide/volumes).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys
import time
import zlib
from collections.abc import Generator
from hashlib import blake2b
from pathlib import Path
from typing import Literal

from orbit_remote.common import codec, content_store, limits, regular_files

Kind = Literal["builds", "triton"]
"""Folders of the caches: an entry is a file of `builds` and a folder of files of `triton`."""

_MAGIC = b"orbit-kept 1\n"
_DIGEST = 32
_NAME = re.compile(r"[A-Za-z0-9_][\w.+-]{0,200}", re.ASCII)
_MOST = {"builds": 16, "triton": 128}
"""Entries kept of one file: 8 builds (each has two), or the kernels of a large file."""
_LIMIT = 1 << 30
_ABANDONED_S = 3600.0  # a temporary file this old belongs to a container that died


class VolumeCache:
    def __init__(self, volume: Path, caches: Path, user: int | None, limit: int = _LIMIT) -> None:
        """Make a cache. `caches` holds the folders of `Kind`. Entries of another owner than `user` (None: any) are
        not the worker's and are not read. `limit` is the bytes of everything on the volume.
        """
        self._volume = volume
        self._caches = caches
        self._user = user
        self._limit = limit
        self._brought: set[tuple[str, Kind]] = set()
        self._known: dict[tuple[Kind, str], bytes] = {}
        """What an entry held when this container last read or wrote it."""
        self._evicted = False

    def bring(self, file: str, kind: Kind, *, again: bool = False) -> None:
        """Copy into the cache what earlier jobs of `file`, a hash of its name, have left. This is done once, or once
        more with `again`.
        """
        if (file, kind) in self._brought and not again:
            return
        self._brought.add((file, kind))
        with _logged("builds could not be fetched"):
            room = limits.VOLUME.most
            newest = sorted(_files(self._volume / kind / file), key=lambda listed: -listed[1].st_mtime)
            with self._cache(kind) as cache:
                for path, status in newest[: _MOST[kind]]:
                    room -= status.st_size
                    if room < 0:
                        break
                    self._bring(cache, kind, path)

    def keep(self, file: str, kind: Kind, since: float) -> None:
        """Copy out of the cache what a job of `file` has made or used after `since`, on the wall clock."""
        with _logged("builds could not be kept"):
            folder = self._volume / kind / file
            with self._cache(kind) as cache:
                for name, status in content_store.entries(cache):
                    whole = _NAME.fullmatch(name) and not name.endswith(".tmp")
                    if whole and status.st_mtime >= since - 1:
                        self._keep(cache, kind, name, folder)
            self._forget_old(kind, folder)

    @contextlib.contextmanager
    def _cache(self, kind: Kind) -> Generator[int]:
        """Give the cache's folder, opened without following a link that a job may have put in its place."""
        folder = os.open(self._caches / kind, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            yield folder
        finally:
            os.close(folder)

    # -- one entry ----------------------------------------------------------------------------------

    def _bring(self, cache: int, kind: Kind, path: Path) -> None:
        name = path.name
        if not _NAME.fullmatch(name) or content_store.exists(cache, name):
            return
        content = regular_files.read(path, limits.VOLUME)
        files = _unpack(content)
        if files is None:
            path.unlink(missing_ok=True)
            return
        temporary = f"{os.getpid()}-{os.urandom(8).hex()}.tmp"
        if kind == "builds":
            self._write(cache, temporary, files.get("", b""))
        else:
            os.mkdir(temporary, 0o755, dir_fd=cache)
            inner = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=cache)
            try:
                for each, data in files.items():
                    self._write(inner, each, data)
                if self._user is not None:
                    os.fchown(inner, self._user, self._user)
            finally:
                os.close(inner)
        os.rename(temporary, name, src_dir_fd=cache, dst_dir_fd=cache)
        self._known[kind, name] = _digest_of(content)

    def _write(self, folder: int, name: str, content: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(name, flags, 0o644, dir_fd=folder), "wb") as file:
            file.write(content)
            if self._user is not None:
                os.fchown(file.fileno(), self._user, self._user)

    def _keep(self, cache: int, kind: Kind, name: str, folder: Path) -> None:
        files = self._read(cache, name)
        if files is None:
            return
        content = _pack(files)
        digest = _digest_of(content)
        if self._known.get((kind, name)) == digest:
            return
        self._known[kind, name] = digest
        regular_files.replace(folder / name, content)

    def _read(self, cache: int, name: str) -> dict[str, bytes] | None:
        """Return the entry's files; the name is "" for an entry that is a single file. Return None for an entry that
        is not the worker's or too large.
        """
        status = os.stat(name, dir_fd=cache, follow_symlinks=False)
        if stat.S_ISREG(status.st_mode):
            content = self._content(cache, name)
            return None if content is None else {"": content}
        if not stat.S_ISDIR(status.st_mode):
            return None
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=cache)
        try:
            contents = {
                each: self._content(inner, each)
                for each, of in content_store.entries(inner)
                if stat.S_ISREG(of.st_mode) and _NAME.fullmatch(each) and of.st_size
            }
        finally:
            os.close(inner)
        files = {each: content for each, content in contents.items() if content is not None}
        whole = len(files) == len(contents) and sum(map(len, files.values())) <= limits.VOLUME.most
        return files if files and whole else None

    def _content(self, folder: int, name: str) -> bytes | None:
        with regular_files.opened(name, within=folder) as file:
            status = os.fstat(file.fileno())
            theirs = self._user is None or status.st_uid == self._user
            if not theirs or status.st_size > limits.VOLUME.most:
                return None
            return regular_files.rest(file, limits.VOLUME, name)

    # -- bounds -------------------------------------------------------------------------------------

    def _forget_old(self, kind: Kind, folder: Path) -> None:
        """Remove the entries of a file that were written longest ago. Once in a container's life, do so also for
        other files.
        """
        newest = sorted(_files(folder), key=lambda listed: -listed[1].st_mtime)
        for path, _ in newest[_MOST[kind] :]:
            path.unlink(missing_ok=True)
        if self._evicted:
            return
        self._evicted = True
        every = [file for each in _MOST for group in _folders(self._volume / each) for file in _files(group)]
        total = sum(status.st_size for _, status in every)
        for path, status in sorted(every, key=lambda listed: listed[1].st_mtime):
            if total <= self._limit:
                break
            path.unlink(missing_ok=True)
            total -= status.st_size


def _pack(files: dict[str, bytes]) -> bytes:
    sizes = json.dumps({name: len(content) for name, content in sorted(files.items())}).encode()
    body = zlib.compress(sizes + b"\n" + b"".join(content for _, content in sorted(files.items())), 1)
    return _MAGIC + blake2b(body, digest_size=_DIGEST).digest() + body


def _digest_of(content: bytes) -> bytes:
    return content[len(_MAGIC) : len(_MAGIC) + _DIGEST]


def _unpack(content: bytes) -> dict[str, bytes] | None:
    """Unpack an entry. Return None if it is not complete and unharmed, with plain names."""
    body = content[len(_MAGIC) + _DIGEST :]
    sound = content.startswith(_MAGIC) and blake2b(body, digest_size=_DIGEST).digest() == _digest_of(content)
    if not sound:
        return None
    try:
        head, _, rest = codec.inflate(body, limits.BUILD).partition(b"\n")
        sizes: dict[str, int] = codec.read_json(head)
        files: dict[str, bytes] = {}
        for name, size in sizes.items():
            if name and not _NAME.fullmatch(name):
                return None
            files[name], rest = rest[:size], rest[size:]
    except (ValueError, AttributeError, TypeError):
        return None
    return files


def _folders(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return [Path(entry.path) for entry in os.scandir(folder)]
    return []


def _files(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """Return the entries in a folder of the volume. Partial files that a container left long ago are removed."""
    listed: list[tuple[Path, os.stat_result]] = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):  # another container may have removed it
                status = entry.stat(follow_symlinks=False)
                if not entry.name.endswith(".tmp"):
                    listed.append((Path(entry.path), status))
                elif time.time() - status.st_mtime > _ABANDONED_S:
                    Path(entry.path).unlink()
    return listed


@contextlib.contextmanager
def _logged(what: str) -> Generator[None]:
    """Log a failure of the cache in the block: it costs time, never a run."""
    try:
        yield
    except OSError as error:
        print(f"orbit: {what}: {error}", file=sys.stderr)
