"""Finds the builds of a project: folders with the usual names of builds, and those that CMake or Meson has
configured.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from orbit_remote.common import content_store, regular_files

CACHE = "CMakeCache.txt"
"""What CMake leaves in each folder that it configures."""
_MARKS = (CACHE, "meson-info/meson-info.json")
_NAMES = re.compile(
    r"build.*|_build.*|out|cmake-build-.*|builddir.*|bin|_skbuild|target|bazel-out", re.IGNORECASE
)
_DEPTH = 2
_MOST_INSIDE = 64
"""Build folders of one folder."""
_MOST_FOLDERS = 200
"""Of one project, and folders in a folder that are looked at."""
_MOST_KEPT = 12
"""Build folders of ours: one has some MiB, of a large project some hundred."""


def configured_ns(folder: str) -> int:
    """Return when CMake or Meson last configured a folder, in nanoseconds. Return 0 if neither did."""
    for mark in _MARKS:
        with contextlib.suppress(OSError, ValueError):
            return os.stat(os.path.join(folder, mark)).st_mtime_ns
    return 0


def inside(folder: str, goes_into: Callable[[str], bool] = lambda _: True) -> Iterator[str]:
    """Yield the builds in a folder, the outer ones first, and those in its folders, a few levels deep: `build`,
    `out/build/x64-Release`, and what CMake or Meson has configured under any name.
    """
    waiting = [(folder, 0)]
    count = 0
    while waiting and count < _MOST_INSIDE:
        at, depth = waiting.pop(0)
        inner = _inner(at)
        if not depth:
            called = {each for each in inner if _NAMES.fullmatch(os.path.basename(each))}
            called.update(filter(configured_ns, inner[:_MOST_FOLDERS]))
            inner = sorted(called)
        for each in inner[:_MOST_INSIDE]:
            count += 1
            yield each
            if depth < _DEPTH and goes_into(each):
                waiting.append((each, depth + 1))


def near(project: str) -> Iterator[str]:
    """Yield a project's folder and those in it, a few levels deep, and those beside it with the usual names of
    builds. Each may be another project's: `cmake_folder` and `meson_folder` say whose.
    """
    waiting = [(project, 0)]
    count = 0
    while waiting and count < _MOST_FOLDERS:
        folder, depth = waiting.pop(0)
        count += 1
        yield folder
        if depth < _DEPTH:
            waiting += [(each, depth + 1) for each in _inner(folder)]
    name, parent = os.path.basename(project), os.path.dirname(project)
    yield from (each for each in _inner(parent) if "build" in os.path.basename(each) and name in each)


def keep_few(parent: Path, wanted: str) -> None:
    """Remove the build folders of ours that were configured longest ago, but for the `wanted` one and a few."""
    made = {folder: configured_ns(str(folder)) for folder in parent.glob("*/") if str(folder) != wanted}
    folders = sorted((each for each, age in made.items() if age), key=lambda each: -made[each])
    for folder in folders[_MOST_KEPT - 1 :]:
        content_store.remove(folder)


def _inner(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                entry.path
                for entry in entries
                if not entry.name.startswith(".git") and regular_files.is_folder(entry)
            )
    except OSError:
        return []
