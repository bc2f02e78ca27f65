"""Notebook kernels of an author's program. Each session has a process, with which the author's side exchanges signed
pieces.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from orbit_remote import MAIN
from orbit_remote.common import content_store
from orbit_remote.modal_app import kernel_host
from orbit_remote.modal_app.kernel_host import RESTART_S, HostProcess
from orbit_remote.process import file_lock
from orbit_remote.process.records import Records
from orbit_remote.ssh_host import trees

ROLE = "notebook"
_AT_A_TIME = 64
_WAIT_S = 3600.0


class Notebook:
    """One session in the proxy. `say` gets records of its process, as bytes."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._over = False

    def put(self, pieces: str) -> None:
        """Raises ValueError."""
        self._pieces.put_nowait(b64decode(pieces))

    async def keep(
        self, home: Path, python: str, asked: Mapping[str, Any], variables: Mapping[str, str]
    ) -> None:
        """Run the session until it is over; a cancellation ends it. Raises OSError."""
        words = [ROLE, "--home", str(home), "--python", python, "--root", str(asked["root"])]
        process = await HostProcess.start([sys.executable, "-P", str(MAIN), *words], variables)
        passing = asyncio.create_task(self._pass_on(process))
        try:
            await process.open({name: str(asked[name]) for name in ("root", "name", "secret")})
            while not self._over:
                self._tell(await process.take(_WAIT_S))
        finally:
            passing.cancel()
            await asyncio.shield(process.close())
            while not self._over:
                self._tell(await process.take(0))

    def _tell(self, records: bytes) -> None:
        self._over = any(name == "over" for name, _ in Records().feed(records))
        self._say(b64encode(records).decode())

    async def _pass_on(self, process: HostProcess) -> None:
        while True:
            await process.put(await self._pieces.get())


def main(arguments: list[str]) -> int:
    """Run the process of a session, in a folder that nobody else has meanwhile. A kernel that is started again finds
    its files there.
    """
    parser = argparse.ArgumentParser(prog="orbit_remote notebook")
    parser.add_argument("--home", type=Path, required=True, help="the folder of all that is kept here")
    parser.add_argument("--python", required=True, help="what runs the cells")
    parser.add_argument("--root", required=True, help="the name of the notebook's folder, without a meaning")
    options = parser.parse_args(arguments)
    if not options.root.isalnum():
        raise ValueError("the name of a notebook's folder has letters and digits alone")
    folder = options.home / "notebooks"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in range(_AT_A_TIME):
        home = folder / f"{options.root}-{number}"
        lock = file_lock.taken_at(home.with_suffix(".lock"))
        if lock is not None:
            os.utime(lock)
            contents = trees.contents(options.home)
            cache = options.home / "cache" / "cupti"
            kernel_host.serve(home, options.python, cache, contents=contents, stays=False)
            os.utime(lock)
            return 0
    raise OSError(None, f"{_AT_A_TIME} notebooks of this folder run already")


def sweep(home: Path) -> None:
    """Remove the files of kernels that were not started again, or whose process was killed."""
    with suppress(OSError):
        for path in (home / "notebooks").glob("*.lock"):
            if time.time() - path.stat().st_mtime > RESTART_S and (lock := file_lock.taken_at(path)):
                content_store.remove(path.with_suffix(""))
                path.unlink()
                os.close(lock)
