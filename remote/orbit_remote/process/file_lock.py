"""File locks, which the kernel releases when their holder dies. POSIX only."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def opened(path: Path, *, mode: int = 0o600) -> int:
    """Return a descriptor of the lock file, which is made if it is missing. The caller closes it, which releases the
    lock. Raises OSError, for a link too.

    It is opened for reading: a lock needs no more, and so another user's file may be shared.
    """
    try:
        return opened_if_there(path)
    except FileNotFoundError:
        pass
    try:
        descriptor = os.open(path, _flags() | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:  # made in this moment
        return opened_if_there(path)
    os.fchmod(descriptor, mode)  # whatever the umask is
    return descriptor


def opened_if_there(path: Path) -> int:
    """Open as `opened` does, but do not make the file. Raises OSError."""
    descriptor = os.open(path, _flags())
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file, and cannot be locked")
    return descriptor


def _flags() -> int:
    return os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO would be waited for


def taken_at(path: Path, *, mode: int = 0o600) -> int | None:
    """Return a descriptor that has the lock of the file at `path`, which is made if it is missing. Return None if
    somebody else has the lock, or removes the file at this moment. Raises OSError.
    """
    descriptor = opened(path, mode=mode)
    if taken(descriptor) and is_at(descriptor, path):
        return descriptor
    os.close(descriptor)
    return None


def waited_for(path: Path) -> int:
    """Lock as `taken_at` does, and wait while somebody else has the lock. Raises OSError."""
    import fcntl

    while True:
        descriptor = opened(path)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_at(descriptor, path):
            return descriptor
        os.close(descriptor)


def is_at(descriptor: int, path: Path) -> bool:
    """Say whether an open file is still the one with that name: its owner may have removed it before it was locked."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    return False


def taken(descriptor: int) -> bool:
    """Take the lock if it is free, without waiting. Return True on success."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
