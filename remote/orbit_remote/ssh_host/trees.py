"""Folders in which jobs find their files. They are made from the files that were sent, one folder for each job that
runs at a time.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from orbit_remote.common import content_store
from orbit_remote.common.content_store import ContentStore
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Manifest
from orbit_remote.process import file_lock

_STORE_LIMIT = 2 << 30
_AT_A_TIME = 64
_UNUSED_S = 14 * 86_400.0


def contents(home: Path) -> ContentStore:
    """Return the store of the contents that were sent here."""
    return ContentStore(home / "files", _STORE_LIMIT)


@dataclass(frozen=True, slots=True)
class LentTree:
    """A folder that nobody else has until `give_back`."""

    path: Path
    lock: int

    def give_back(self) -> None:
        os.close(self.lock)


class Trees:
    """The trees of files that came from one author's machine. Their names contain `laptop`, because another machine
    may have a folder of the same name.
    """

    def __init__(self, home: Path, laptop: str) -> None:
        self._folder = home / "trees"
        self._laptop = laptop
        self.store = contents(home)

    def take(self, manifest: Manifest) -> LentTree:
        """Return a folder that holds the manifest's files and nothing else. Raises what `Store.materialise` raises,
        and OSError if too many jobs of the same folder run.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        content_store.check(manifest)
        for number in range(_AT_A_TIME):
            path = self._folder / f"{self._laptop}-{manifest.root}-{number}"
            lock = file_lock.taken_at(path.with_suffix(".lock"))
            if lock is None:
                continue
            try:
                os.utime(lock)
                self.store.materialise(manifest, path)
            except BaseException:
                os.close(lock)
                raise
            return LentTree(path, lock)
        raise OSError(None, f"{_AT_A_TIME} jobs of this folder run already")

    def sweep(self) -> None:
        """Remove folders that no job had for two weeks."""
        with suppress(OSError):
            for path in self._folder.glob("*.lock"):
                if time.time() - path.stat().st_mtime > _UNUSED_S and (lock := file_lock.taken_at(path)):
                    content_store.remove(path.with_suffix(""))
                    path.unlink()
                    os.close(lock)
