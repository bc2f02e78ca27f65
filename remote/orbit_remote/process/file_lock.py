"""File locks, which the kernel releases when their holder dies. POSIX only."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def opened(path: Path, *, mode: int = 0o600) -> int:
    """A descriptor of the lock file, which is made where it is missing; to be closed by the caller, which gives the lock
    back. Raises OSError, for a link too.

    For reading: a lock needs no more, and a file of another user's may be shared that way.
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
    """As `opened`, of a file that is not made. Raises OSError."""
    descriptor = os.open(path, _flags())
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file, and cannot be locked")
    return descriptor


def _flags() -> int:
    return os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO would be waited for


def taken_at(path: Path, *, mode: int = 0o600) -> int | None:
    """A descriptor that has the lock of the file at `path`, which is made where it is missing; None where somebody else
    has it, or removes it in this moment. Raises OSError.
    """
    descriptor = opened(path, mode=mode)
    if taken(descriptor) and is_at(descriptor, path):
        return descriptor
    os.close(descriptor)
    return None


def waited_for(path: Path) -> int:
    """As `taken_at`, once whoever else has it gives it back. Raises OSError."""
    import fcntl

    while True:
        descriptor = opened(path)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_at(descriptor, path):
            return descriptor
        os.close(descriptor)


def is_at(descriptor: int, path: Path) -> bool:
    """Whether a file is still the one of that name: its owner may have removed it before it was locked."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    return False


def taken(descriptor: int) -> bool:
    """Take the lock if it is free; True on success. Does not wait."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
