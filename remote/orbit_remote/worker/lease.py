"""Lets one measuring job at a time use each GPU, over all workers, Pythons and users of this machine.

The lease is a file lock named by the GPU's UUID, which the kernel releases when its holder dies. A waiting job has a
ticket, a file whose name has its time of arrival: first come, first served, with clicks before batches. The owner of
a ticket locks it, so a ticket that can be locked belongs to a process that has died. All of it lies in a folder to
which every user may write. A job's name is in the user's own runtime folder, because it is nobody else's business.

Where there are no file locks (Windows), it is one job at a time of this worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import stat
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from orbit_remote.common import limits, regular_files
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.process import file_lock, runtime_folder

EVERYBODYS = Path("/tmp/orbit-lsp-gpu")  # noqa: S108 - shared on purpose; what is in it decides who waits, and nothing else
_LOOK_S = 0.05
"""From one look at the tickets to the next: other processes say nothing when they give a GPU back."""
_MOST_NAMES = 1_000
"""Files in the shared folder, far more than there are jobs. Each is looked at, again and again."""
_MOST_JOINS = 30
"""How often a job joins the queue again whose ticket somebody has removed, who may do so: the owner of the folder."""
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class _Ticket:
    """A ticket. `rank` is 0 for a click, 1 for a batch. `since` is in ns of a clock that nobody sets."""

    rank: int
    since: int
    owner: str

    @property
    def order(self) -> tuple[int, int, str]:
        return self.rank, self.since, self.owner


def _nothing() -> None:
    pass


class Leases:
    """The leases of one worker. `fallback` is a folder of the worker's own, for a machine whose shared folder cannot
    be used.
    """

    def __init__(self, fallback: Path) -> None:
        self._fallback = fallback
        self._given_back = asyncio.Event()
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def hold(
        self,
        gpu: str,
        what: str,
        *,
        batch: bool,
        waits: Callable[[str], None],
        lost: Callable[[], None] = _nothing,
    ) -> AsyncGenerator[None]:
        """Hold the GPU `gpu` (its UUID) for `what` alone, as in *softmax.cu in Neovim*. `waits` is called with the
        holder that is waited for, each time that it changes. `lost` is called at the end, if the lock was taken away
        meanwhile.
        """
        if sys.platform != "linux":
            lock = self._locks.setdefault(gpu, asyncio.Lock())
            if lock.locked():
                waits("another run")
            async with lock:
                yield
            return
        queue = _Queue(EVERYBODYS, re.sub(r"[^\w-]", "_", gpu))
        if not (_is_shared(EVERYBODYS) and queue.works()):
            self._fallback.mkdir(parents=True, exist_ok=True)
            queue = _Queue(self._fallback, queue.gpu)
        async with self._turn(queue, what, batch=batch, waits=waits) as place:
            yield
            if not place.has_lock():
                lost()

    @asynccontextmanager
    async def _turn(
        self, queue: _Queue, what: str, *, batch: bool, waits: Callable[[str], None]
    ) -> AsyncGenerator[_Place]:
        """Raises OSError where the ticket is removed again and again."""
        reason = ""
        place, joins = queue.join(what, batch=batch), 1
        try:
            while not place.begin():
                if place.removed():
                    place.leave()
                    joins += 1
                    if joins > _MOST_JOINS and queue.folder != self._fallback:
                        self._fallback.mkdir(parents=True, exist_ok=True)
                        queue = _Queue(self._fallback, queue.gpu)
                    place = queue.join(what, batch=batch, since=place.since)
                    continue
                if (other := place.ahead()) != reason:
                    reason = other
                    waits(other)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._given_back.wait()
            yield place
        finally:
            place.leave()
            self._given_back.set()  # waiting jobs of this worker look at once
            self._given_back = asyncio.Event()


class _Queue:
    """The tickets and the lock of one GPU."""

    def __init__(self, folder: Path, gpu: str) -> None:
        self.folder = folder
        self.gpu = gpu
        self.lock = folder / f"{gpu}.lock"

    def works(self) -> bool:
        """Say whether no user has put something else in the lock's place, or more files than there can be jobs."""
        with contextlib.suppress(OSError):
            os.close(file_lock.opened(self.lock, mode=0o644))
            return len(self._names()) < _MOST_NAMES
        return False

    def _names(self) -> list[str]:
        """Return the names of the files in the folder. If somebody floods it, return only some."""
        with os.scandir(self.folder) as entries:
            return [entry.name for entry in itertools.islice(entries, _MOST_NAMES)]

    def join(self, what: str, *, batch: bool, since: int | None = None) -> _Place:
        """Join the queue. `since` is when it came, if it was in the queue before. The ticket may be gone at once."""
        owner = f"{os.getpid()}-{next(_numbers)}"
        ticket = _Ticket(int(batch), since or time.clock_gettime_ns(time.CLOCK_BOOTTIME), owner)
        # a name that nobody else can have taken
        path = self.folder / f".{self.gpu}.{owner}.{os.urandom(8).hex()}"
        descriptor = file_lock.opened(path, mode=0o644)
        file_lock.taken(descriptor)
        place = _Place(self, ticket, descriptor)
        with contextlib.suppress(FileNotFoundError):  # removed already: `begin` sees it
            path.rename(place.path)
        with contextlib.suppress(OSError, runtime_folder.RefusedError):  # then it has no name for others
            regular_files.replace(_words(owner), what.encode("utf-8", "replace"))
        return place

    def path(self, ticket: _Ticket) -> Path:
        return self.folder / f"{self.gpu}.{ticket.rank}.{ticket.since:020d}.{ticket.owner}"

    def waiting(self) -> list[_Ticket]:
        """Return the tickets of processes that live, in their order."""
        tickets = [
            ticket
            for name in self._names()
            if name.startswith(f"{self.gpu}.")
            and (ticket := _parsed(name.removeprefix(f"{self.gpu}.")))
            and _lives(self.folder / name)
        ]
        return sorted(tickets, key=lambda ticket: ticket.order)

    def held(self) -> list[Path]:
        return [self.folder / name for name in self._names() if name.startswith(f"{self.gpu}.held.")]

    def holder(self) -> str:
        """Return the holder in words, or "" if the GPU is free."""
        for path in self.held():
            if _lives(path):
                return _name(path, path.name.rpartition(".")[2])
        return ""


