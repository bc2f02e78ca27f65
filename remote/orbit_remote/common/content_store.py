"""The author's files on the GPU's machine: contents kept under their hashes, and trees made from them.

Jobs run in a tree, and a job may leave anything in it: changed and deleted files, links that lead elsewhere, folders
that cannot be read. `ContentStore.materialise` makes it match its manifest again, through folders opened without
following links. So nothing outside is read, written or removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from orbit_remote.common import limits, regular_files
from orbit_remote.common.messages import content_hash
from orbit_remote.common.requests import Manifest

MOST_FILES = 10_000
"""In one manifest."""

_MOST_PARTS = 100
_LONGEST_PART = 255  # bytes; NAME_MAX of Linux file systems
_LONGEST = 3000  # bytes; PATH_MAX is 4096, and the tree's own folder comes before
_DIGEST = re.compile(r"[0-9a-f]{32}")
_SETTLED_NS = 2_000_000_000  # FAT keeps times to 2 s; no other file system in use is coarser
_ABANDONED_S = 3600.0  # a temporary file this old belongs to a process that died
_TEMPORARY = "\\new"  # what no manifest can name
_DISCARDED = "\\gone"
_PROTECTED_TREES = 16
_MOST_KNOWN = 20_000
_CHUNK = 1 << 20


@lru_cache(20_000)
def unusable(name: str) -> str | None:
    """Return why a path cannot be in a manifest, as the end of a sentence. Return None if it can."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    parts = name.split("/")
    if not name or "" in parts or "." in parts or ".." in parts:
        return "is not a plain path relative to its folder"
    if "\0" in name or "\\" in name:
        return "holds a backslash or a NUL"
    if len(encoded) > _LONGEST or max(len(part.encode()) for part in parts) > _LONGEST_PART:
        return f"is longer than {_LONGEST} bytes or has a part of more than {_LONGEST_PART}"
    if len(parts) > _MOST_PARTS:
        return f"is more than {_MOST_PARTS} folders deep"
    return None


def check(manifest: Manifest) -> None:
    """Check a manifest. Raises ValueError, with one sentence, if a tree cannot or must not be made of it."""
    if not _DIGEST.fullmatch(manifest.root):
        raise ValueError(f"the manifest's root {manifest.root!r:.100} is not a hash")
    if len(manifest.files) > MOST_FILES:
        raise ValueError(f"the manifest names {len(manifest.files)} files; {MOST_FILES} is the most")
    for name, digest in manifest.files.items():
        if why := unusable(name):
            raise ValueError(f"the manifest's path {name!r:.200} {why}")
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"the manifest's hash of {name!r:.200} is not one: {digest!r:.100}")
    _nested(manifest.files)


# -- what a file holds, without reading it again ------------------------------------------------------


class KnownContent(NamedTuple):
    """A content. `content` is None if the hash was known from an earlier reading."""

    digest: str
    size: int
    content: bytes | None


