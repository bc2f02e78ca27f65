"""Builds a candidate's extensions, C++ and CUDA in its strings, before it has the GPU: its module is imported in a locked process
that sees no GPU. What `torch.utils.cpp_extension.load_inline` leaves in a folder, the run takes from there.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import NoReturn

from orbit_remote.child.user_module import UserFile
from orbit_remote.common import harness_files, limits, regular_files
from orbit_remote.common import messages as c
from orbit_remote.judge import locks
from orbit_remote.process import process_groups


def main(arguments: list[str]) -> int:
    """Prints the report of a candidate that does not compile, as JSON, and else nothing. Exits with 0 if it was imported."""
    parser = argparse.ArgumentParser(prog="orbit_remote extensions")
    parser.add_argument("path", help="the candidate's file")
    parser.add_argument("folder", type=Path, help="where its extensions are built")
    options = parser.parse_args(arguments)
    process_groups.die_with_parent()
    process_groups.reap_orphans()
    pid = os.fork()
    if pid == 0:
        process_groups.die_with_parent()
        _import(options.path, options.folder)
    _, ended = os.waitpid(pid, 0)
    process_groups.end_strays(lambda _pid, _session: False)  # what it has started
    return int(ended != 0)


def _import(path: str, folder: Path) -> NoReturn:
    """In a process of its own."""
    text = regular_files.text(path, limits.SOURCE)
    job = c.Job("ahead", "run", "triton", path, text, through="contract")
    report = os.dup(1)
    with open(os.devnull, "wb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    finished = build(job, folder)
    if finished.outcome == "compile error":
        os.write(report, c.encode(finished).encode("utf-8", "surrogatepass"))
    os._exit(finished.outcome != "ok")  # what the candidate has registered for an exit is not carried out


def build(job: c.Job, folder: Path) -> c.Finished:
    """Import the candidate, locked from here on. A failure other than one to compile may come of the GPU that is missing here."""
    import torch.utils.cpp_extension  # noqa: F401  # pyright: ignore[reportUnusedImport] - before the locks

    from orbit_remote.child.harness import harness_job
    from orbit_remote.recording import recorder

    own = locks.Locks()
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    names = {
        "CUDA_VISIBLE_DEVICES": "", harness_files.EXTENSIONS: str(folder), "TMPDIR": str(temporary), "HOME": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"), "XDG_CACHE_HOME": str(folder / "cache"),
    }  # fmt: skip
    os.environ |= names
    tempfile.tempdir = None
    locks.limit(own)
    if locks.is_open_to_all(folder):
        locks.become_nobody(own, folder)
    reads = [*locks.readable(), str(Path(job.path).parent)]
    locks.confine(own, reads, [str(folder)], gpus=False)
    locks.refuse_calls(own)
    file = UserFile(job.path, job.text, str(folder), (), job.roots)
    try:
        file.prepare()
        file.execute(file.module_name())
    except BaseException as error:  # noqa: BLE001 - whatever the code raises
        return harness_job.failed_call(job, error, recorder.Nothing(), c.Place(job.path, 1))
    return c.ok(job.run)
