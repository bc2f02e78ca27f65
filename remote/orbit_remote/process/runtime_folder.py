"""The user's folder of sockets and locks. No other user can create, change or read it."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

_LONGEST = 80
"""Bytes of the folder above ours. The path of a socket has 107 at most (unix(7)), of which our names take under 30."""


class RefusedError(Exception):
    """The folder cannot be trusted. The text is a sentence with what to do."""


def folder() -> Path:
    """Return `$XDG_RUNTIME_DIR/orbit-lsp`, or `/tmp/orbit-lsp-UID` if there is no such variable. It is made if it is
    missing.

    Raises RefusedError if somebody else could use it, OSError if it cannot be made. POSIX only.
    """
    path = _place()
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if reason := _refused(status):
        raise RefusedError(
            f"the runtime folder {path} {reason}; remove it, or set XDG_RUNTIME_DIR to a folder of your own"
        )
    return path


def _place() -> Path:
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(given) and len(os.fsencode(given)) <= _LONGEST:  # noqa: PTH117 - the XDG specification
        try:
            if os.stat(given).st_uid == os.getuid():  # noqa: PTH116 - after `sudo -E` it is another user's
                return Path(given) / "orbit-lsp"
        except OSError:
            pass
    return Path("/tmp") / f"orbit-lsp-{os.getuid()}"  # noqa: S108 - who owns it is looked at


def _refused(status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return "is a link"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if status.st_uid != os.getuid():
        return f"belongs to another user (uid {status.st_uid})"
    if status.st_mode & 0o077:
        return f"is open to other users (its permissions are {stat.S_IMODE(status.st_mode):o}, and not 700)"
    return ""
