"""Finds folders without disk space, and jobs that fill a disk.

A full folder is found by writing there, because compilers do not report it as such: nvcc with a full TMPDIR says
"Failed to preprocess host compiler properties", and does not mention a disk.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import Failure
from orbit_remote.process import client_environment

SAID = re.compile(r"No space left on device|Disk quota exceeded|not enough space", re.IGNORECASE)
"""Words of compilers, linkers and the C library."""

_ROOM = 4 << 20
"""Bytes that a compiler's temporary files take: a `.cu` that includes nothing, preprocessed, is 1.2 MB."""


def temporary() -> Path:
    """Return where compilers write temporary files, full or not. Python's own choice skips full folders."""
    variables = client_environment.current()
    if os.name == "nt":
        return Path(variables.get("TMP") or variables.get("TEMP") or tempfile.gettempdir())
    return Path(variables.get("TMPDIR") or "/tmp")  # noqa: S108 - where they write themselves


def full(folder: Path) -> bool:
    """Say whether the folder has no space left for a compilation. It writes 4 MiB there and removes them."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            block = bytes(1 << 20)
            for _ in range(_ROOM // len(block)):
                if file.write(block) < len(block):
                    return True
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


def no_temporary() -> Failure:
    return Failure(
        "infrastructure",
        f"there is no space left in {temporary()}, where nvcc and g++ write their temporary files",
        "free some space there, or set TMPDIR to a folder that has some and restart the editor",
    )


def unusable(error: OSError) -> Failure:
    """Return the failure, in a sentence, that a file could not be written or read."""
    where = f" ({error.filename})" if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Failure("infrastructure", f"the disk is full{where}", "free some space and run it again")
    return Failure("infrastructure", f"{os.strerror(error.errno or 0)}{where}", "", retryable=True)


# -- jobs that fill a disk ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Most:
    """What a job may take: bytes and number of the files in its own folder, and bytes that have to stay free."""

    size: int = 16 << 30
    files: int = 100_000
    free: int = 2 << 30


MOST: Final = Most()


class Room:
    """The disk space that a job may still take. `own` is the job's own folder, None if it has none. `places` are
    folders whose file systems it writes to as well. Files that are deleted but open are in no folder: only the free
    space shows them.
    """

    def __init__(self, own: Path | None, places: Iterable[Path], most: Most = MOST) -> None:
        self._own = own
        self._most = most
        self._disks: dict[int, tuple[list[Path], int]] = {}
        """By file system: folders on it, of which the job may remove some, and how much was free when it began."""
        for place in (*places, *([own] if own else ())):
            with contextlib.suppress(OSError):
                disk = place.stat().st_dev, shutil.disk_usage(place).free
                self._disks.setdefault(disk[0], ([], disk[1]))[0].append(place)

    def failure(self, written: Callable[[], int]) -> Failure | None:
        """Return why the job has to be ended. Return None if it may go on. `written` says how many bytes its
        processes have written so far.
        """
        size, files = _size_of(self._own, self._most) if self._own else (0, 0)
        if size > self._most.size or files > self._most.files:
            limit = _gib(self._most.size) if size > self._most.size else f"{self._most.files:,} files"
            return Failure(
                "runtime error",
                f"it was ended because it wrote more than {limit} to its folder, the limit of a job",
                "write less, or delete what the job no longer needs",
            )
        for disk, (places, before) in self._disks.items():
            now = _free(disk, places)
            # on a disk that was nearly full before, a job gets three quarters of what was left
            if now is None or now[1] >= min(self._most.free, before // 4):
                continue
            place, free = now
            text = f"it was ended because only {_gib(free)} are free on the disk of {place}; {_gib(before)} were free when it began"
            if max(written(), size) * 2 >= before - free:
                return Failure("runtime error", text, "write less, or free some space there")
            return Failure(
                "infrastructure",
                f"{text}, and it did not write most of that itself",
                "free some space there, and run it again",
                retryable=True,
            )
        return None


def _free(disk: int, places: Iterable[Path]) -> tuple[Path, int] | None:
    """Return the first of the places that is still on the disk, and how much is free there."""
    for place in places:
        with contextlib.suppress(OSError):
            if place.stat().st_dev == disk:
                return place, shutil.disk_usage(place).free
    return None


def _size_of(folder: Path, most: Most) -> tuple[int, int]:
    """Return bytes on the disk, and number of entries, of all that is in a folder. Counting stops when either is too
    much.
    """
    size = files = 0
    waiting = [str(folder)]
    while waiting and size <= most.size and files <= most.files:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                files += 1
                with contextlib.suppress(OSError):  # deleted meanwhile
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                if files > most.files:
                    break
    return size, files


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.3g} GiB"
