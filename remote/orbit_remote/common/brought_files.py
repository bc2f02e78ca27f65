"""Files that a program leaves in its folder and that its author gets back: which ones, packed for sending, and
written on the author's machine.

Neither side trusts the other's links: only the folder itself is read and written.
"""

from __future__ import annotations

import base64
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from fnmatch import translate
from pathlib import Path

from orbit_remote.common import content_store, limits, regular_files
from orbit_remote.common.messages import Brought

_MOST_LOOKED_AT = 200_000
_MOST_PARTS = 100


def parts_of(pattern: str) -> list[str]:
    """Return a pattern by its parts. A folder stands for everything in it. Raises ValueError for one that leads
    elsewhere.
    """
    parts = [part for part in pattern.replace("\\", "/").split("/") if part not in ("", ".")]
    if not parts or pattern.startswith(("/", "\\")) or ".." in parts or re.match(r"[A-Za-z]:", pattern):
        raise ValueError(f"{pattern!r:.80} is not a pattern of files below the folder, as in 'out/**'")
    return [part for at, part in enumerate(parts) if part != "**" or parts[at - 1 : at] != ["**"]]


def matches(place: Sequence[str], pattern: Sequence[str]) -> bool:
    """Say whether a path matches, part by part. `**` is any number of folders, and no wildcard matches a leading dot."""
    if not pattern:
        return not any(part.startswith(".") for part in place)
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        hidden = bool(place) and place[0].startswith(".")
        return matches(place, rest) or (bool(place) and not hidden and matches(place[1:], pattern))
    if not place or (place[0].startswith(".") and not first.startswith(".")):
        return False
    return re.match(translate(first), place[0]) is not None and matches(place[1:], rest)


def collect(folder: Path, patterns: Sequence[str]) -> tuple[tuple[Brought, ...], tuple[str, ...]]:
    """Return the regular files in a folder that the patterns match, in order of their names, and remarks on files
    that are left behind.

    The folder is a program's: it may hold links, FIFOs, folders without end, or be gone.
    """
    wanted = [parts_of(pattern) for pattern in patterns]
    brought: list[Brought] = []
    remarks: dict[str, None] = {}
    room, looked_at = limits.BROUGHT.most, 0
    for holder, place in _files(folder):
        looked_at += 1
        if looked_at > _MOST_LOOKED_AT:
            remarks[f"the folder holds more than {_MOST_LOOKED_AT:,} files; the rest was not looked at"] = (
                None
            )
            break
        if not any(matches(place, pattern) for pattern in wanted):
            continue
        name = "/".join(place)
        if why := content_store.unusable(name):
            remarks[f"{ascii(name)[1:80]} {why} and is not brought back"] = None
            continue
        if len(brought) == limits.BROUGHT_FILES.most:
            remarks[f"more than {limits.BROUGHT_FILES.size} match; the rest is not brought back"] = None
            break
        try:
            content = regular_files.read(place[-1], limits.BROUGHT, within=holder)
        except OSError as error:
            remarks[f"{name} is not brought back: {error.strerror}"] = None
            continue
        room -= len(content)
        if room < 0:
            remarks[
                f"{name} and what follows is not brought back: --bring brings at most {limits.BROUGHT.size}"
            ] = None
            break
        packed = base64.b64encode(zlib.compress(content, 1)).decode()
        brought.append(Brought(name, len(content), packed))
    if not brought and not remarks:
        remarks[f"no file matches --bring {' '.join(patterns)}"] = None
    return tuple(brought), tuple(remarks)[:20]


def _files(folder: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield (the open folder that holds it, its path) for every regular file below. Links are not followed."""
    try:
        top = content_store.open_folder(folder)
    except OSError:  # the program has removed it
        return
    yield from _below(top, ())


def _below(folder: int, above: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    try:
        for name, status in sorted(content_store.entries(folder), key=lambda entry: entry[0]):
            if stat.S_ISREG(status.st_mode):
                yield folder, (*above, name)
            elif stat.S_ISDIR(status.st_mode) and len(above) < _MOST_PARTS:
                try:
                    inner = content_store.open_folder(name, folder)
                except OSError:
                    continue
                yield from _below(inner, (*above, name))
    finally:
        os.close(folder)


def write(
    root: Path, brought: Sequence[Brought], patterns: Sequence[str]
) -> tuple[tuple[Brought, ...], tuple[str, ...]]:
    """Write files below `root`. Return those that were written, without their contents, and remarks on the others.
    Files from another machine are checked: only what was asked for is written, and never through a link.
    """
    wanted = [parts_of(pattern) for pattern in patterns]
    written: list[Brought] = []
    remarks: list[str] = []
    room = limits.BROUGHT.most
    for file in brought[: limits.BROUGHT_FILES.most]:
        place = file.path.split("/")
        if content_store.unusable(file.path) or not any(matches(place, pattern) for pattern in wanted):
            remarks.append(f"{ascii(file.path)[1:-1]:.200} is not written: nobody asked for it")
            continue
        try:
            content = _unpacked(file, room)
            room -= len(content)
            _write(root, place, content)
        except (ValueError, zlib.error, OSError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            remarks.append(f"{ascii(file.path)[1:-1]:.200} is not written: {why}")
        else:
            written.append(Brought(file.path, len(content)))
    return tuple(written), tuple(remarks)


def _unpacked(file: Brought, room: int) -> bytes:
    if file.size < 0:  # no limit, to zlib
        raise ValueError("it is not what its size says")
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(base64.b64decode(file.content, validate=True), min(room, file.size) + 1)
    if len(content) != file.size or not unpacking.eof:
        raise ValueError("it is not what its size says")
    return content


def _write(root: Path, place: Sequence[str], content: bytes) -> None:
    """Write a file. Raises OSError, and ValueError if a link or a file stands in the place of one of its folders."""
    folder = root
    for part in place[:-1]:
        folder /= part
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise ValueError(f"{part} is not a folder, and nothing is written through a link")
        folder.mkdir(exist_ok=True)
    path = folder / place[-1]
    if path.is_dir() and not path.is_symlink():
        raise ValueError("there is a folder of that name")
    regular_files.replace(path, content)
