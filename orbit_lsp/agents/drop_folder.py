"""`orbit-lsp watch`: a folder that kernels are dropped into, and a folder in which results appear.

A file is taken by renaming it into a folder of the watcher's own, so only one of two watchers gets it. A result is
renamed into its place, so no reader finds half of it. If a watcher was killed, the next one answers its files. A
result says whose it is, and replaces no other file's.

While jobs cannot be recorded, files stay where they were dropped. A result that cannot be written is written later.

The dropped files are not trusted, so nothing is followed out of the folder: a link that is dropped, or is found among
the taken files, is refused.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import logging
import os
import re
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from orbit_lsp import kernels
from orbit_lsp.agents import drop_request
from orbit_lsp.agents.drop_request import Header
from orbit_lsp.queue import owners
from orbit_lsp.queue.job_queue import JobQueue
from orbit_lsp.queue.job_store import StoredJob, StoreError, StoreUnusableError, interrupted
from orbit_lsp.queue.owners import Owner
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_remote.common import codec, limits, regular_files

log = logging.getLogger("orbit.watch")

TAKEN = ".orbit-taken"
_OWNERS = "owners"
_AGAIN_S = 1.0
"""After a disk was full, or a record could not be used."""
_QUIET_S = 1.0
_LONGEST = 240
"""Bytes of a name that `_result.json` is put to."""
_SUFFIXES = (".cu", ".cuh", ".py")
"""Of two files that are there and differ in nothing else, the first of these gets the short name."""
_HEAD = 4 << 10
"""Bytes of a result in which the name of its file ends."""
_WHOSE = re.compile(rb'\{\s*"file": ("(?:[^"\\]|\\.)*")')


class DropFolder:
    def __init__(
        self,
        queue: JobQueue,
        dropped: Path,
        results: Path,
        tell: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Make a folder. `tell` gets a line for each file that is taken and answered. `timeout_s` limits a run.
        Raises OSError.
        """
        self._timeout_s = timeout_s
        self._queue, self._tell, self._clock = queue, tell, clock
        # the process may go to another folder
        self._dropped, self._results = dropped, results = dropped.absolute(), results.absolute()
        results.mkdir(parents=True, exist_ok=True)
        self._places = _own_folder(dropped / TAKEN)
        self._owner = Owner(self._places / _OWNERS)
        self._mine = self._places / self._owner.id
        self._mine.mkdir()
        self._seen: dict[Path, tuple[int, int]] = {}
        self._since: dict[Path, float] = {}
        """When a file that was seen was first as it is."""
        self._quiet_s = 0.0
        """A file is complete once it has not changed for so long: in a busy folder two looks are no second apart."""
        self._work: set[asyncio.Task[None]] = set()
        self._stays = False
        """Whether the watcher goes on until it is closed, and so can wait for a disk."""
        self._told = False
        """Whether it has said that jobs cannot be recorded."""
        self.outcomes: list[str] = []
        """The outcomes of the answered files, in the order in which they ended; a file that is no request has `usage`."""

    async def close(self) -> None:
        """Cancel the jobs under way, and answer their files with that outcome."""
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        with suppress(OSError):
            self._mine.rmdir()
        self._owner.close()

    async def once(self, pause_s: float = 1.0) -> None:
        """Answer the files that are there. One that is still being written is waited for."""
        while await self.look():  # noqa: ASYNC110 - nothing says when a writer is done
            await asyncio.sleep(pause_s)
        await asyncio.gather(*self._work)

    async def follow(self, changes: AsyncIterator[Any], keep_s: float) -> None:
        """Answer files as they come. `changes` wakes it, also now and then without a change."""
        self._stays, self._quiet_s = True, _QUIET_S
        await self.look()
        async for _ in changes:
            await self.look()
            try:
                await asyncio.to_thread(self.clean, keep_s)
            except OSError as error:
                log.error("%s", error)

    async def look(self) -> bool:
        """Take the files that have stopped changing. Return True if some may still be being written."""
        if self._stays and (trouble := self._queue.store.trouble()):
            if not self._told:
                self._tell(f"files are not taken now: {trouble}")
            self._told = True
            return False
        self._told = False
        try:
            ready, waiting = await asyncio.to_thread(self._look)
        except OSError as error:  # the folder was removed, or cannot be read now
            if not self._stays:
                raise
            log.error("%s", error)
            return False
        for name in ready:
            task = asyncio.create_task(self._answer(name))
            self._work.add(task)
            task.add_done_callback(self._work.discard)
        return waiting

    def clean(self, keep_s: float) -> None:
        """Remove results that are older, and answer for watchers that were killed."""
        oldest = time.time() - keep_s
        for path in self._results.glob("*_result.json"):
            with suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()
        for folder in self._places.iterdir():
            if folder.name == self._owner.id or not owners.is_owner(folder.name):
                continue
            if _kind(folder) == stat.S_IFDIR and not owners.alive(self._places / _OWNERS, folder.name):
                self._answer_for(folder)

    def _answer_for(self, folder: Path) -> None:
        """Answer for the files that a killed watcher had taken."""
        for path in folder.iterdir():
            if _kind(path) == stat.S_IFDIR:
                continue
            mine = self._mine / path.name
            with suppress(OSError):  # another watcher was quicker
                path.rename(mine)
                self._write(path.name, drop_request.refused(interrupted("running").message, Header({})))
                mine.unlink()
        with suppress(OSError):
            folder.rmdir()

    # -- one file -----------------------------------------------------------------------------

    def _look(self) -> tuple[list[str], bool]:
        """Look at the dropped files. A file is complete when it has not changed since the last look, nor for
        `_quiet_s`.
        """
        time_now = self._clock()
        now: dict[Path, tuple[int, int]] = {}
        for path in sorted(self._dropped.iterdir()):
            with suppress(OSError):
                status = path.lstat()
                kernel = not path.name.startswith(".") and kernels.language_of(path.name)
                if kernel and not stat.S_ISDIR(status.st_mode):
                    now[path] = (status.st_size, status.st_mtime_ns)
        self._since = {
            path: self._since[path] if self._seen.get(path) == known else time_now
            for path, known in now.items()
        }
        ready = [
            path
            for path, known in now.items()
            if self._seen.get(path) == known and time_now - self._since[path] >= self._quiet_s
        ]
        self._seen = {path: known for path, known in now.items() if path not in ready}
        return [path.name for path in ready if self._take(path)], bool(self._seen)

    def _take(self, path: Path) -> bool:
        try:
            path.rename(self._mine / path.name)
        except FileNotFoundError:
            return False  # another watcher has it
        except OSError as error:
            log.error("%s cannot be taken: %s", path, error)
            return False
        return True

    async def _answer(self, name: str) -> None:
        path = self._mine / name
        header = Header({})
        outcome: str
        try:
            wanted, header = drop_request.request(name, await asyncio.to_thread(_text, path), self._timeout_s)
            job = await self._submitted(wanted)
            del wanted  # many files may wait
            self._tell(f"{name}: job {job.id}")
            try:
                job = await self._queue.wait(job.id) or job
            except asyncio.CancelledError:
                job = await self._queue.cancel(job.id) or job
            outcome = job.outcome or "cancelled"
            answer = functools.partial(drop_request.answer, self._queue.store, job, header)
            content = await self._queue.read(answer)
        except (RequestRefusedError, StoreError, OSError) as why:
            outcome = "usage" if isinstance(why, RequestRefusedError) else "infrastructure"
            text = f"{name!r:.80} cannot be read: {why.strerror}" if isinstance(why, OSError) else str(why)
            content = drop_request.refused(text, header)
        if not await self._written(name, content):
            outcome = "infrastructure"
        self.outcomes.append(outcome)
        self._tell(f"{name}: {content['message']}")

    async def _submitted(self, wanted: Request) -> StoredJob:
        """Submit the job. A watcher that stays waits until it can be recorded. Raises RequestRefusedError and
        StoreError.
        """
        while True:
            try:
                return await self._queue.submit(wanted)
            except StoreUnusableError:
                if not self._stays:
                    raise
            await asyncio.sleep(_AGAIN_S)

    async def _written(self, name: str, content: dict[str, Any]) -> bool:
        """Return whether the result is in its place. A watcher that stays tries again until it can be written."""
        said = False
        while True:
            try:
                await asyncio.to_thread(self._write, name, content)
            except OSError as error:
                if not said:
                    log.error("the result of %s cannot be written: %s", _shown(name), error)
                said = True
                if not self._stays:
                    return False
            else:
                with suppress(OSError):
                    (self._mine / name).unlink()
                return True
            await asyncio.sleep(_AGAIN_S)

    def _write(self, name: str, content: dict[str, Any]) -> None:
        """Raises OSError."""
        text = json.dumps({"file": _shown(name)} | content, ensure_ascii=False, indent=2) + "\n"
        with _locked(self._places):
            regular_files.replace(self._place(name), text.encode("utf-8", "replace"))

    def _place(self, name: str) -> Path:
        """Return the path for the result of a file: `k_result.json`, or `k.cu_result.json` if that is another file's."""
        names = self._names(name)
        if self._waits_beside(name):
            next(names)
        for path in names:
            if _kind(path) != stat.S_IFDIR and _whose(path) in (None, _shown(name)):
                return path
        raise AssertionError

    def _names(self, name: str) -> Generator[Path]:
        """Yield the names that the file's result may have, without end."""
        yield self._named(Path(name).stem, "")
        yield self._named(name, "")
        for number in itertools.count(2):
            yield self._named(name, f"-{number}")

    def _named(self, name: str, end: str) -> Path:
        start = os.fsdecode(os.fsencode(name)[: _LONGEST - len(end)])
        return self._results / f"{start}{end}_result.json"

    def _waits_beside(self, name: str) -> bool:
        """Say whether a file that has the short name before this one is there or taken, and has no result yet. It is
        looked for in this order, because it may be taken meanwhile.
        """
        file = Path(name)
        if file.suffix.lower() not in _SUFFIXES[1:]:
            return False
        before = [f"{file.stem}{other}" for other in _SUFFIXES[: _SUFFIXES.index(file.suffix.lower())]]
        taken = [folder for folder in self._places.iterdir() if owners.is_owner(folder.name)]
        folders = (self._dropped, *taken)
        return any(_kind(folder / other) not in (0, stat.S_IFDIR) for folder in folders for other in before)


