"""Build folders of Meson: the author's, if a project is set up. `meson-info` says which programs it has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common.configured import build_folders
from orbit_remote.common.configured.cmake_folder import Configured, ProjectProgram

_INFO = ("meson-info", "meson-info.json")
_TARGETS = ("meson-info", "intro-targets.json")
"""Meson's manual, "IDE integration"."""


def existing(source: str) -> Configured:
    """Return the build folder in which the project in `source` was set up last, or an empty one if it was not. Takes
    time.
    """
    set_up: list[tuple[float, str]] = []
    remarks: list[str] = []
    for folder in build_folders.near(source):
        info = Path(folder, *_INFO)
        try:
            folders = _read(info)["directories"]
            home, made_in = str(folders["source"]), str(folders["build"])
            age = info.stat().st_mtime
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if os.path.realpath(made_in) != os.path.realpath(folder):
            remarks.append(f"{folder} was set up in another place ({made_in}) and is not used")
        elif os.path.realpath(home) == os.path.realpath(source):
            set_up.append((age, folder))
    return Configured(max(set_up)[1] if set_up else "", tuple(remarks))


def is_set_up(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, *_INFO))


def programs(folder: str) -> tuple[ProjectProgram, ...]:
    """Return what Meson said of a build folder's executables. Return () if the folder has no `meson-info`. Takes
    time.
    """
    try:
        return tuple(
            ProjectProgram(each["name"], each["filename"][0], tuple(_sources(each)))
            for each in _read(Path(folder, *_TARGETS))
            if each["type"] == "executable"
        )
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return ()


def _sources(target: dict[str, Any]) -> list[str]:
    return [path for group in target["target_sources"] for path in group.get("sources", ())]


def _read(path: Path) -> Any:
    return codec.read_json(regular_files.read(path, limits.BUILD))
