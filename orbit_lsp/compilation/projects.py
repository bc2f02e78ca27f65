"""How far a project reaches above one of its folders"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path

from orbit_remote.common import regular_files
from orbit_remote.common.limits import QUOTED

BUILD_FILES = (
    "setup.py",
    "CMakeLists.txt",
    "GNUmakefile",  # as make prefers them
    "makefile",
    "Makefile",
    "meson.build",
    "BUILD",
    "BUILD.bazel",
    "Makefile.am",
    "Makefile.in",
)
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile", "Makefile.am")
_INCLUDES = re.compile(r"^[ \t]*-?include[ \t]+((?:\.\./){1,16})", re.MULTILINE)
_OTHER_MAKEFILE = re.compile(
    r"(?:GNU)?[Mm]akefile[._-](?!py$|md$|am$|in$|bak$|old$|orig$|win)[\w.-]{1,60}|[\w-]{1,60}[._-][Mm]akefile"
)
"""`Makefile.cuda`, and `Makefile_base`, which a script makes into a Makefile."""
_CONFIGURES = re.compile(
    r"\.?configur\w*(?:\.(?:py|sh|pl))?|(?:config|setup|arch|autogen|bootstrap)(?:\.(?:py|sh|pl))?",
    re.IGNORECASE,
)
_MOST_ENTRIES = 10_000
_OF_PYTHON = ("pyproject.toml", "setup.cfg")
_ENVIRONMENTS = ("environment.yml", ".venv/pyvenv.cfg", "venv/pyvenv.cfg")


def folders_above(path: str, root: str) -> Iterator[Path]:
    """The folders that hold a file, its own first, up to `root`. Ends at `/` and at `.` too, which are their own parents."""
    return takewhile(lambda folder: folder.is_relative_to(root), Path(path).parents)


def is_other_makefile(name: str) -> bool:
    """Whether a file is a Makefile that make does not find by itself."""
    return bool(_OTHER_MAKEFILE.fullmatch(name))


def other_makefile(folder: Path) -> str:
    """The first Makefile of a folder by another name that calls nvcc, "" for none. Reads files."""
    for name in filter(is_other_makefile, _names(folder)):
        if re.search(r"nvcc|cuda", _text(folder / name), re.IGNORECASE):
            return str(folder / name)
    return ""


def configurer(template: str) -> str:
    """The script that makes a Makefile of this one, which lies beside it and names it; "" for none. Reads files."""
    folder, name = os.path.split(template)
    for script in filter(_CONFIGURES.fullmatch, _names(Path(folder))):
        if name in _text(Path(folder, script)):
            return os.path.join(folder, script)
    return ""


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(each.name for each in islice(entries, _MOST_ENTRIES))
    except OSError:
        return []


def _text(file: Path) -> str:
    try:
        return regular_files.head(file, QUOTED).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def project_of(folder: str) -> str:
    """The repository of a folder, else the highest folder above it that has a build file, else the highest with an environment,
    else the folder. A Makefile reaches as far as the files that it includes. An environment above a build file may be of many
    projects, each a stranger to the others. Reads one file.
    """
    highest, built = Path(folder), False
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
        if any(os.path.isfile(above / name) for name in (*BUILD_FILES, *_OF_PYTHON)):
            highest, built = above, True
        elif not built and any(os.path.isfile(above / name) for name in _ENVIRONMENTS):
            highest = above
    included = [above for above in own if above in _included_by(highest)] if built else []
    return str(included[-1] if included else highest)


def _included_by(folder: Path) -> list[Path]:
    """The folders above this one that its Makefile includes files of, as `include ../../common.mk`."""
    file = next((folder / name for name in _MAKEFILES if os.path.isfile(folder / name)), None)
    try:
        text = regular_files.head(file, QUOTED).decode("utf-8", "replace") if file else ""
    except (OSError, ValueError):
        return []
    ups = (match.count("..") for match in _INCLUDES.findall(text))
    return [folder.parents[up - 1] for up in ups if up <= len(folder.parents)]
