"""CMake's presets: the configurations that a project offers, read as data"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, cast

from orbit_remote.common import codec, regular_files
from orbit_remote.common.limits import BUILD_FILE

NAMES = ("CMakePresets.json", "CMakeUserPresets.json")
_MOST_INHERITED = 100
_MOST_PRESETS = 200
"""Of one file; those that follow are not used."""
_LONGEST = 20_000
"""Characters of a value."""


def configured(file: Path) -> tuple[dict[str, Any], ...]:
    """The configure presets of a file, hidden ones too, for reading only; none where it cannot be read. Looks whether the file
    changed: an editor asks every few seconds.
    """
    try:
        status = file.stat()
    except (OSError, ValueError):
        return ()
    return _configured(str(file), status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _configured(file: str, _changed_ns: int, _size: int) -> tuple[dict[str, Any], ...]:
    try:
        presets: Any = codec.read_json(regular_files.text(file, BUILD_FILE))
    except (OSError, ValueError, RecursionError):
        return ()
    listed = cast("dict[str, Any]", presets).get("configurePresets") if isinstance(presets, dict) else None
    every = cast("list[Any]", listed) if isinstance(listed, list) else []
    fields = (cast("dict[str, Any]", preset) for preset in every if isinstance(preset, dict))
    return tuple(islice(fields, _MOST_PRESETS))


def usual_variables(folder: str) -> tuple[str, dict[str, str]]:
    """The cache variables of the first preset that is not hidden, with what it inherits, and the file that has them."""
    for name in NAMES:
        file = Path(folder, name)
        known = {str(preset.get("name")): preset for preset in configured(file)}
        shown = next((name for name, preset in known.items() if not preset.get("hidden")), "")
        values: dict[str, str] = {}
        waiting = [shown]
        for _ in range(_MOST_INHERITED):
            preset = known.pop(waiting.pop(0), {}) if waiting else {}  # one that was met before adds nothing
            for key, value in _fields(preset.get("cacheVariables")).items():
                values.setdefault(key, _text(value))
            parents = preset.get("inherits")
            listed = cast("list[Any]", parents) if isinstance(parents, list) else [parents] if parents else []
            waiting += map(str, listed[:_MOST_INHERITED])
        if values:
            return str(file), values
    return "", {}


def _fields(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(value: object) -> str:
    """Of a cache variable, which may name its type too."""
    fields = _fields(value)
    given: object = fields.get("value", "") if fields else value
    text = str(given or "")[:_LONGEST] if isinstance(given, str | int | float) else ""
    return ("ON" if given else "OFF") if isinstance(given, bool) else re.sub("[\ue000\ue001]", "", text)
