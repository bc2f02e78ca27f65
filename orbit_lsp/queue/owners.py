"""Which process has a job, and whether it still lives. The system releases the owner's lock when the process ends."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import uuid
from contextlib import suppress
from pathlib import Path

from orbit_lsp.state.sqlite_file import is_held, lock


class Owner:
    """This process as owner of jobs. It is alive until it is closed or the process ends, however it ends."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError."""
        folder = folder.absolute()  # the process may go to another one
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.id = f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
        self._path = folder / self.id
        try:
            self._held = lock(self._path)
        except sqlite3.Error as error:
            raise OSError(f"{self._path} cannot be locked: {error}") from None

    def close(self) -> None:
        self._held.close()
        with suppress(OSError):
            self._path.unlink()


def is_owner(name: str) -> bool:
    """Say whether this may be the name of an owner. A record or a folder may contain anything."""
    return re.fullmatch(r"\d{1,10}-[0-9a-f]{12}", name) is not None


def alive(folder: Path, owner: str) -> bool:
    """Say whether the owner of this name still lives."""
    path = folder / owner
    try:
        if not is_owner(owner) or not stat.S_ISREG(path.lstat().st_mode):
            return False
    except OSError:
        return False
    if is_held(path):
        return True
    with suppress(OSError):
        path.unlink()
    return False
