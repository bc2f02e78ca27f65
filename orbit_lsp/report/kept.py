"""Nsight Compute's own reports, and what was read from them, kept in the user's cache folder within bounds.

The files of a profile have one name: `.ncu-rep`, which Nsight Compute opens, `.json`, from which a page is made again
after a restart, and what the compiler made of the kernels (`.ptx` and others). The oldest go first.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import os
import re
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from orbit_remote.contracts import VERSION, Finished

MOST_BYTES = 1 << 30
"""A report that unpacks to more than this is not kept: a full one of a large kernel has some tens of MiB."""
_SUFFIX = ".ncu-rep"


class NotKept(Exception):  # noqa: N818 - the profile itself is good
    """The report could not be kept; the text is the sentence to say."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A profile as it lies in the folder: `finished` as JSON, `report` None where no file of Nsight's is there."""

    path: str
    kernel: str
    at: float
    text: str
    detail: str
    finished: dict[str, Any]
    report: Path | None


def unpack(report: str) -> bytes:
    """The bytes of `Finished.report`. Raises NotKept."""
    try:
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(base64.b64decode(report, validate=True), MOST_BYTES)
        if unpacking.unconsumed_tail:
            raise NotKept(f"the profiler's report is larger than {MOST_BYTES >> 30} GiB and was not kept")
        if not unpacking.eof:
            raise NotKept("the profiler's report came incomplete and was not kept")
    except (binascii.Error, ValueError, zlib.error):
        raise NotKept("the profiler's report came damaged and was not kept") from None
    return content


def keep(
    folder: Path,
    path: str,
    kernel: str,
    text: str,
    finished: Finished,
    *,
    detail: str,
    reports: int,
    mib: int,
) -> Path | None:
    """Write a profile of `kernel` in the file `path`, whose text was `text`, with what the compiler made of it, and
    forget what goes beyond `reports` and `mib`. Returns Nsight Compute's own file; None where there is none. Raises NotKept.
    """
    content = unpack(finished.report) if finished.report else None
    dumps = {
        f".{one.instance}.{_plain(one.name)}.{one.level}": unpack(one.text)
        for one in finished.dumps
        if one.text
    }
    stem = _plain(f"{Path(path).stem}-{kernel}") or "profile"
    at = time.time()
    when = time.strftime("%Y%m%d-%H%M%S", time.localtime(at)) + f"-{int(at * 1000) % 1000:03d}"
    told = {
        "version": VERSION, "path": path, "kernel": kernel, "at": at, "text": text, "detail": detail,
        "finished": dataclasses.asdict(emptied(finished)),
    }  # fmt: skip
    base = folder / f"{stem}-{when}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(
            base.with_name(base.name + ".json"), json.dumps(told, ensure_ascii=False).encode(errors="replace")
        )
        report = _write(base.with_name(base.name + _SUFFIX), content) if content is not None else None
        for suffix, code in dumps.items():
            _write(base.with_name(base.name + suffix), code)
        _forget(folder, reports, mib << 20)
    except OSError as error:
        text = error.strerror or str(error)
        raise NotKept(f"the profiler's report cannot be kept in {folder}: {text}") from None
    return report if report and report.exists() else None


def emptied(finished: Finished) -> Finished:
    """Without what lies in files of its own."""
    dumps = tuple(dataclasses.replace(one, text="") for one in finished.dumps)
    return dataclasses.replace(finished, report="", dumps=dumps)


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:80]


def _write(path: Path, content: bytes) -> Path:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)
    return path


def _forget(folder: Path, reports: int, room: int) -> None:
    """The newest is kept whatever its size."""
    newest = sorted(folder.glob("*.json"), key=lambda one: (one.stat().st_mtime, one.name), reverse=True)
    taken = 0
    for number, told in enumerate(newest):
        of_it = [one for one in folder.iterdir() if one.name.startswith(f"{told.stem}.")]
        taken += sum(one.stat().st_size for one in of_it)
        if number and (number >= reports or taken > room):
            for one in of_it:
                one.unlink(missing_ok=True)


def newest(folder: Path, path: str, kernel: str | None = None) -> list[Kept]:
    """The profiles of a file, and of one of its kernels, the newest first. What cannot be read is left out."""
    found: list[Kept] = []
    try:
        names = sorted(folder.glob("*.json"), key=lambda one: (one.stat().st_mtime, one.name), reverse=True)
    except OSError:
        return []
    for name in names:
        kept = _read(name)
        if kept and kept.path == path and kernel in (None, kept.kernel):
            found.append(kept)
    return found


def _read(name: Path) -> Kept | None:
    try:
        read: Any = json.loads(name.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    told = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
    if told.get("version") != VERSION:
        return None
    report = name.with_suffix(_SUFFIX)
    try:
        return Kept(
            str(told["path"]), str(told["kernel"]), float(told["at"]), str(told["text"]), str(told["detail"]),
            dict(told["finished"]), report if report.exists() else None,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError):
        return None
