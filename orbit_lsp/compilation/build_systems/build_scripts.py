"""Reads files that compile a source without being a usual build file. In scripts, recipes and READMEs plain calls of
nvcc are read. build.rs is read too. Of other files it is only said that they name the source.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from orbit_lsp.compilation.build_systems import nvcc_calls, rust_files, setup_files, visual_studio
from orbit_lsp.compilation.folders import folders_above
from orbit_remote.common import regular_files
from orbit_remote.common.limits import BUILD_FILE, QUOTED

NAMES = frozenset(
    ("SConstruct", "SConscript", "wscript", "xmake.lua", "premake4.lua", "premake5.lua", "BUILD.gn", "BUCK", "TARGETS", "binding.gyp",
     "Justfile", "justfile", "Taskfile.yml", "build.rs", "build.zig", "dune", "Jamfile", "Jamroot", "CMakeLists.txt.in", "Dockerfile"),
)  # fmt: skip
SUFFIXES = (
    ".pro",
    ".pri",
    ".vcxproj",
    ".gyp",
    ".gypi",
    ".bat",
    ".ps1",
    ".mk",
    ".make",
    ".ninja",
    ".sh",
    ".bash",
    ".py",
    ".cmake",
)
_CALLS_NVCC = re.compile(
    r"(?<![\w-])nvcc(?![\w-])|RawModule|RawKernel|SourceModule|extra_cuda_cflags|cuda_compile|compile_ptx",
    re.IGNORECASE,
)
_MOST_FOLDERS = 8
_MOST_FILES = 64
"""Files that are read of one folder."""
_MOST_ENTRIES = 10_000
"""Names of one folder that are looked at; those that the system lists behind them are not."""
_MOST_SAID = 3


class Script(NamedTuple):
    """A file that names the source. `flags` are nvcc's; `left_out` are the parts that are not known."""

    file: str
    flags: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def naming(path: str, root: str) -> Iterator[Script]:
    """Yield the files that compile the source, in its folder and in those above it, up to the root; the first of
    several. If none is understood, the call of nvcc in the source's comments or in a README counts. Reads files.
    """
    name = os.path.basename(path)
    named = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)")
    said = 0
    told: list[Script] = [script] if (script := _of_own_comments(path)) else []
    for folder in islice(folders_above(path, root), _MOST_FOLDERS):
        for file in islice(_candidates(folder), _MOST_FILES):
            try:
                text = regular_files.text(file, BUILD_FILE)
            except (OSError, ValueError):
                continue
            of_readme = nvcc_calls.is_readme(os.path.basename(file))
            if script := _understood(file, text, path, str(folder)):
                if not of_readme:
                    yield script
                    return
                told.append(script)
            elif not of_readme and said < _MOST_SAID and _names(text, file, path, named):
                said += 1
                yield not_understood(file, path)
    yield from told[:1]


def _names(text: str, file: str, path: str, named: re.Pattern[str]) -> bool:
    """Return whether a file that is not understood says how the source is compiled."""
    every = rf"(?<![\w/])\*{re.escape(os.path.splitext(path)[1])}\b"
    beside = os.path.dirname(file) == os.path.dirname(path)
    of_all = file.endswith((".sh", ".bash")) and beside and bool(re.search(every, text))
    known = os.path.basename(file) in NAMES or _CALLS_NVCC.search(text)
    return bool(known and (of_all or (os.path.basename(path) in text and named.search(text))))


def not_understood(file: str, path: str) -> Script:
    return Script(file, (), (f"what it gives nvcc for {os.path.basename(path)}",))


def of_another_folder(file: str, text: str, path: str, root: str) -> Script | None:
    """Return what a file that names the source, but does not lie above it, gives nvcc for it. Return None if it does
    not call nvcc.
    """
    if os.path.basename(file) != "build.rs" and not _CALLS_NVCC.search(text):
        return None
    for folder in folders_above(file, root):  # whoever starts it may stand above it
        if script := _understood(file, text, path, str(folder)):
            return script
    return not_understood(file, path) if _CALLS_NVCC.search(text) else None


def _candidates(folder: Path) -> Iterator[str]:
    """Yield the scripts of a folder, and then its READMEs."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(each.name for each in islice(entries, _MOST_ENTRIES))
    except OSError:
        return
    yield from (
        str(folder / name)
        for name in sorted(names, key=nvcc_calls.is_readme)
        if (name in NAMES or name.endswith(SUFFIXES) or nvcc_calls.is_readme(name)) and name != "setup.py"
    )


def _understood(file: str, text: str, path: str, folder: str) -> Script | None:
    """Return what a file that is started in `folder` gives nvcc for the source. Return None if it does not, or is not
    understood.
    """
    name = os.path.basename(file)
    if name == "build.rs":
        made = rust_files.read(text, path, os.path.dirname(file))
    elif name.endswith(".vcxproj"):
        made = visual_studio.read(text, path, os.path.dirname(file))
    elif os.path.basename(path) in text or f"*{os.path.splitext(path)[1]}" in text:
        made = nvcc_calls.first(nvcc_calls.as_shell(name, text), path, folder)
    else:
        made = None
    if made is None and name.endswith(".py") and os.path.basename(path) in text:
        made = setup_files.of_runtime(file, text)
    return Script(file, made.flags, made.left_out) if made else None


def _of_own_comments(path: str) -> Script | None:
    try:
        text = nvcc_calls.of_comments(regular_files.head(path, QUOTED).decode("utf-8", "replace"))
    except (OSError, ValueError):
        return None
    call = nvcc_calls.first(text, path, os.path.dirname(path), own=True) if text else None
    return Script(path, call.flags, call.left_out) if call else None
