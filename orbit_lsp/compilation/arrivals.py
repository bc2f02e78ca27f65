"""Notices on disk that a build was configured, a submodule checked out or a package installed. It looks at few
places, quickly.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from orbit_lsp.closure import includes
from orbit_lsp.compilation import database
from orbit_lsp.compilation.build_systems.cmake import presets
from orbit_lsp.compilation.finder import CompilationQuestion, root_of
from orbit_lsp.compilation.installed import folders_outside, prefixes, venvs
from orbit_lsp.state.compilation import Compilation

State = tuple[str, int, int]
"""Of a file or a folder: its path, when it changed last in nanoseconds, its size."""
_MOST_PLACES = 512
_MOST_ANSWERS = 1024
_NAMES = (database.NAME, *presets.NAMES)


def is_of_build(path: str) -> bool:
    """Say whether a change of this file may change how sources are compiled. `.rsp` files count, because they hold
    the flags of a database's commands.
    """
    name = os.path.basename(path)
    return name in _NAMES or name.endswith(".rsp")


def on_disk(question: CompilationQuestion, compilation: Compilation) -> frozenset[object]:
    """Return the present state of what may change a file's compilation.

    That is: the databases and build folders that may tell how the file is compiled, the folders in which packages are
    installed, and the headers of `compilation` that were missing and are there now. Reads folders, which takes about
    1 ms.
    """
    places = filter(None, map(_state, islice(_places(question), _MOST_PLACES)))
    return frozenset((*places, *_answers(compilation, question.path)))


def _places(question: CompilationQuestion) -> Iterator[str]:
    from orbit_lsp.compilation import missing  # its patterns take 6 ms to compile

    root = root_of(question.path, question.folders)
    yield from database.candidates(question.path, root, question.database)
    for module in missing.submodules(root):
        yield os.path.join(root, module.folder)
    pythons = (*venvs(question.path, root), *question.not_started, question.python)
    yield from folders_outside(prefixes(pythons))


def _answers(compilation: Compilation, path: str) -> Iterator[str]:
    """Yield headers that were looked for in vain, and now lie in an include folder of the file's own flags."""
    folders: list[str] = []

    def note(kind: includes.Kind, value: str) -> str:
        if kind in ("quote", "folder", "system"):
            folders.append(os.path.normpath(os.path.join(os.path.dirname(path), value)))
        return value

    includes.rewrite(compilation.flags, note)
    files = (os.path.join(folder, name) for name in compilation.missing for folder in dict.fromkeys(folders))
    return filter(os.path.isfile, islice(files, _MOST_ANSWERS))


def _state(path: str) -> State | None:
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return None
    return path, status.st_mtime_ns, status.st_size
