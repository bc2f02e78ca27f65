"""Reads somebody's files, for both packages, and writes a file atomically.

A name in a workspace, a header, a `#line` or a cache may be that of a FIFO, a device, a folder, a link to any of
these, or of a file larger than the memory. Here only a regular file is opened, nothing waits for a writer, and a
`Limit` bounds what is read. Every function raises OSError, whose `strerror` says what is wrong with the file, and
ValueError for a text that is no path of this system. Reading takes time: call it off the event loop.
"""

from __future__ import annotations

import errno
import os
import stat
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from orbit_remote.common.limits import HASHED, Limit

Name = str | os.PathLike[str]


class Hasher(Protocol):
    """An object of hashlib."""

    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


_FLAGS: Final = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_BINARY"))
_CHUNK: Final = 1 << 20
_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def opened(path: Name, *, within: int | None = None) -> BinaryIO:
    """Open the regular file `path`, unbuffered. `within` is the descriptor of an open folder to which `path` is relative.
    With it no link is followed.
    """
    follow = within is None
    _check(os.stat(path, dir_fd=within, follow_symlinks=follow), path)  # to open a device can have effects
    descriptor = os.open(path, _FLAGS if follow else _FLAGS | os.O_NOFOLLOW, dir_fd=within)
    try:
        _check(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise


def _check(status: os.stat_result, path: Name) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for test, name in _KINDS if test(status.st_mode)), "something else")
        raise OSError(
            errno.EISDIR if kind == "a folder" else errno.EINVAL, f"it is {kind}, not a regular file", path
        )


def read(path: Name, limit: Limit, *, within: int | None = None) -> bytes:
    """Read all of the file. Raises OSError if it is larger than the limit."""
    with opened(path, within=within) as file:
        return rest(file, limit, path)


def rest(file: BinaryIO, limit: Limit, path: Name) -> bytes:
    """Read what follows in an open file. Raises OSError if that is larger than the limit."""
    size = os.fstat(file.fileno()).st_size
    if size - file.tell() <= limit.most:
        content = upto(file, limit.most + 1)  # it may grow while it is read, and files of /proc have no size
        if len(content) <= limit.most:
            return content
    raise OSError(errno.EFBIG, limit.exceeded, path)


def text(path: Name, limit: Limit) -> str:
    """Read all of the file as UTF-8, with invalid bytes replaced, without a byte order mark."""
    return read(path, limit).decode("utf-8-sig", "replace")


def head(path: Name, limit: Limit) -> bytes:
    """Read what stands before the limit. The rest is not read."""
    with opened(path) as file:
        return upto(file, limit.most)


def file_hash(path: Name, hasher: Hasher | None = None) -> str | None:
    """Return `messages.content_hash` of the file, or what a new `hasher` makes of it, without holding its content. Return None if
    it cannot be read; nothing hashes to None.
    """
    hasher = hasher or blake2b(digest_size=16)
    left = HASHED.most
    try:
        with opened(path) as file:
            while chunk := file.read(_CHUNK):
                left -= len(chunk)
                if left < 0:
                    return None
                hasher.update(chunk)
    except (OSError, ValueError):  # ValueError: no path of this system
        return None
    return hasher.hexdigest()


def is_folder(entry: os.DirEntry[str]) -> bool:
    """A link to itself is an OSError, and no folder."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def replace(path: Path, content: bytes) -> None:
    """Write a file so that readers find it complete or as it was, readable by its owner alone. Its folders are made.
    No partial file stays.
    """
    from tempfile import mkstemp  # 10 ms of an import

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def upto(file: BinaryIO, most: int) -> bytes:
    """Return the next bytes of an open file, `most` at most."""
    pieces: list[bytes] = []
    while most and (piece := file.read(min(most, _CHUNK))):
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)
