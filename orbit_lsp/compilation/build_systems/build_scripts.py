"""Files that compile a source without being a build file of the usual kinds: shell scripts, whose plain calls of nvcc are read, and
others, of which it is said that they name the source
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from orbit_lsp.compilation import command_line
from orbit_lsp.compilation.build_systems.makefiles import without_option_files
from orbit_lsp.compilation.projects import folders_above
from orbit_remote.common import regular_files
from orbit_remote.common.limits import BUILD_FILE

_NAMES = frozenset(
    ("SConstruct", "SConscript", "wscript", "xmake.lua", "premake4.lua", "premake5.lua", "BUILD.gn", "BUCK", "TARGETS", "binding.gyp",
     "Justfile", "justfile", "Taskfile.yml", "build.rs", "build.zig", "dune", "Jamfile", "Jamroot", "CMakeLists.txt.in", "Dockerfile"),
)  # fmt: skip
_SUFFIXES = (
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
_CALL = re.compile(r"(?:^|[\s;&|(])((?:\S{0,1000}/)?nvcc[ \t][^\n;&|]{0,8000})")
_DECIDES = re.compile(
    r"-D|-U|fast_math|arch|gencode|generate-code|-ftz|-fmad|-prec-|maxrregcount|std[= ]|-rdc|-dc\b|-expt|lambda|-Xptxas|\$"
)
_MOST_FOLDERS = 8
_MOST_FILES = 64
"""Files that are read of one folder."""
_MOST_ENTRIES = 10_000
"""Names of one folder that are looked at; those that the system lists behind them are not."""
_MOST_SAID = 3


class Script(NamedTuple):
    """A file that names the source; `flags` are nvcc's, `left_out` is what is not known of them."""

    file: str
    flags: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def naming(path: str, root: str) -> Iterator[Script]:
    """The files in the source's folder and in those above it, up to the root, that compile it; of several the first. Reads files."""
    name = os.path.basename(path)
    named = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)")
    said = 0
    for folder in islice(folders_above(path, root), _MOST_FOLDERS):
        for file in islice(_candidates(folder), _MOST_FILES):
            try:
                text = regular_files.text(file, BUILD_FILE)
            except (OSError, ValueError):
                continue
            known = os.path.basename(file) in _NAMES or _CALLS_NVCC.search(text)
            every = os.path.splitext(name)[1]
            of_all = file.endswith((".sh", ".bash")) and f"*{every}" in text and folder == Path(path).parent
            if not (known and (of_all or (name in text and named.search(text)))):
                continue
            said += 1
            script = _of_shell(file, text, path, named) if file.endswith((".sh", ".bash")) else None
            yield script or Script(file, (), (f"what it gives nvcc for {name}",))
            if script or said >= _MOST_SAID:
                return


def _candidates(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(each.name for each in islice(entries, _MOST_ENTRIES))
    except OSError:
        return
    yield from (
        str(folder / name)
        for name in names
        if (name in _NAMES or name.endswith(_SUFFIXES)) and name != "setup.py"
    )


def _of_shell(file: str, text: str, path: str, named: re.Pattern[str]) -> Script | None:
    """The first call of nvcc in a shell script that names the source; None where a loop or a variable does."""
    text = re.sub(r"\\\r?\n", " ", re.sub(r"^[ \t]*#.*$", "", text, flags=re.MULTILINE))
    for match in _CALL.finditer(text):
        if named.search(match[1]):
            words, option_files = without_option_files(command_line.split(match[1]))
            known = [word for word in words if "$" not in word and "`" not in word]
            left_out = [word for word in words if word not in known and _DECIDES.search(word)]
            command = command_line.parse(known, os.path.dirname(file), path)
            return Script(file, command.flags, (*left_out, *option_files, *command.left_out))
    return None