class _Place:
    """A ticket in a queue, and then the lock."""

    def __init__(self, queue: _Queue, ticket: _Ticket, descriptor: int) -> None:
        self._queue = queue
        self._ticket = ticket
        self._descriptors = [descriptor]
        self.path = queue.path(ticket)
        self.since = ticket.since

    def removed(self) -> bool:
        """Say whether somebody has taken this ticket away."""
        return not file_lock.is_at(self._descriptors[0], self.path)

    def has_lock(self) -> bool:
        """Say whether nobody else can have taken the lock: it is still the file with that name."""
        return file_lock.is_at(self._descriptors[-1], self._queue.lock)

    def begin(self) -> bool:
        """Return whether it is this job's turn, and it has the lock now."""
        if self.removed() or next(iter(self._queue.waiting()), self._ticket) != self._ticket:
            return False
        descriptor = file_lock.taken_at(self._queue.lock, mode=0o644)
        if descriptor is None:
            return False
        self._descriptors.append(descriptor)
        for dead in self._queue.held():
            _forget(dead)
        held = self._queue.folder / f"{self._queue.gpu}.held.{self._ticket.owner}"
        try:
            self.path.rename(held)
        except FileNotFoundError:
            os.close(self._descriptors.pop())
            return False
        self.path = held
        return True

    def ahead(self) -> str:
        """Return who has the GPU, or comes before this one."""
        if holder := self._queue.holder():
            return holder
        first = next(iter(self._queue.waiting()), None)
        if first is None or first == self._ticket:
            return "another job"
        return _name(self._queue.path(first), first.owner)

    def leave(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()
        with contextlib.suppress(OSError, runtime_folder.RefusedError):
            _words(self._ticket.owner).unlink()
        for descriptor in self._descriptors:
            os.close(descriptor)


def _parsed(name: str) -> _Ticket | None:
    match = re.fullmatch(r"([01])\.(\d{20})\.([\d-]+)", name)
    return _Ticket(int(match[1]), int(match[2]), match[3]) if match else None


def _lives(path: Path) -> bool:
    """Say whether the owner of a ticket lives. A dead owner's ticket is removed."""
    try:
        descriptor = file_lock.opened_if_there(path)
    except OSError:
        return False
    try:
        if not file_lock.taken(descriptor):
            return True
        _forget(path)
        return False
    finally:
        os.close(descriptor)


def _forget(path: Path) -> None:
    """Remove the ticket of a process that has died."""
    with contextlib.suppress(OSError):  # a ticket of another user is passed over anyway
        path.unlink()
    with contextlib.suppress(OSError, runtime_folder.RefusedError):
        _words(path.name.rpartition(".")[2]).unlink()


def _words(owner: str) -> Path:
    return runtime_folder.folder() / f"gpu-{owner}"


def _name(path: Path, owner: str) -> str:
    """Return the name of somebody's job. For another user's job, only say that it is one."""
    with contextlib.suppress(OSError, runtime_folder.RefusedError):
        return regular_files.text(_words(owner), limits.STATE)
    with contextlib.suppress(OSError):
        if (uid := path.lstat().st_uid) != os.getuid():
            return f"a job of another user (uid {uid})"
    return "another job"


def _is_shared(folder: Path) -> bool:
    """Say whether every user may put tickets into the folder, and only their owners may remove them. The folder is
    made if it is missing.
    """
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            folder.chmod(0o1777)
        status = folder.lstat()
        return (
            stat.S_ISDIR(status.st_mode)
            and stat.S_IMODE(status.st_mode) == 0o1777
            and os.access(folder, os.W_OK)
        )
    return False
