"""Checks whether a program that a project's build made is of the present saved text: its executable, and the objects
linked into it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common.messages import content_hash
from orbit_remote.worker.programs import sources
from orbit_remote.worker.programs.sources import ProgramSources

_OBJECTS = (".o", ".obj")
_MOST_OBJECTS = 20_000


def not_rebuilt(
    executable: str, units: Iterable[str], read: ProgramSources, objects: str, records: Path
) -> list[str]:
    """Return the files that have changed after the build compiled them. Return none if the executable is of all of
    them.

    `units` are the sources of which the executable has to be new; `objects` is the folder of the build's object
    files. `records` is a folder of ours, which notes what an executable was built from: times alone would not notice
    a file that was put back with its old time. Takes time. Raises OSError.
    """
    state = _state(executable)
    closures = {unit: read.closure((unit,)) for unit in units}
    wanted = {path: read.files[path].hash for closure in closures.values() for path in closure}
    record = records / f"{content_hash(os.path.realpath(executable).encode('utf-8', 'surrogateescape'))}.json"
    known = _known(record, state)
    if known is not None:
        changed = [path for path, hashed in wanted.items() if known.get(path, hashed) != hashed]
        if changed or wanted.keys() <= known.keys():
            return changed
    made = _objects(objects, closures)
    late: dict[str, None] = {}
    for unit, closure in closures.items():
        built = min(made.get(unit, state[0]), state[0])
        late |= dict.fromkeys(path for path in closure if read.files[path].changed > built)
    if not late:
        records.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"state": state, "files": (known or {}) | wanted})
        regular_files.replace(record, text.encode("utf-8", "surrogateescape"))
    return list(late)


def in_the_future(path: str, read: ProgramSources) -> bool:
    """Say whether a file has a time that no build can be newer than: it comes from another clock."""
    return read.files[path].changed > time.time_ns()


def _state(executable: str) -> list[int]:
    """Return when an executable was written, and its size. Raises OSError."""
    status = os.stat(executable)
    return [status.st_mtime_ns, status.st_size]


def _known(record: Path, state: list[int]) -> dict[str, str] | None:
    """Return what the executable was built from, by content hash. Return None if that was not noted for exactly this
    one.
    """
    try:
        noted = codec.read_json(regular_files.read(record, limits.STATE))
        return dict(noted["files"]) if list(noted["state"]) == state else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _objects(folder: str, units: Mapping[str, object]) -> dict[str, int]:
    """Return when the newest object file of each source was written, if there is one with the source's name."""
    by_name: dict[str, list[str]] = {}
    for unit in units:
        name = os.path.basename(unit)
        for base in {name, os.path.splitext(name)[0]}:
            for suffix in _OBJECTS:
                by_name.setdefault(base + suffix, []).append(unit)
    found: dict[str, int] = {}
    for count, path in enumerate(sources.listed(folder, _OBJECTS, built=True)):
        if count >= _MOST_OBJECTS:
            break
        for unit in by_name.get(os.path.basename(path), ()):
            try:
                found[unit] = max(found.get(unit, 0), os.stat(path).st_mtime_ns)
            except OSError:
                continue
    return found
