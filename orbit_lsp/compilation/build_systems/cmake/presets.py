"""Reads CMake's presets, the configurations that a project offers, as data."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, cast

from orbit_lsp.compilation.build_systems.cmake import language
from orbit_remote.common import codec, regular_files
from orbit_remote.common.limits import BUILD_FILE

NAMES = ("CMakePresets.json", "CMakeUserPresets.json")
_MOST_INHERITED = 100
_MOST_PRESETS = 200
"""Of one file; those that follow are not used."""
_MOST_SHOWN = 16
"""Presets among which one is chosen."""
_LONGEST = 20_000
"""Characters of a value."""


def configured(file: Path) -> tuple[dict[str, Any], ...]:
    """Return the configure presets of a file, hidden ones too. Return none if it cannot be read. Callers may not
    change them. The file is read again only if it changed, because an editor asks every few seconds.
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
    """Return the cache variables of a preset that is not hidden, and the file that has them. It is the first that
    asks for CUDA, else the first that does not refuse it, else the first.
    """
    for name in NAMES:
        file = Path(folder, name)
        known = {str(preset.get("name")): preset for preset in configured(file)}
        shown = islice((name for name, preset in known.items() if not preset.get("hidden")), _MOST_SHOWN)
        every = [(name, values) for name in shown if (values := _variables(name, known))]
        if every:
            chosen, values = min(every, key=lambda each: _against_cuda(each[1]))
            of_presets = {
                "sourceDir": folder,
                "sourceParentDir": str(Path(folder).parent),
                "sourceDirName": Path(folder).name,
                "presetName": chosen,
            }
            return str(file), {key: _expanded(value, of_presets) for key, value in values.items()}
    return "", {}


def _variables(name: str, known: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the cache variables of a preset, with those that it inherits."""
    values: dict[str, str] = {}
    met: set[str] = set()
    waiting = [name]
    while waiting and len(met) < _MOST_INHERITED:
        preset = {} if (each := waiting.pop(0)) in met else known.get(each, {})
        met.add(each)
        for key, value in _fields(preset.get("cacheVariables")).items():
            values.setdefault(key, _text(value))
        parents = preset.get("inherits")
        listed = cast("list[Any]", parents) if isinstance(parents, list) else [parents] if parents else []
        waiting += map(str, listed[:_MOST_INHERITED])
    return values


def _against_cuda(values: dict[str, str]) -> int:
    """Rank variables: 0 if they ask for CUDA, 2 if they refuse it, else 1."""
    switches = [not language.OFF.fullmatch(value) for key, value in values.items() if language.is_switch(key)]
    if "CMAKE_CUDA_ARCHITECTURES" in values or any(switches):
        return 0
    return 2 if switches else 1


def _expanded(text: str, macros: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda match: macros.get(match[1], match[0]), text)


def _fields(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _text(value: object) -> str:
    """Return the text of a cache variable, which may have its type too."""
    fields = _fields(value)
    given: object = fields.get("value", "") if fields else value
    text = str(given or "")[:_LONGEST] if isinstance(given, str | int | float) else ""
    return ("ON" if given else "OFF") if isinstance(given, bool) else re.sub("[\ue000\ue001]", "", text)
