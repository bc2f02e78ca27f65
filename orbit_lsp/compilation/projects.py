"""Finds how far a project reaches above one of its folders."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from orbit_lsp.compilation.build_systems import makefiles, registry
from orbit_remote.common import regular_files
from orbit_remote.common.limits import QUOTED

_INCLUDES = re.compile(r"^[ \t]*-?include[ \t]+((?:\.\./){1,16})", re.MULTILINE)
_OF_PYTHON = ("pyproject.toml", "setup.cfg")
_OF_REPOSITORIES = (".gitignore", ".gitattributes")
"""What an archive of a repository has of git."""
_ENVIRONMENTS = ("environment.yml", ".venv/pyvenv.cfg", "venv/pyvenv.cfg")


def project_of(folder: str) -> str:
    """Return the project that something marks (`marked`), else the folder."""
    return marked(folder) or folder


def marked(folder: str) -> str | None:
    """Return the repository of a folder, else the highest folder above it that has a build file or a file of git's,
    as an archive of a repository has, else the highest with an environment, else None.

    A Makefile reaches as far as the files that it includes. An environment above a build file may belong to many
    unrelated projects. Reads one file.
    """
    highest: Path | None = None
    built = False
    own: list[Path] = []
    for above in (Path(folder), *Path(folder).parents):
        try:
            entry = above.stat()
        except (OSError, ValueError):  # ValueError: a URI may say what no path can hold
            break
        strangers = entry.st_mode & stat.S_IWOTH or (
            hasattr(os, "getuid") and entry.st_uid not in (0, os.getuid())
        )
        if strangers or above in (Path.home(), above.parent):
            break  # what another user may have put there says nothing of the author's projects
        own.append(above)
        # os.path has no error for what may not be looked at, pathlib has
        if os.path.exists(above / ".git"):
            return str(above)
        if any(os.path.isfile(above / name) for name in (*registry.names(), *_OF_PYTHON, *_OF_REPOSITORIES)):
            highest, built = above, True
        elif not built and any(os.path.isfile(above / name) for name in _ENVIRONMENTS):
            highest = above
    if highest is None:
        return None
    included = [above for above in own if above in _included_by(highest)] if built else []
    return str(included[-1] if included else highest)


def _included_by(folder: Path) -> list[Path]:
    """Return the folders above this one from which its Makefile includes files, as `include ../../common.mk`."""
    file = next(
        (
            folder / name
            for name in filter(makefiles.is_makefile, registry.names())
            if os.path.isfile(folder / name)
        ),
        None,
    )
    try:
        text = regular_files.head(file, QUOTED).decode("utf-8", "replace") if file else ""
    except (OSError, ValueError):
        return []
    ups = (match.count("..") for match in _INCLUDES.findall(text))
    return [folder.parents[up - 1] for up in ups if up <= len(folder.parents)]
