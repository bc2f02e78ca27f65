"""Packs the files of one compilation for whoever debugs it: command line, log, intermediate text and machine code, as
a tar.
"""

from __future__ import annotations

import base64
import io
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass

OF_NVCC = ("*.cubin", "*.fatbin", "*.ptx", "*.ii", "*.gpu", "*.stub.c", "*.cudafe1.cpp", "edited/*")
"""What nvcc keeps that tells something, the most telling first."""


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """The files of a compilation. `archive` is compressed by zlib and in base64. `remarks` say what is left out."""

    archive: str
    remarks: tuple[str, ...] = ()


def packed(texts: Mapping[str, str], files: Iterable[Path]) -> KeptFiles:
    """Pack `texts` by their names, and `files` below `compiler`, each name once."""
    remarks: list[str] = []
    left = limits.KEPT.most
    names: set[str] = set()
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, text in texts.items():
            _add(tar, name, text.encode("utf-8", "replace"))
        for path in files:
            if path.name in names or not path.is_file():
                continue
            names.add(path.name)
            try:
                content = regular_files.read(path, limits.DUMP)
            except OSError as error:
                remarks.append(f"{path.name} is left out of the bundle: {error.strerror}")
                continue
            left -= len(content)
            if left < 0:
                remarks.append(f"{path.name} and the files after it are left out: {limits.KEPT.exceeded}")
                break
            _add(tar, f"compiler/{path.name}", content)
    return KeptFiles(base64.b64encode(zlib.compress(archive.getvalue(), 1)).decode("ascii"), tuple(remarks))


def of_nvcc(work: Path, output: Path) -> list[Path]:
    """Return the files of a build in its folder, and what it made."""
    return [output, *(path for pattern in OF_NVCC for path in sorted(work.glob(pattern)))]


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))
