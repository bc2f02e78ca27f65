"""Nsight Compute's own reports, and what was read from them, kept in the user's cache folder within bounds.

The files of a profile have one name: `.ncu-rep`, which Nsight Compute opens, `.json`, from which a page is made again
after a restart, and `.ir`, a folder of what the compiler made of the kernels. The oldest go first.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import os
import re
import shutil
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple, cast

from orbit_lsp.profile import dump_files as dumps
from orbit_lsp.profile import report_folder as files
from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.messages import RESULT_VERSION, Finished

MOST_BYTES = 1 << 30
"""A report that unpacks to more than this is not kept: a full one of a large kernel has some tens of MiB."""
_SAME_S = 10
_SUFFIX = ".ncu-rep"
_DUMPS = ".ir"


class NotKeptError(Exception):
    """The report could not be kept. The text is the sentence to show."""


@dataclass(frozen=True, slots=True)
class KeptProfile:
    """A profile in the folder. `finished` is JSON. `report` is Nsight's file and `dumps` a folder; None if they are
    not there.
    """

    path: str
    kernel: str
    at: float
    text: str
    detail: str
    finished: dict[str, Any]
    report: Path | None
    dumps: Path | None = None


class Files(NamedTuple):
    """The files of a profile: Nsight Compute's own file, and the folder of what the compiler made. Each is None if
    there is none.
    """

    report: Path | None
    dumps: Path | None


def unpack(report: str, most: int | None = None) -> bytes:
    """Return the bytes of `Finished.report`, or of a dump's text. Raises NotKeptError."""
    most = MOST_BYTES if most is None else most
    try:
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(base64.b64decode(report, validate=True), most)
        if unpacking.unconsumed_tail:
            raise NotKeptError(f"the profiler's report is larger than {most >> 20:,} MiB and was not kept")
        if not unpacking.eof:
            raise NotKeptError("the profiler's report is incomplete and was not kept")
    except (binascii.Error, ValueError, zlib.error):
        raise NotKeptError("the profiler's report is damaged and was not kept") from None
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
) -> Files:
    """Write a profile of `kernel` in the file `path`, whose text was `text`, with what the compiler made of it. Then
    delete the oldest beyond the limits `reports` and `mib`. Raises NotKeptError.
    """
    content = unpack(finished.report) if finished.report else None
    names = dumps.file_names(finished.dumps)
    room = MOST_BYTES
    texts: dict[str, bytes] = {}
    for name, dump in zip(names, finished.dumps, strict=True):
        texts[name] = unpack(dump.text, min(room, limits.DUMP.most))
        room = max(1, room - len(texts[name]))  # zlib takes 0 for no limit
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{Path(path).stem}-{kernel}").strip("-.")[:80] or "profile"
    at = time.time()
    when = time.strftime("%Y%m%d-%H%M%S", time.localtime(at)) + f"-{int(at * 1000) % 1000:03d}"
    record = {
        "version": RESULT_VERSION, "path": path, "kernel": kernel, "at": at, "text": text, "detail": detail,
        "finished": dataclasses.asdict(emptied(finished)),
    }  # fmt: skip
    base = folder / f"{stem}-{when}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(
            base.with_name(base.name + ".json"),
            json.dumps(record, ensure_ascii=False).encode(errors="replace"),
        )
        report = files.write(base.with_name(base.name + _SUFFIX), content) if content is not None else None
        compiled = _write_all(base.with_name(base.name + _DUMPS), texts) if texts else None
        _forget(folder, reports, mib << 20)
    except OSError as error:
        text = error.strerror or str(error)
        raise NotKeptError(f"the profiler's report cannot be kept in {folder}: {text}") from None
    return Files(
        report if report and report.exists() else None, compiled if compiled and compiled.exists() else None
    )


def emptied(finished: Finished) -> Finished:
    """Return the result without the parts that have files of their own."""
    emptied_dumps = tuple(dataclasses.replace(dump, text="") for dump in finished.dumps)
    return dataclasses.replace(finished, report="", dumps=emptied_dumps)


def _write_all(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(mode=0o700)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def _forget(folder: Path, reports: int, room: int) -> None:
    """The newest is kept, however large."""
    files.drop_parts(folder)
    taken = 0
    for number, path in enumerate(files.newest(folder, "*.json")):
        of_it = (path, path.with_suffix(_SUFFIX))
        compiled = path.with_suffix(_DUMPS)
        taken += sum(_size(file) for file in (*of_it, *compiled.glob("*")))
        if number and (number >= reports or taken > room):
            for file in of_it:
                file.unlink(missing_ok=True)
            shutil.rmtree(compiled, ignore_errors=True)


def _size(path: Path) -> int:
    """Return the size of a file, or 0 if it is gone because another server has just deleted it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def newest(folder: Path, path: str, kernel: str | None = None) -> list[KeptProfile]:
    """Return the profiles of a file, through whichever links it was opened, and of one of its kernels. The newest is
    first. What cannot be read is left out.
    """
    kept_reports: list[KeptProfile] = []
    real = _real(path)
    try:
        names = files.newest(folder, "*.json")
    except OSError:
        return []
    for name in names:
        kept = _read(name)
        if kept and real is not None and _real(kept.path) == real and kernel in (None, kept.kernel):
            kept_reports.append(kept)
    return kept_reports


def _real(path: str) -> str | None:
    """Return the real path, or None if this system allows no such path."""
    try:
        return os.path.realpath(path)
    except ValueError:
        return None


def of_time(folder: Path, path: str, kernel: str, at: float) -> KeptProfile | None:
    """Return the profile that the history dates `at`. It is written to the folder and to the history within seconds."""
    return next((kept for kept in newest(folder, path, kernel) if abs(kept.at - at) < _SAME_S), None)


def _read(name: Path) -> KeptProfile | None:
    try:
        read: Any = codec.read_json(regular_files.read(name, limits.PROFILE))
    except (OSError, ValueError, RecursionError):
        return None
    record = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
    if record.get("version") != RESULT_VERSION:
        return None
    report, compiled = name.with_suffix(_SUFFIX), name.with_suffix(_DUMPS)
    try:
        time.localtime(record["at"])  # which is shown
        return KeptProfile(
            str(record["path"]), str(record["kernel"]), float(record["at"]), str(record["text"]), str(record["detail"]),
            dict(record["finished"]), report if report.exists() else None,
            compiled if compiled.exists() else None,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None