class Hashes:
    """Content hashes of files. A file is read again only if its status says that it may have changed.

    The status is device, inode, size and both times. A file written twice within one tick of the file system's clock
    can keep all of them. So a hash counts only if the file had been at rest for two seconds when it was read:
    anything written later has another time. A younger file is read again each time until it has come to rest. At most
    20,000 files are remembered.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}
        self._lock = threading.Lock()

    def read(
        self,
        path: str,
        *,
        within: int | None = None,
        most: int | None = None,
        status: os.stat_result | None = None,
    ) -> KnownContent:
        """Return what the file `path` holds. Links are followed unless `within`, an open folder, is given. `status`
        is the file's, if it was just read.

        With `within`, the last part of `path` is looked up in that folder. Raises OSError, also for a file that is
        not regular, or larger than `most` bytes.
        """
        name = path if within is None else path.rpartition("/")[2]
        status = status or os.stat(name, dir_fd=within, follow_symlinks=within is None)
        with self._lock:
            known = self._known.get(path)
        if known and known[0] == _stamp(status):
            return KnownContent(known[1], status.st_size, None)
        limit = limits.TRAVELLING if most is None else replace(limits.TRAVELLING, most=most)
        with regular_files.opened(name, within=within) as file:
            now = time.time_ns()
            before = os.fstat(file.fileno())
            content = regular_files.rest(file, limit, path)
            after = os.fstat(file.fileno())
        digest = content_hash(content)
        with self._lock:
            self._known.pop(path, None)
            settled = now - max(before.st_mtime_ns, before.st_ctime_ns) > _SETTLED_NS
            if settled and _stamp(before) == _stamp(after):
                self._known[path] = (_stamp(before), digest)
            if len(self._known) > _MOST_KNOWN:
                for old in list(self._known)[: _MOST_KNOWN // 2]:
                    del self._known[old]
        return KnownContent(digest, len(content), content)


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


# -- contents and trees -------------------------------------------------------------------------------


class ContentStore:
    """Contents under `folder/aa/…`, by their hashes: about `limit` bytes. The ones used longest ago are removed
    first.

    Several processes may write into one folder: a content is written under another name and renamed. This store never
    removes what the last manifests shown to `missing` need, even over the limit. A store of another process may
    remove it, and then `materialise` says so. Any method may raise OSError: a full disk, a folder that cannot be
    written.
    """

    def __init__(self, folder: Path, limit: int, *, most: int | None = None, used_s: float = 0.0) -> None:
        """Make a store. `most` is the limit of contents beside the limit of bytes. A content that was marked as used
        less than `used_s` seconds ago is not marked again.
        """
        self._folder = folder
        self._most = most
        self._count = 0
        self._used_s = used_s
        self._limit = limit
        self._size: int | None = None
        self._needed: dict[str, frozenset[str]] = {}
        self._hashes = Hashes()
        self._lock = threading.RLock()

    def missing(self, manifest: Manifest) -> list[str]:
        """Return the hashes that must be `put` before this manifest can be materialised. The others are held.

        Raises ValueError as `check` does.
        """
        check(manifest)
        needed = frozenset(manifest.files.values())
        with self._lock:
            self._needed.pop(manifest.root, None)
            self._needed[manifest.root] = needed
            while len(self._needed) > _PROTECTED_TREES:
                del self._needed[next(iter(self._needed))]
        return sorted(digest for digest in needed if not self._touch(digest))

    def put(self, digest: str, content: bytes) -> None:
        """Store a content. Raises ValueError if `digest` is not its hash."""
        if content_hash(content) != digest:
            raise ValueError(f"{len(content)} bytes came under the hash {digest!r:.100}, which is not theirs")
        if self._touch(digest):
            return
        blob = self._blob(digest)
        blob.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        regular_files.replace(blob, content)
        with self._lock:
            if self._size is not None:
                self._size += len(content)
                self._count += 1
            if self._size is None or self._over(self._size, self._count):
                self._evict()

    def read(self, digest: str) -> bytes:
        """Return a content. Raises OSError if it is not here. Raises ValueError if it was damaged; it is removed
        then.
        """
        content = regular_files.read(self._blob(digest), limits.TRAVELLING)
        if content_hash(content) != digest:
            self._blob(digest).unlink(missing_ok=True)
            raise ValueError(f"the content {digest} was damaged in the store")
        return content

    def materialise(self, manifest: Manifest, tree: Path) -> None:
        """Make the folder `tree` hold the manifest's files and nothing else.

        A file that already has its content stays, its time of change included. Every file is a copy: a job that
        writes into its tree does not write into the store. Raises ValueError as `check` does, LookupError if a
        content is not in the store (or was damaged there, and is removed), and OSError; the tree is then partly
        changed.
        """
        check(manifest)
        with self._lock:
            tree.mkdir(mode=0o777, parents=True, exist_ok=True)
            folder = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                self._mirror(folder, str(tree), _nested(manifest.files))
            finally:
                os.close(folder)

    # -- one folder of a tree -----------------------------------------------------------------------

    def _mirror(self, folder: int, path: str, wanted: dict[str, Any]) -> None:
        os.fchmod(folder, 0o777)  # the job may run as another user, and write beside its sources
        kept: set[str] = set()
        for name, status in entries(folder):
            want = wanted.get(name)
            if isinstance(want, str):
                keep = self._holds(folder, path, name, status, want)
            else:
                keep = want is not None and stat.S_ISDIR(status.st_mode)
            if keep:
                kept.add(name)
            else:
                discard(folder, name)
        for name, want in wanted.items():
            if isinstance(want, str):
                if name not in kept:
                    self._write(folder, name, want)
                continue
            if name not in kept:
                os.mkdir(name, dir_fd=folder)
            inner = open_folder(name, folder)
            try:
                self._mirror(inner, f"{path}/{name}", want)
            finally:
                os.close(inner)

    def _holds(self, folder: int, path: str, name: str, status: os.stat_result, digest: str) -> bool:
        if not stat.S_ISREG(status.st_mode):
            return False
        try:
            return self._hashes.read(f"{path}/{name}", within=folder).digest == digest
        except OSError:
            return False

    def _write(self, folder: int, name: str, digest: str) -> None:
        try:
            blob = regular_files.opened(self._blob(digest))
        except FileNotFoundError:
            raise LookupError(f"the content {digest} is not in the store") from None
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        hasher = blake2b(digest_size=16)
        with blob:
            try:
                with os.fdopen(os.open(_TEMPORARY, flags, 0o666, dir_fd=folder), "wb") as file:
                    os.fchmod(file.fileno(), 0o666)
                    while chunk := blob.read(_CHUNK):
                        hasher.update(chunk)
                        file.write(chunk)
                if sound := hasher.hexdigest() == digest:
                    os.rename(_TEMPORARY, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(_TEMPORARY, dir_fd=folder)
                raise
        if not sound:
            os.unlink(_TEMPORARY, dir_fd=folder)
            self._blob(digest).unlink(missing_ok=True)
            raise LookupError(f"the content {digest} was damaged in the store")

    # -- blobs --------------------------------------------------------------------------------------

    def _blob(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest[2:]

    def _touch(self, digest: str) -> bool:
        """Return whether the content is here. If so, mark it as used."""
        blob = self._blob(digest)
        try:
            if not self._used_s or time.time() - blob.stat().st_mtime >= self._used_s:
                os.utime(blob)
        except FileNotFoundError:
            return False
        return True

    def _evict(self) -> None:
        kept: list[tuple[float, int, Path]] = []
        for blob in self._folder.glob("??/*"):
            with contextlib.suppress(FileNotFoundError):  # another process may have removed it
                status = blob.stat()
                if blob.suffix != ".tmp":
                    kept.append((status.st_mtime, status.st_size, blob))
                elif time.time() - status.st_mtime > _ABANDONED_S:
                    blob.unlink()
        needed = frozenset[str]().union(*self._needed.values())
        total, count = sum(size for _, size, _ in kept), len(kept)
        for _, size, blob in sorted(kept):
            if not self._over(total, count):
                break
            if blob.parent.name + blob.name not in needed:
                blob.unlink(missing_ok=True)
                total -= size
                count -= 1
        self._size, self._count = total, count

    def _over(self, total: int, count: int) -> bool:
        return total > self._limit or (self._most is not None and count > self._most)


def _nested(files: dict[str, str]) -> dict[str, Any]:
    """Return folders as dictionaries of what they hold. Raises ValueError if a path is a file and a folder."""
    top: dict[str, Any] = {}
    for name, digest in files.items():
        *folders, last = name.split("/")
        inside = top
        for folder in folders:
            within: dict[str, Any] | str = inside.setdefault(folder, {})
            if isinstance(within, str):
                raise ValueError(  # noqa: TRY004 - of what came in
                    f"the manifest has a file where {name!r:.200} needs a folder"
                )
            inside = within
        if last in inside:
            raise ValueError(f"the manifest has a folder where {name!r:.200} is a file")
        inside[last] = digest
    return top


def entries(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield what an open folder holds, by name. Links are not followed."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            yield name, os.stat(name, dir_fd=folder, follow_symlinks=False)


def open_folder(name: str | Path, within: int | None = None) -> int:
    """Open a folder for reading and writing whatever its mode. Raises OSError for a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=within)
    except PermissionError:
        if stat.S_ISDIR(os.stat(name, dir_fd=within, follow_symlinks=False).st_mode):
            os.chmod(name, 0o700, dir_fd=within)
        return os.open(name, flags, dir_fd=within)


