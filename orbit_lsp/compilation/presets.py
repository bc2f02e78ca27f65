"""CMake's presets: the configurations that a project offers, read as data"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from orbit_remote.common import codec, regular_files
from orbit_remote.common.limits import BUILD_FILE

NAMES = ("CMakePresets.json", "CMakeUserPresets.json")
_MOST_INHERITED = 100
_LONGEST = 20_000
"""Characters of a value."""


def configured(file: Path) -> Iterator[dict[str, Any]]:
    """The configure presets of a file, hidden ones too; none where it cannot be read."""
    try:
        presets: Any = codec.read_json(regular_files.text(file, BUILD_FILE))
    except (OSError, ValueError, RecursionError):
        return
    listed = cast("dict[str, Any]", presets).get("configurePresets") if isinstance(presets, dict) else None
    for preset in cast("list[Any]", listed) if isinstance(listed, list) else []:
        if isinstance(preset, dict):
            yield cast("dict[str, Any]", preset)


def usual_variables(folder: str) -> tuple[str, dict[str, str]]:
    """The cache variables of the first preset that is not hidden, with what it inherits, and the file that has them."""
    for name in NAMES:
        file = Path(folder, name)
        known = {str(preset.get("name")): preset for preset in configured(file)}
        shown = next((name for name, preset in known.items() if not preset.get("hidden")), "")
        values: dict[str, str] = {}
        waiting = [shown]
        for _ in range(_MOST_INHERITED):
            preset = known.get(waiting.pop(0), {}) if waiting else {}
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
    text = str(given or "")[:_LONGEST]
    return ("ON" if given else "OFF") if isinstance(given, bool) else re.sub("[\ue000\ue001]", "", text)
