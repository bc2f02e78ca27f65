"""The environment of the client that a job is for. A worker that serves several clients uses none of its own.

Each client's tasks, and the threads they start, see that client's variables here. Elsewhere, and in a worker that
serves one client over pipes, it is the process's own environment.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextvars import ContextVar

NOTEBOOK_CACHE = "ORBIT_NOTEBOOK_CACHE"
"""The variable that names to a notebook's kernel the folder of the launch recorder's builds."""
NOTEBOOK_CELLS = "ORBIT_NOTEBOOK_CELLS"
"""The variable that names to a notebook's kernel of `%orbit locate` the file for the texts of its cells."""
_variables: ContextVar[Mapping[str, str] | None] = ContextVar("client environment", default=None)


def use(variables: Mapping[str, str]) -> None:
    """Use these variables in this task, and in those that it creates."""
    _variables.set(variables)


def current() -> Mapping[str, str]:
    known = _variables.get()
    return os.environ if known is None else known


def which(program: str) -> str | None:
    """Return `shutil.which` with the client's PATH."""
    known = _variables.get()
    return shutil.which(program, path=None if known is None else known.get("PATH", os.defpath))
