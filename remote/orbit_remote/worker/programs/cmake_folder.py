"""Build folders of CMake: the author's, where a project is configured, else one of ours; and what CMake's File API says of its programs"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from orbit_remote.common import codec, content_store, limits, regular_files

_CLIENT = "client-orbit-lsp"
_QUERY = (".cmake", "api", "v1", "query", _CLIENT, "codemodel-v2")
_REPLY = (".cmake", "api", "v1", "reply")
"""CMake's manual, "cmake-file-api(7)"."""
_CACHED = re.compile(r"^(CMAKE_\w+):\w+=(.*)$", re.MULTILINE)
_PREFERRED = ("Release", "RelWithDebInfo", "")
_DEPTH = 2
_MOST_FOLDERS = 200
_MOST_KEPT = 12
"""Build folders of ours: one has some MiB, of a large project some hundred."""


class Configured(NamedTuple):
    """A build folder. `remarks` say why others that are there were not taken."""

    folder: str
    remarks: tuple[str, ...] = ()


class ProjectProgram(NamedTuple):
    """An executable of a project of CMake or Meson: the target's name, the file, and the target's own sources."""

    name: str
    file: str
    sources: tuple[str, ...]


class Codemodel(NamedTuple):
    """The executables of a configuration, whose name is empty where the generator has but one without a name."""

    configuration: str
    programs: tuple[ProjectProgram, ...]


def existing(source: str) -> Configured:
    """Return the build folder in which the project in `source` was configured last; an empty one where it was not. Takes time."""
    found: list[tuple[float, str]] = []
    remarks: list[str] = []
    for folder in folders(source):
        cache = os.path.join(folder, "CMakeCache.txt")
        try:
            said = dict(_CACHED.findall(regular_files.text(cache, limits.BUILD)))
            age = os.stat(cache).st_mtime
        except (OSError, ValueError):
            continue
        home, made_in = said.get("CMAKE_HOME_DIRECTORY", ""), said.get("CMAKE_CACHEFILE_DIR", "")
        program = said.get("CMAKE_MAKE_PROGRAM", "")
        if os.path.realpath(made_in) != os.path.realpath(folder):
            remarks.append(f"{folder} was configured in another place ({made_in}) and is not used")
        elif os.path.realpath(home) != os.path.realpath(source):
            continue  # of another project
        elif os.path.isabs(program) and not os.path.exists(program):
            remarks.append(f"{folder} was configured for {program}, which is not there, and is not used")
        else:
            found.append((age, folder))
    return Configured(max(found)[1] if found else "", tuple(remarks))


def folders(source: str) -> Iterator[str]:
    """Yield folders that may be of a build of CMake or Meson, down to a few levels, and those beside the project that are called so."""
    waiting = [(source, 0)]
    count = 0
    while waiting and count < _MOST_FOLDERS:
        folder, depth = waiting.pop(0)
        count += 1
        yield folder
        if depth < _DEPTH:
            waiting += [(each, depth + 1) for each in _inner(folder)]
    name, parent = os.path.basename(source), os.path.dirname(source)
    yield from (each for each in _inner(parent) if "build" in os.path.basename(each) and name in each)


def _inner(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                each.path
                for each in entries
                if not each.name.startswith(".git") and each.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []


def keep_few(parent: Path, wanted: str) -> None:
    """Remove the build folders of ours, of CMake and of Meson, that were configured longest ago, but for the `wanted` one and a few."""
    made = {folder: _made(folder) for folder in parent.glob("*/") if str(folder) != wanted}
    folders = sorted((each for each, age in made.items() if age), key=lambda each: -made[each])
    for folder in folders[_MOST_KEPT - 1 :]:
        content_store.remove(folder)


def _made(folder: Path) -> int:
    """When a folder was configured, in nanoseconds; 0 where it is no folder of a build."""
    for mark in ("CMakeCache.txt", "meson-info/meson-info.json"):
        with contextlib.suppress(OSError):
            return (folder / mark).stat().st_mtime_ns
    return 0


def is_configured(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "CMakeCache.txt"))


def ask(folder: str) -> bool:
    """Leave our question for CMake in a build folder, to be answered when it is configured next; whether it has been answered
    already. Raises OSError.
    """
    query = Path(folder, *_QUERY)
    if not query.exists():
        query.parent.mkdir(parents=True, exist_ok=True)
        query.touch()
    return _index(folder) is not None


def _index(folder: str) -> dict[str, Any] | None:
    """CMake's newest answer, if it is one to our question."""
    answers = sorted(Path(folder, *_REPLY).glob("index-*.json"))
    try:
        reply = _read(answers[-1])["reply"][_CLIENT][_QUERY[-1]] if answers else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return cast("dict[str, Any]", reply) if isinstance(reply, dict) and "jsonFile" in reply else None


def codemodel(folder: str) -> Codemodel | None:
    """Return what CMake said of a build folder's executables; None where it has said nothing. Takes time."""
    if (reply := _index(folder)) is None:
        return None
    replies = Path(folder, *_REPLY)
    try:
        model = _read(replies / reply["jsonFile"])
        source = model["paths"]["source"]
        configurations = {each["name"]: each for each in model["configurations"]}
        name = next((each for each in _PREFERRED if each in configurations), next(iter(configurations)))
        targets = [_read(replies / each["jsonFile"]) for each in configurations[name]["targets"]]
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        return None
    by_id = {each["id"]: each for each in targets}
    programs = [each for each in targets if each.get("type") == "EXECUTABLE" and each.get("artifacts")]
    return Codemodel(
        name,
        tuple(
            ProjectProgram(
                each["name"],
                os.path.normpath(os.path.join(folder, each["artifacts"][0]["path"])),
                tuple(_sources(each, by_id, source)),
            )
            for each in programs
        ),
    )


def _sources(target: dict[str, Any], by_id: dict[str, dict[str, Any]], folder: str) -> Iterator[str]:
    """The sources of a target, its own first, and those of the targets that it depends on."""
    waiting, seen = [target["id"]], {target["id"]}
    while waiting:
        at = by_id.get(waiting.pop(0), {})
        yield from (os.path.normpath(os.path.join(folder, each["path"])) for each in at.get("sources", ()))
        for each in at.get("dependencies", ()):
            if each["id"] not in seen:
                seen.add(each["id"])
                waiting.append(each["id"])


def _read(path: Path) -> Any:
    return codec.read_json(regular_files.read(path, limits.BUILD))
