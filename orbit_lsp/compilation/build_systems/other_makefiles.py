"""Finds Makefiles with names that make does not look for, and the scripts that make a Makefile from a template."""

from __future__ import annotations

import os
import re
from itertools import islice
from pathlib import Path

from orbit_remote.common import regular_files
from orbit_remote.common.limits import QUOTED

_OTHER_MAKEFILE = re.compile(
    r"(?:GNU)?[Mm]akefile[._-](?!py$|md$|am$|in$|bak$|old$|orig$|win)[\w.-]{1,60}|[\w-]{1,60}[._-][Mm]akefile"
)
"""`Makefile.cuda`, and `Makefile_base`, which a script makes into a Makefile."""
_CONFIGURES = re.compile(
    r"\.?configur\w*(?:\.(?:py|sh|pl))?|(?:config|setup|arch|autogen|bootstrap)(?:\.(?:py|sh|pl))?",
    re.IGNORECASE,
)
_MOST_ENTRIES = 10_000


def is_other_makefile(name: str) -> bool:
    """Return whether a file is a Makefile that make does not find by itself."""
    return bool(_OTHER_MAKEFILE.fullmatch(name))


def other_makefile(folder: Path) -> str:
    """Return the first Makefile of a folder with another name that calls nvcc, "" for none. Reads files."""
    for name in filter(is_other_makefile, _names(folder)):
        if re.search(r"nvcc|cuda", _text(folder / name), re.IGNORECASE):
            return str(folder / name)
    return ""


def configurer(template: str) -> str:
    """Return the script that makes a Makefile from this template: it lies beside the template and names it. Return ""
    for none. Reads files.
    """
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
