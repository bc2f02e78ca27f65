"""Which folders the user trusts. Only the compilers, flags and Pythons of those are used.

The word of the editor, or of `--trust`, counts for this session. `orbit-lsp trust DIR` is remembered in one file in
the user's state folder, a JSON text a line. It counts if the editor says nothing.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import tempfile
from pathlib import Path

from orbit_lsp.state import user_folders
from orbit_lsp.state.user_folders import state_folder
from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.packages import installing


@dataclass(frozen=True, slots=True)
class Trust:
    """What is trusted. `word` is the editor's, the user's setting or `--trust`; None if none was given. `folders` are
    the workspace's, `remembered` those of `orbit-lsp trust`.
    """

    word: bool | None = None
    folders: tuple[str, ...] = ()
    remembered: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Return whether all of the workspace is trusted."""
        if self.word is not None:
            return self.word
        return bool(self.folders) and all(self.covers(folder) for folder in self.folders)

    def covers(self, folder: str | Path) -> bool:
        """Return whether what `folder` brings along is used."""
        if self.word is False:
            return False
        holding = (*(self.folders if self.word else ()), *self.remembered)
        place = os.path.realpath(folder)
        return any(Path(place).is_relative_to(os.path.realpath(folder)) for folder in holding)

    def remedy(self, once: str = "", folder: str = "") -> str:
        """Return what to do so that the things of `folder` are used, or else those of the first workspace folder.
        `once` says how to do it for a single command, if that is possible.
        """
        if self.word is False:
            return "trust the workspace in the editor"
        name = shlex.quote(folder or self.folders[0]) if folder or self.folders else "DIR"
        now = f"{once} for this command, or run " if once else "run "
        remedy = f"if you trust the authors of {name}, {now}`orbit-lsp trust {name}` for all that follow"
        return installing.located(remedy)


def current(word: bool | None, folders: list[str]) -> Trust:
    """Return the present trust. Reads the file of remembered folders."""
    return Trust(word, tuple(folders), remembered())


def list_file() -> Path:
    return state_folder() / "trusted-folders"


def remembered() -> tuple[str, ...]:
    """Return the folders of `orbit-lsp trust` with their links resolved. Return none if the file cannot be read, or
    is not the user's alone.
    """
    try:
        if foreign():
            return ()
        lines = regular_files.text(list_file(), limits.STATE).splitlines()
    except (OSError, RuntimeError):  # RuntimeError: there is no home folder
        return ()
    return tuple(dict.fromkeys(folder for line in lines if (folder := _folder(line))))


def foreign() -> str:
    """Return why the list may be somebody else's word, as after `sudo -E` with another user's home folder. Return ""
    if it is the user's alone.
    """
    if os.name != "posix":
        return ""
    try:
        file = list_file()
    except RuntimeError:  # there is no home folder
        return ""
    for path in (file, file.parent):
        try:
            status = path.stat()
        except OSError:
            continue
        if status.st_uid != os.getuid():
            return f"{path} belongs to another user (uid {status.st_uid}), so no folder is trusted: set XDG_STATE_HOME to a folder of your own"
        if path == file and status.st_mode & 0o022:
            mode = f"{stat.S_IMODE(status.st_mode):o}"
            return f"{path} can be written by other users (its permissions are {mode}), so no folder is trusted: read it, then chmod 600 it"
    return ""


def _folder(line: str) -> str | None:
    try:
        value = codec.read_json(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, str) and Path(value).is_absolute() and "\0" not in value else None


def remember(folder: str) -> str:
    """Trust `folder`, and return it with links resolved. Raises OSError."""
    real = os.path.realpath(folder, strict=True)
    if not Path(real).is_dir():
        raise NotADirectoryError(20, "is not a folder", folder)
    if real not in remembered():
        user_folders.append_line(list_file(), json.dumps(real))
    return real


def forget(folder: str) -> bool:
    """Stop trusting `folder`. Return False if it was not in the list. Raises OSError."""
    known = remembered()
    kept = [trusted for trusted in known if trusted not in (folder, os.path.realpath(folder))]
    if len(kept) == len(known):
        return False
    file = list_file()
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=".trusted-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.writelines(f"{json.dumps(folder)}\n" for folder in kept)
    Path(name).replace(file)
    return True