def discard(folder: int, name: str) -> None:
    """Remove `name`, whatever it is. Folders inside it are first moved up, so that the depth of a tree costs nothing."""
    waiting = [name]
    moved = 0
    while waiting:
        current = waiting.pop()
        if not stat.S_ISDIR(os.stat(current, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(current, dir_fd=folder)
            continue
        inner = open_folder(current, folder)
        try:
            os.fchmod(inner, 0o700)
            for entry, status in entries(inner):
                if not stat.S_ISDIR(status.st_mode):
                    os.unlink(entry, dir_fd=inner)
                    continue
                moved += 1
                aside = f"{_DISCARDED}-{moved}"
                while exists(folder, aside):  # the job may have made one of that name
                    moved += 1
                    aside = f"{_DISCARDED}-{moved}"
                os.chmod(entry, 0o700, dir_fd=inner)  # to be moved a folder must be writable
                os.rename(entry, aside, src_dir_fd=inner, dst_dir_fd=folder)
                waiting.append(aside)
        finally:
            os.close(inner)
        os.rmdir(current, dir_fd=folder)


def remove(folder: Path) -> None:
    """Remove a folder and what is in it, as far as possible. It may be too deep for `shutil.rmtree`, or a job may
    have locked parts against reading.
    """
    if os.name != "posix":
        shutil.rmtree(folder, ignore_errors=True)
        return
    with contextlib.suppress(OSError):
        within = open_folder(folder)
        try:
            for name, _ in list(entries(within)):
                discard(within, name)
        finally:
            os.close(within)
        folder.rmdir()


@contextlib.contextmanager
def temporary(prefix: str, within: str | Path | None = None) -> Generator[Path]:
    """Give a folder to which code of others may write, until it is left. Raises OSError."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    try:
        yield folder
    finally:
        remove(folder)


def exists(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
