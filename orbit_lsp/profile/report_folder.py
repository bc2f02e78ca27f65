"""The folder of reports in the user's cache. Only the newest reports stay in it."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

MOST_REPORTS = 50
_PART_S = 3600.0
"""An incomplete file of this age is no longer being written."""


def save(folder: Path, name: str, text: str | bytes, suffix: str = "html") -> Path:
    """Write a report under a new name and delete the oldest beyond `MOST_REPORTS`. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:80] or "report"
    path = folder / f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}.{suffix}"
    write(path, text if isinstance(text, bytes) else text.encode(errors="backslashreplace"))
    drop_parts(folder)
    for old in newest(folder, f"*.{suffix}")[MOST_REPORTS:]:
        old.unlink(missing_ok=True)
    return path


def write(path: Path, content: bytes) -> Path:
    """Write a file completely or not at all. Raises OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.unlink(missing_ok=True)  # a link of that name would lead elsewhere, a FIFO hold us up
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    return path


def drop_parts(folder: Path) -> None:
    """Remove partial files of processes that were killed while they wrote. Raises OSError."""
    for part in folder.glob(".*.*"):
        with suppress(FileNotFoundError):
            if time.time() - part.stat().st_mtime > _PART_S:
                part.unlink()


def newest(folder: Path, pattern: str) -> list[Path]:
    """Return the files that match the pattern, the newest first. Files that another process removes meanwhile are
    left out. Raises OSError.
    """
    pages: list[tuple[float, str, Path]] = []
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError):
            pages.append((path.stat().st_mtime, path.name, path))
    return [page for _, _, page in sorted(pages, reverse=True)]
