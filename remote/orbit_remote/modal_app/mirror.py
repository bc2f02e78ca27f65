"""Keeps the author's files in a folder to which cells write as well. The author's files are written and removed only
there.

A path never leads through a link, so it cannot leave the folder, whatever it contains.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

from orbit_remote.common.content_store import Hashes, open_folder, unusable

_PROGRAMS = (b"#!", b"\x7fELF")
"""Their files can be executed: a manifest has no modes."""
_TEMPORARY = "\\new"  # what no manifest can name


class Mirror:
    """A `folder` and its files. Paths have `/`. Each method raises OSError, and ValueError for text that cannot be a
    path.
    """

    def __init__(self, folder: Path, *, shared: bool = False) -> None:
        """Make a mirror. `shared`: another user may write to what is made here."""
        self._folder = folder
        self._shared = shared
        self._hashes = Hashes()
        self._sent: dict[str, str] = {}
        """What the author's side has had written here."""
        self._times: dict[str, int] = {}

    def take_over(
        self, files: Mapping[str, str], *, whole: bool, gone: list[str], read: Callable[[str], bytes],
        times: Mapping[str, int] | None = None,
    ) -> dict[str, str]:  # fmt: skip
        """Write the files that the author's side has changed, and remove those that it has removed. Other files that
        were written here stay.

        `whole`: `files` are all of its files, and `gone` are those that we know and it lacks. `read` gives the
        content of a hash. `times` are when the files were changed, in nanoseconds: programs that compare times, such
        as make, see the author's times. Return why a path was not written.
        """
        self._times |= times or {}
        failed: dict[str, str] = {}
        for place in [place for place in self._sent if place not in files] if whole else gone:
            with contextlib.suppress(OSError, ValueError):
                self._remove(place, self._sent.pop(place, ""))
        for place, wanted in files.items():
            try:
                here = self._digest(place)
                changed_here = whole and here is not None and self._sent.get(place) == wanted
                if here != wanted and not changed_here:
                    self._write(place, read(wanted), self._times.get(place))
                self._sent[place] = wanted
            except (OSError, ValueError) as error:
                failed[place] = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return failed

    def restore(self, read: Callable[[str], bytes]) -> None:
        """Write again what the author's side has and a cell has removed here. What a cell has overwritten stays. A
        content that is not kept any more is left out.
        """
        for place, digest in self._sent.items():
            if not os.path.lexists(self._folder / place):
                with contextlib.suppress(OSError, ValueError):
                    self._write(place, read(digest), self._times.get(place))

    def _digest(self, place: str) -> str | None:
        """Return a file's digest. Return None if there is no regular file."""
        with contextlib.suppress(OSError), self._inside(place, make=False) as (folder, name):
            return self._hashes.read(f"{self._folder}/{place}", within=folder).digest if name else None
        return None

    def _write(self, place: str, content: bytes, changed: int | None) -> None:
        """Write a file as a whole or not at all, with the author's time (`changed`)."""
        with self._inside(place, make=True) as (folder, name):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_TEMPORARY, dir_fd=folder)
            try:
                mode = 0o777 if content.startswith(_PROGRAMS) else 0o666
                with os.fdopen(os.open(_TEMPORARY, flags, mode, dir_fd=folder), "wb") as file:
                    if self._shared:
                        os.fchmod(file.fileno(), mode)
                    file.write(content)
                    file.flush()
                    if changed is not None:
                        os.utime(file.fileno(), ns=(changed, changed))
                os.rename(_TEMPORARY, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(_TEMPORARY, dir_fd=folder)
                raise

    def _remove(self, place: str, digest: str) -> None:
        """Remove the file, if it is still the one that was sent, and the folders that become empty."""
        if self._digest(place) != digest:
            return
        with self._inside(place, make=False) as (folder, name):
            os.unlink(name, dir_fd=folder)
        while "/" in place:
            place = place.rpartition("/")[0]
            with self._inside(place, make=False) as (folder, name):
                os.rmdir(name, dir_fd=folder)

    @contextlib.contextmanager
    def _inside(self, place: str, *, make: bool) -> Generator[tuple[int, str]]:
        """Give the folder of a path, opened, and the path's last part."""
        if why := unusable(place):
            raise ValueError(f"{place!r:.200} {why}")
        if make:
            self._folder.mkdir(mode=0o777, parents=True, exist_ok=True)
        folder = open_folder(self._folder)
        try:
            *parts, name = place.split("/")
            for part in parts:
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, dir_fd=folder)
                inner = open_folder(part, folder)
                os.close(folder)
                folder = inner
                if make and self._shared:
                    with contextlib.suppress(PermissionError):
                        os.fchmod(folder, 0o777)
            yield folder, name
        finally:
            os.close(folder)
