"""Prepares the two sides of a judge and its own CUDA context before any job is known. They may wait for one.

What waits has run no code of others, holds nothing of a job, and has no memory that another process was given. It is used for one job.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import shutil
import signal
import time
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

from orbit_remote.child.harness import kernelbench
from orbit_remote.common import content_store, regular_files
from orbit_remote.common.contracts import harness_files
from orbit_remote.common.requests import Job
from orbit_remote.judge import beside, channel, families, locks, memory, side
from orbit_remote.judge.party import Party, SideFailedError
from orbit_remote.judge.stopwatch import Stopwatch
from orbit_remote.process import process_groups

_BEGINS_S: Final = 120.0
"""Long for a side to begin: two CUDA contexts are opened at once."""
_ROOM: Final = 8 << 30
"""Bytes of a GPU that are free beside what waits: who runs meanwhile may need them."""
_BUILT: Final = "built"
_FEW: Final = (64, 4096)
"""A matrix for which torch chooses the same kernels as for large ones."""


class PreparedSides:
    """The sides of one judge. `folder` is theirs alone."""

    def __init__(self, folder: Path, cache: Path, device: str, index: int, *, waits: bool = False) -> None:
        self.folder = folder
        self.index = index
        self._cache = cache
        self.device = device
        self._waits = waits
        self._parties: list[Party] = []
        self.watch = Stopwatch()
        self.torch: Any = __import__("torch")
        self.memory: Any = None
        self.files: dict[str, str] = {}
        """Digests of the files beside the reference that its side can read, by path."""
        self.built: dict[str, str] = {}
        """Digests of what was built of the candidate's text before, by path."""

    @classmethod
    def waiting(cls, folder: Path, cache: Path, device: str, index: int) -> Self:
        """Return sides that wait on the GPU `index`, with their places in a folder that exists. Raises what torch and the
        driver raise.
        """
        own = folder / "waiting"
        own.mkdir()
        sides = cls(own, cache, device, index, waits=True)
        try:
            sides.begin()
            sides.open_contexts()
        except BaseException:
            sides.end()
            raise
        sides.watch = Stopwatch()  # of a job's time this is none
        return sides

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End both at once: the driver needs 0.15 s to take a context down (H100). The process of a judge that has waited ends next,
        at the same time as they do; whoever forked it waits for all of them.
        """
        for party in self._parties:
            party.channel.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(party.pid, signal.SIGKILL)
        for party in self._parties if not self._waits else ():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(party.pid, 0)

    @property
    def candidate(self) -> Party:
        return self._parties[0]

    @property
    def reference(self) -> Party:
        return self._parties[1]

    def begin(self) -> None:
        """Fork the sides. CUDA must not have begun in this process."""
        during = self.watch.during
        self.folder.chmod(0o711)
        with during("probe"):
            first = self.device == "cpu" or _begins_confined(self.folder)
        with during("processes"):
            roles: tuple[tuple[side.Role, str], ...] = (("candidate", "ModelNew"), ("reference", "Model"))
            for role, name in roles:
                own = self.folder / role
                own.mkdir()
                if role == "candidate" and self._waits and self._triton.is_dir():
                    shutil.copytree(self._triton, own / side.TRITON)
                orders = side.Orders(
                    own, self._cache, self.device, self.index, role, first, waits=self._waits
                )
                self._parties.append(_begun(orders, name, self.torch))

    def open_contexts(self) -> None:
        """Open this process's context, and wait for theirs. Raises OSError if the judge's means are not there, or if a GPU
        beside what waits has too little memory for others.
        """
        during = self.watch.during
        with during("CUDA context"):
            self.memory = memory.of(self.torch, self.device, self.index)
        if self._waits and isinstance(self.memory, memory.CudaMemory):
            self._rehearse()  # while the sides do what is theirs
        with during("processes"):
            for party in self._parties:
                party.ends = time.monotonic() + _BEGINS_S
                try:
                    party.ask({"do": "prepare"})
                except SideFailedError as error:
                    raise OSError(str(error)) from None
        if self._waits:
            if self.memory.free() < _ROOM:
                raise OSError("the GPU has no memory to spare for a judge that waits")
            self._keep_triton()

    @property
    def _triton(self) -> Path:
        return self._cache / "judge-triton"

    def _keep_triton(self) -> None:
        """Keep what Triton has built of its own in the side that waits, for the sides after it: no code of others has run in it.
        Triton finds it by a digest of its source.
        """
        with contextlib.suppress(OSError):
            self._triton.mkdir(parents=True, exist_ok=True)
            for built in (self.folder / "candidate" / side.TRITON).iterdir():
                if not (self._triton / built.name).exists():
                    with content_store.temporary("new-", self._cache) as folder:
                        shutil.copytree(built, folder / built.name)
                        (folder / built.name).rename(self._triton / built.name)

    def _rehearse(self) -> None:
        """Do what the judge does in the first calls of any job, because CUDA loads each kernel when it is first launched."""
        torch, own = self.torch, self.memory
        data = torch.zeros(1 << 12, device="cuda").view(torch.uint8)
        own.flush()
        taken = torch.index_select(data, 0, torch.randint(len(data), (64,), device="cuda")).cpu()
        copy = data.clone().fill_(int(taken[0]))
        kernelbench.compared(torch, "output", copy.view(torch.float32), data.view(torch.float32))
        families.rehearse(torch, torch.rand(_FEW, device="cuda"))
        own.wait()

    def give(self, job: Job, reference: tuple[str, str], environment: dict[str, str]) -> None:
        """Tell each side its job, and put what it may read of it into its folder. Raises OSError, SideFailedError."""
        with self.watch.during("processes"):
            processes = locks.most_processes()
            for party, role in zip(self._parties, ("candidate", "reference"), strict=True):
                own, seen = self.folder / role, dict(environment)
                copied = beside.bring(Path(reference[0]), reference[1], {Path(job.path).name}, own)
                if copied:
                    (own / Path(reference[0]).name).write_text(reference[1], encoding="utf-8")
                if party.reference:
                    self.files = _digests(own, copied)
                built = seen.pop(harness_files.EXTENSIONS, "")
                if built and not party.reference:
                    shutil.copytree(built, own / _BUILT, symlinks=True)
                    libraries = [
                        path
                        for path in (own / _BUILT).rglob("*.so")
                        if path.is_file() and not path.is_symlink()
                    ]
                    self.built = _digests(
                        own / _BUILT, [path.relative_to(own / _BUILT).as_posix() for path in libraries]
                    )
                    seen[harness_files.EXTENSIONS] = str(own / _BUILT)
                _give_away(own)
                task = side.written(side.SideTask(job, reference, bool(copied), seen, processes))
                try:
                    party.ask({"do": "begin"}, (task,))
                finally:
                    os.close(task)


def _digests(folder: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: regular_files.file_hash(folder / name, sha256()) or "" for name in sorted(names)}


def _give_away(folder: Path) -> None:
    """Give what was put into a folder to the folder's owner."""
    owner = folder.stat()
    if owner.st_uid != os.getuid():
        for path in folder.rglob("*"):
            os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _begins_confined(folder: Path) -> bool:
    """Say whether CUDA begins in a process that Landlock confines, as the user that a side will be. One that ends tries it."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            folder = folder / "probe"
            (folder / "mps").mkdir(parents=True)
            os.environ |= {
                "CUDA_MPS_PIPE_DIRECTORY": str(folder / "mps"),
                "CUDA_MPS_LOG_DIRECTORY": str(folder / "mps"),
            }
            locks.become_nobody(locks.Locks(), folder)
            locks.confine(locks.Locks(), locks.readable(), [str(folder)])
            status = min(1, ctypes.CDLL("libcuda.so.1").cuInit(0))
        finally:
            os._exit(status)
    _, ended = os.waitpid(pid, 0)
    return ended == 0


def _begun(orders: side.Orders, name: str, torch: Any) -> Party:
    """Fork a side. The flags of one are in no other's memory but a later one's, which is the reference's."""
    ours, theirs = channel.pair()
    page = mmap.mmap(-1, mmap.PAGESIZE)
    judge_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        _close_all_but(theirs.fileno())
        process_groups.die_with_parent()
        if os.getppid() != judge_pid:
            os._exit(1)
        side.run(orders, channel.Channel(theirs), page, torch)
    theirs.close()
    return Party(name, channel.Channel(ours), page, pid)


def _close_all_but(descriptor: int) -> None:
    """Close all that this process had open but its streams: each pipe, file and other side's channel."""
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, min(1 << 20, os.sysconf("SC_OPEN_MAX")))
