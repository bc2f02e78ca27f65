"""Finds build files and scripts in other folders than those above a source that name it, such as
`build/linux/Makefile` for `src/k.cu`.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

from orbit_lsp.compilation.build_systems import build_scripts, registry
from orbit_lsp.compilation.folders import folders_above
from orbit_remote.common import regular_files
from orbit_remote.common.limits import BUILD_FILE

_MOST_FILES = 96
"""Files that are read for one source: the nearest ones, scripts of Python last."""
_MOST_TEXT = 4 << 20
_MOST_NAMED = 16
"""Places of one text that are looked at."""
_LONGEST = 300
_OF_PATH = re.compile(r"[\w.+~@%${}()/\\-]")
_CLOSING = {"(": ")", "{": "}"}
_VARIABLE = re.compile(r"\{\w+\}|\{\w+\}|\$[({]?\w+[)}]?|%\w+%|%~dp0")


Listed = Mapping[str, Sequence[str]]
"""Build files and scripts of a workspace: for each folder relative to it, their names."""


def may_compile(name: str) -> bool:
    """Say whether a file of this name may say how sources are compiled."""
    system = registry.system_of(name)
    return (
        name in build_scripts.NAMES
        or name.endswith(build_scripts.SUFFIXES)
        or bool(system and system.reaches_out)
    )


def naming(path: str, root: str, listed: Listed) -> Iterator[tuple[str, str]]:
    """Yield the files among `listed` that name the source or all sources of its folder, the nearest first, with their
    texts. Reads files.
    """
    above = {str(folder) for folder in folders_above(path, root)}
    size = 0
    for file in nearest(path, root, listed, _MOST_FILES):
        if os.path.dirname(file) in above or size > _MOST_TEXT:
            continue
        try:
            text = regular_files.text(file, BUILD_FILE)
        except (OSError, ValueError):
            continue
        size += len(text)
        if names(text, file, path, root) or _has_folder(text, file, path):
            yield file, text


def nearest(path: str, root: str, listed: Listed, most: int) -> Iterator[str]:
    """Yield the files among `listed` that are nearest to a file, scripts of Python last."""
    here = os.path.relpath(os.path.dirname(path) or ".", root or ".").replace(os.sep, "/")
    above = [f"{here}/"]
    while "/" in here:
        here = here.rpartition("/")[0]
        above.append(f"{here}/")

    def rank(folder: str) -> tuple[int, int, str]:
        common = (at for at, start in enumerate(above) if f"{folder}/".startswith(start))
        return next(common, len(above)), folder.count("/"), folder

    folders = heapq.nsmallest(most, listed, key=rank)
    every = [os.path.join(root, folder, name) for folder in folders for name in sorted(listed[folder])]
    far = [file for file in every if file.endswith(".py") and not file.endswith("setup.py")]
    last = set(far)
    return islice(chain((file for file in every if file not in last), far), most)


def names(text: str, file: str, path: str, root: str) -> bool:
    """Say whether the text of a file in another folder names the source. It may use a path from its folder or one
    above that, or a path whose beginning is a variable. The name alone is enough if the text names the source's
    folder too.
    """
    name = os.path.basename(path)
    if name not in text:
        return False
    folder = os.path.dirname(path)
    pattern = re.compile(rf"(?<![\w.+-]){re.escape(name)}(?![\w-]|\.\w)")
    for match in islice(pattern.finditer(text), _MOST_NAMED):
        prefix = _path_before(text, match.start()).replace("\\", "/")
        rest = _VARIABLE.sub("", prefix)
        if rest == prefix and prefix:
            bases = (os.path.dirname(file), *map(str, folders_above(file, root)))
            if any(os.path.normpath(os.path.join(base, prefix)) == folder for base in bases):
                return True
            continue
        tail = os.path.normpath(rest.strip("/")) if rest.strip("/") else ""
        if tail and f"{folder}/".endswith(f"/{tail.lstrip('./')}/"):
            return True
        if (
            not tail
            and not os.path.isfile(os.path.join(os.path.dirname(file), name))
            and _mentions(text, file, path)
        ):
            return True
    return False


def _path_before(text: str, end: int) -> str:
    """Return the beginning of the path that stands before a file's name."""
    start = end
    while start and end - start < _LONGEST and _OF_PATH.fullmatch(text[start - 1]):
        opens = text[start - 1] in "({"
        if opens and not text.find(_CLOSING[text[start - 1]], start, end) > start:
            break  # a bracket around the path
        start -= 1
    return text[start:end]


def _mentions(text: str, file: str, path: str) -> bool:
    """Say whether a text has the folder of the source, by the path from the file or by its last part."""
    way = os.path.relpath(os.path.dirname(path), os.path.dirname(file))
    return any(
        re.search(rf"(?<![\w-]){re.escape(each)}(?![\w.-])", text)
        for each in (way, os.path.basename(os.path.dirname(path)))
    )


def _has_folder(text: str, file: str, path: str) -> bool:
    """Say whether a text has patterns of the source's folder: `../src/%.cu`, `../src/*.cu`, or that folder where make
    looks for prerequisites.
    """
    way = os.path.relpath(os.path.dirname(path), os.path.dirname(file))
    suffix = os.path.splitext(path)[1]
    if way not in text or suffix not in text:
        return False
    each = re.escape(way)
    return bool(
        re.search(rf"(?<![\w./-]){each}/[%*]{re.escape(suffix)}\b", text)
        or re.search(
            rf"^[ \t]*(?:VPATH[ \t]*[:+]?=|vpath[ \t]).*(?<![\w./-]){each}(?![\w./-])", text, re.MULTILINE
        )
    )
