"""Finds the folders above a file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path


def folders_above(path: str, root: str) -> Iterator[Path]:
    """Yield the folders that hold a file, its own first, up to `root`. It ends at `/` and at `.` too, which are their
    own parents.
    """
    return takewhile(lambda folder: folder.is_relative_to(root), Path(path).parents)