def _text(path: Path) -> str:
    """Raises RequestRefusedError and OSError."""
    if _kind(path) == stat.S_IFLNK:
        raise RequestRefusedError(f"{path.name!r:.80} is a link; drop the file itself")
    return regular_files.text(path, limits.SOURCE)


def _shown(name: str) -> str:
    """Return a name as its result shows it: it is text, and no other file has it."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _whose(result: Path) -> str | None:
    """Return the name of the file that a result belongs to. Return None if nothing says so."""
    try:
        with regular_files.opened(result) as file:
            known = _WHOSE.match(regular_files.upto(file, _HEAD))
        return str(codec.read_json(known[1].decode())) if known else None
    except (OSError, ValueError):
        return None


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Lock a folder against everybody else who asks. Folders have no locks on Windows, where two watchers may use it."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a network's file system may have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _own_folder(path: Path) -> Path:
    """Make a folder that nobody else can write to, if it is missing. Raises OSError."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    why = ""
    if not stat.S_ISDIR(status.st_mode):
        why = "is a link" if stat.S_ISLNK(status.st_mode) else "is not a folder"
    elif os.name == "posix" and status.st_uid != os.getuid():
        why = f"belongs to another user (uid {status.st_uid})"
    elif os.name == "posix" and status.st_mode & 0o022:
        why = f"can be written by other users (its permissions are {stat.S_IMODE(status.st_mode):o})"
    if why:
        raise OSError(f"{path} {why}; files that are taken are kept there: remove it")
    return path


def _kind(path: Path) -> int:
    """Return what a name itself is, as in `stat.S_IFDIR`, or 0 if there is nothing."""
    try:
        return stat.S_IFMT(path.lstat().st_mode)
    except OSError:
        return 0
