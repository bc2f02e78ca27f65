"""Builds a candidate's extensions (C++ and CUDA in its strings) before it has the GPU. Its module is imported in a
locked process that sees no GPU. The build is copied for the run to load (`child/harness/built_extensions.py`).
"""

from __future__ import annotations

import argparse
import importlib
import os
import select
import sys
import tempfile
from pathlib import Path
from typing import Final, NoReturn

from orbit_remote.child.harness import built_extensions
from orbit_remote.child.user_module import UserFile
from orbit_remote.common import limits, regular_files
from orbit_remote.judge import locks
from orbit_remote.process import disk_space, process_groups

BUILT: Final = "built"
_LOOK_S: Final = 0.25
_NICE: Final = 10
"""What is measured meanwhile goes first."""


def main(arguments: list[str]) -> int:
    """Import the module, and return once that is done, or standard input has ended. Then no process that it started
    is left.
    """
    parser = argparse.ArgumentParser(prog="orbit_remote extensions")
    parser.add_argument("path", help="the candidate's file, in `folder`")
    parser.add_argument(
        "folder", type=Path, help="the only folder that is written to; libraries come to `built` in it"
    )
    options = parser.parse_args(arguments)
    process_groups.reap_orphans()
    pid = os.fork()
    if pid == 0:
        _import(options.path, options.folder)
    child = os.pidfd_open(pid)
    room = disk_space.Room(options.folder, [])
    while not select.select([child, sys.stdin], [], [], _LOOK_S)[0]:
        if room.failure(lambda: process_groups.written(pid)):
            break  # the run builds again, and says what is wrong
    process_groups.end_strays(lambda _pid, _session: False)
    return 0


def _import(path: str, folder: Path) -> NoReturn:
    """Import in a separate process, whose exit status means nothing."""
    try:
        os.setsid()
        os.nice(_NICE)
        os.dup2(2, 1)
        text = regular_files.text(path, limits.SOURCE)
        importlib.import_module("torch.utils.cpp_extension")  # before the locks
        if _locked(folder):
            built_extensions.install(folder / BUILT, store=True)
            file = UserFile(path, text, str(folder), (), ())
            file.prepare()
            file.execute(file.module_name())
    finally:
        os._exit(0)


def _locked(folder: Path) -> bool:
    """Lock this process; False where a lock is missing without which the code of others is not run here."""
    own = locks.Locks()
    for name in ("tmp", BUILT, "torch"):
        (folder / name).mkdir()
    os.environ |= {
        "CUDA_VISIBLE_DEVICES": "", "HOME": str(folder), "TMPDIR": str(folder / "tmp"), "TORCH_EXTENSIONS_DIR": str(folder / "torch"),
        "TRITON_CACHE_DIR": str(folder / "tmp"), "XDG_CACHE_HOME": str(folder / "tmp"),
    }  # fmt: skip
    tempfile.tempdir = None
    os.chdir(folder)
    locks.limit(own)
    locks.become_nobody(own, folder)
    process_groups.die_with_parent()  # which a change of the user has undone
    locks.confine(own, locks.readable(), [str(folder)], gpus=False)
    locks.refuse_calls(own)
    return not any(text.startswith(locks.NEEDED) for text in own.missing)
