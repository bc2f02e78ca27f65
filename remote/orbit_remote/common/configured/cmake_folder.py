"""Build folders of CMake: the author's if a project is configured, else one of ours. CMake's File API says which
programs it has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common.configured import build_folders

_CLIENT = "client-orbit-lsp"
_QUERY = (".cmake", "api", "v1", "query", _CLIENT, "codemodel-v2")
_REPLY = (".cmake", "api", "v1", "reply")
"""CMake's manual, "cmake-file-api(7)"."""
_CACHED = re.compile(r"^(CMAKE_\w+):\w+=(.*)$", re.MULTILINE)
_SETTING = re.compile(r"^([\w.+-]+):(BOOL|STRING|PATH|FILEPATH|UNINITIALIZED)=(.*)$", re.MULTILINE)
_HOME = "CMAKE_HOME_DIRECTORY"
_PREFERRED = ("Release", "RelWithDebInfo", "")


class Configured(NamedTuple):
    """A build folder. `remarks` say why other folders were not taken."""

    folder: str
    remarks: tuple[str, ...] = ()


class ProjectProgram(NamedTuple):
    """An executable of a project of CMake or Meson: the target's name, the file, and the target's own sources."""

    name: str
    file: str
    sources: tuple[str, ...]


class Codemodel(NamedTuple):
    """The executables of a configuration. Its name is "" if the generator has only one."""

    configuration: str
    programs: tuple[ProjectProgram, ...]


def existing(source: str) -> Configured:
    """Return the build folder in which the project in `source` was configured last, or an empty one if it was not.
    Takes time.
    """
    found: list[tuple[float, str]] = []
    remarks: list[str] = []
    for folder in build_folders.near(source):
        try:
            said = _cached(folder)
            age = os.stat(os.path.join(folder, build_folders.CACHE)).st_mtime
        except (OSError, ValueError):
            continue
        made_in = said.get("CMAKE_CACHEFILE_DIR", "")
        program = said.get("CMAKE_MAKE_PROGRAM", "")
        if os.path.realpath(made_in) != os.path.realpath(folder):
            remarks.append(f"{folder} was configured in another place ({made_in}) and is not used")
        elif not _is_of(said, source):
            continue
        elif os.path.isabs(program) and not os.path.exists(program):
            remarks.append(f"{folder} was configured for {program}, which is not there, and is not used")
        else:
            found.append((age, folder))
    return Configured(max(found)[1] if found else "", tuple(remarks))


def is_of(folder: str, project: str) -> bool:
    """Return whether CMake has configured a project in a folder. Reads a file."""
    try:
        return _is_of(_cached(folder), project)
    except (OSError, ValueError):
        return False


def _is_of(cached: Mapping[str, str], project: str) -> bool:
    return os.path.realpath(cached.get(_HOME, "")) == os.path.realpath(project) and bool(cached.get(_HOME))


def _cached(folder: str) -> dict[str, str]:
    """Return CMake's own variables in the cache of a folder. Raises OSError, ValueError."""
    text = regular_files.text(os.path.join(folder, build_folders.CACHE), limits.BUILD)
    return {name: value.strip() for name, value in _CACHED.findall(text)}


def is_configured(folder: str) -> bool:
    """Return whether CMake has configured a folder."""
    return os.path.isfile(os.path.join(folder, build_folders.CACHE))


def settings(folder: str, source: str, new_folder: str, new_source: str) -> list[str]:
    """Return the options by which CMake configures another copy of a project, in `new_source`, as the one in `source` was configured in
    `folder`. Raises OSError, ValueError.
    """
    text = regular_files.text(os.path.join(folder, build_folders.CACHE), limits.BUILD)
    options = [f"-G{name}" for name in re.findall(r"^CMAKE_GENERATOR:INTERNAL=(.+)$", text, re.MULTILINE)]
    moved = {folder: new_folder, source: new_source}
    paths = re.compile(rf"(?:{'|'.join(map(re.escape, moved))})(?=[/;]|$)")
    for name, kind, value in _SETTING.findall(text):
        if not value.endswith("NOTFOUND"):
            options.append(f"-D{name}:{kind}={paths.sub(lambda path: moved[path[0]], value)}")
    return options


def ask(folder: str) -> bool:
    """Leave our question for CMake in a build folder, to be answered at the next configuration. Return whether it has
    been answered already. Raises OSError.
    """
    query = Path(folder, *_QUERY)
    if not query.exists():
        query.parent.mkdir(parents=True, exist_ok=True)
        query.touch()
    return _index(folder) is not None


def _index(folder: str) -> dict[str, Any] | None:
    """Return CMake's newest answer, if it answers our question."""
    answers = sorted(Path(folder, *_REPLY).glob("index-*.json"))
    try:
        reply = _read(answers[-1])["reply"][_CLIENT][_QUERY[-1]] if answers else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return cast("dict[str, Any]", reply) if isinstance(reply, dict) and "jsonFile" in reply else None


def codemodel(folder: str) -> Codemodel | None:
    """Return what CMake said of a build folder's executables, or None if it has said nothing. Takes time."""
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
    """Yield the sources of a target, its own first, and those of the targets that it depends on."""
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
