"""Finds a project's own macro whose name a library's header uses for something else, as `#define N 10` before
`#include <cub/cub.cuh>`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from orbit_lsp.closure.includes import rewrite
from orbit_lsp.state.compilation import Compilation
from orbit_remote.common import regular_files
from orbit_remote.common.limits import HEADER
from orbit_remote.common.messages import Place

_DIRECTIVE = re.compile(
    r'^[ \t]*#[ \t]*(?:define[ \t]+(?P<macro>[A-Za-z_]\w*)(?P<rest>.*)|undef[ \t]+(?P<undefined>\w+)|include[ \t]*["<](?P<include>[^">\n]+)[">])',
    re.MULTILINE,
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_FLAG = re.compile(r"-D([A-Za-z_]\w*)(?:=(.*))?")
_MOST_FILES = 64
_LONGEST_SHOWN = 60


class _Macro(NamedTuple):
    file: str
    line: int
    shown: str


def blamed(place: Place, path: str, text: str, ends: Mapping[str, int], compilation: Compilation) -> str:
    """Return the project's macro whose name a line of a library's header has, and what to do. Return "" for none. It
    counts if `text`, or a header of the project that it includes, defines it. `ends` has the line of each file that
    leads to the library. Reads files.
    """
    try:
        lines = regular_files.text(place.file, HEADER).split("\n")
        words = _WORD.findall(lines[place.line - 1].partition("//")[0])
    except (OSError, ValueError, IndexError):
        return ""
    macros = {
        match[1]: _Macro("", 0, flag) for flag in compilation.flags if (match := _FLAG.fullmatch(flag))
    } | _defined(path, text, ends, compilation)
    name = next((word for word in words if word in macros and not _is_guard(macros[word])), "")
    if not name:
        return ""
    file, at, shown = macros[name]
    if not file:
        return f"; {name} is a macro of the flag {shown}, and this header has something else of that name: rename it"
    where = os.path.relpath(file, compilation.root) if compilation.root else os.path.basename(file)
    return (
        f"; {name} is a macro of {where}:{at} ({shown}), and this header has something else of that name: rename the macro, "
        "or define it below this #include"
    )


def _is_guard(macro: _Macro) -> bool:
    return bool(re.fullmatch(r"#define \w+_(?:H|HPP|CUH|INCLUDED)_*", macro.shown))


def _defined(path: str, text: str, ends: Mapping[str, int], compilation: Compilation) -> dict[str, _Macro]:
    """Return the macros that are defined by then, by name, in the order of the preprocessor. Conditions are not
    evaluated.
    """
    folders: list[str] = []

    def note(_kind: str, value: str) -> str:
        folders.append(os.path.normpath(os.path.join(os.path.dirname(path), value)))
        return value

    rewrite(compilation.flags, note)
    macros: dict[str, _Macro] = {}
    seen = {path}

    def take(file: str, text: str) -> None:
        if file in ends:
            text = "\n".join(text.split("\n")[: ends[file]])
        for match in _DIRECTIVE.finditer(text):
            if name := match["macro"]:
                shown = f"#define {name}{match['rest'].rstrip()}"
                shown = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"
                macros[name] = _Macro(file, text.count("\n", 0, match.start()) + 1, shown)
            elif match["undefined"]:
                macros.pop(match["undefined"], None)
            else:
                for found in _meant(match["include"], file, folders, compilation.root):
                    if found not in seen and len(seen) < _MOST_FILES:
                        seen.add(found)
                        take(found, _text(found))
                    break

    take(path, text)
    return macros


def _meant(name: str, file: str, folders: Sequence[str], root: str) -> Iterator[str]:
    """Yield the file of the project that an `#include` means."""
    for folder in (os.path.dirname(file), *folders):
        found = os.path.normpath(os.path.join(folder, name))
        if root and Path(found).is_relative_to(root) and os.path.isfile(found):
            yield found


def _text(file: str) -> str:
    try:
        return regular_files.text(file, HEADER)
    except (OSError, ValueError):
        return ""
