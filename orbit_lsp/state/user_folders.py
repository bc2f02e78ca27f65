"""The user's folders on each platform: one whose content may be deleted at any time, and one that is kept."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder of builds, reports and profiles."""
    return _folder("XDG_CACHE_HOME", ".cache", "Library/Caches")


def state_folder() -> Path:
    """Return the folder of the history, the record of spending and trusted folders."""
    return _folder("XDG_STATE_HOME", ".local/state", "Library/Application Support")


def history_file() -> Path:
    return state_folder() / "history.sqlite"


def gate_file() -> Path:
    """Return the file of the gates that were run."""
    return state_folder() / "gates.sqlite"


def report_folder() -> Path:
    return cache_folder() / "reports"


def driver_index() -> Path:
    """Return the file that keeps what was read of projects to find their tests and scripts."""
    return cache_folder() / "drivers.sqlite"


def profile_folder() -> Path:
    """Return the folder of profiles, with Nsight Compute's own reports."""
    return cache_folder() / "profiles"


def listing_folder() -> Path:
    """Return the folder in which listings of compiled kernels are written for editors."""
    return cache_folder() / "listings"


def lend_home() -> str:
    """Give this process and those that it starts a home folder, if the user has none, as in a container with a user
    of its own. Return its path, or "" if there is a home. Raises OSError if another user holds it.
    """
    try:
        Path.home()
    except RuntimeError:
        import tempfile  # which those with a home do without

        lent = Path(tempfile.gettempdir(), f"orbit-lsp-{os.getuid()}")
        lent.mkdir(mode=0o700, exist_ok=True)
        about = lent.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
            raise PermissionError(
                errno.EPERM, "another user could write there; set HOME to a folder of your own", str(lent)
            ) from None
        os.environ["HOME"] = str(lent)
        return str(lent)
    return ""


def _folder(variable: str, default: str, macos: str) -> Path:
    """Return the user's folder. `variable` and `default` are those of the XDG specification, for Linux."""
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        base = str(Path.home() / macos)
    else:
        base = os.environ.get(variable, "")
        if not os.path.isabs(base):  # noqa: PTH117 - the XDG specification: such a value is ignored
            base = str(Path.home() / default)
    return Path(base) / "orbit-lsp"


def append_line(path: Path, line: str) -> None:
    """Add a line to a file that is this user's alone. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())  # at once: two programs at a time lose nothing
    finally:
        os.close(descriptor)
