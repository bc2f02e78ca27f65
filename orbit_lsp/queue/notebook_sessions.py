"""The notebook kernels of this user that run now. Each has a description, which counts while the kernel's process
holds its lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from orbit_lsp.queue import owners
from orbit_lsp.queue.owners import Owner
from orbit_lsp.state.user_folders import state_folder
from orbit_remote.common import codec, limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass

_END_S = 20.0
_LOOK_S = 0.05

State = Literal["not started", "queued", "starting", "ready", "busy", "idle", "ended"]


@dataclass(frozen=True, slots=True)
class Running:
    """`place` is where cells run, `folder` the notebook's; times are on the wall clock. `state`: `not started` until a cell asks
    for it, `queued` while it waits for a GPU, `ready` until its first cell, `ended` while its front end is still there.
    """

    id: str
    place: str
    folder: str
    began: float
    last_cell: float
    cells: int
    busy: bool
    state: State

    @property
    def pid(self) -> int:
        return int(self.id.partition("-")[0])

    def state_text(self, now: float) -> str:
        """Return the state, with the time since its last cell if it is idle."""
        return (
            f"idle for {max(0.0, now - self.last_cell) / 60:.0f} min" if self.state == "idle" else self.state
        )


class Registered:
    """This process's entry among the notebook kernels, until `close` or its end. Raises OSError."""

    def __init__(self, place: str, folder: Path) -> None:
        self._owner = Owner(_folder())
        self._place, self._folder, self._began = place, str(folder), time.time()
        self._described: tuple[Any, ...] = ()
        self.describe(self._began, 0, "starting")

    @property
    def id(self) -> str:
        return self._owner.id

    def move(self, folder: Path) -> None:
        """Set another folder. The next `describe` writes it."""
        self._folder, self._described = str(folder), ()

    def describe(self, last_cell: float, cells: int, state: State) -> None:
        """Write the description if it has changed."""
        if self._described == (cells, state):
            return
        self._described = (cells, state)
        busy = state == "busy"
        about = Running(self._owner.id, self._place, self._folder, self._began, last_cell, cells, busy, state)
        with contextlib.suppress(OSError):
            regular_files.replace(_about(self._owner.id), json.dumps(asdict(about)).encode())

    def close(self) -> None:
        with contextlib.suppress(OSError):
            _about(self._owner.id).unlink()
        self._owner.close()


def running() -> list[Running]:
    """Return the kernels that run, the oldest first."""
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = [path.name for path in _folder().iterdir()]
    kernels = [_read(name) for name in names if owners.is_owner(name) and owners.alive(_folder(), name)]
    return sorted((kernel for kernel in kernels if kernel), key=lambda kernel: kernel.began)


def is_running(name: str) -> bool:
    """Say whether the process of this id still runs."""
    return owners.alive(_folder(), name)


def end(kernel: Running) -> bool:
    """Ask a kernel's process to end, and wait for that. Return False if it does not end."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(kernel.pid, signal.SIGTERM)
    until = time.monotonic() + _END_S
    while owners.alive(_folder(), kernel.id):
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_S)
    return True


def _folder() -> Path:
    return state_folder() / "notebooks"


def _about(name: str) -> Path:
    return _folder() / f"{name}.json"


def _read(name: str) -> Running | None:
    """Read a description. Return None for a file that somebody else has written."""
    with contextlib.suppress(OSError, ValueError):
        about = codec.build(Running, codec.read_json(regular_files.read(_about(name), limits.STATE)))
        return about if about.id == name else None
    return None
