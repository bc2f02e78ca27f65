"""Keeps the files beside a notebook the same in its container, which acknowledges what it has."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from orbit_lsp.closure import Closure
from orbit_lsp.closure.workspace import workspace
from orbit_lsp.runners.modal import payload
from orbit_lsp.runners.modal.errors import ModalError
from orbit_lsp.state import units
from orbit_remote.common import brought_files, codec, regular_files
from orbit_remote.common.messages import Brought

Say = Callable[..., Awaitable[None]]

_ROUNDS = 3
_BATCH = 200
"""Files of one record."""
_UNASKED = 1 << 20
"""Bytes that are sent along before the container has said that it lacks them; and what is worth a line in the cell."""


def _batched(items: list[str], size: int) -> list[list[str]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _times(folder: str, places: Iterable[str]) -> dict[str, int]:
    """Return when files were changed, in nanoseconds. Files that are gone by now are left out."""
    times: dict[str, int] = {}
    for place in places:
        with suppress(OSError, ValueError):
            times[place] = (Path(folder) / place).stat().st_mtime_ns
    return times


class NotebookFiles:
    def __init__(self, folder: str, limit: int, place: str, say: Say) -> None:
        """Make the files. `limit` is the bytes of all, `place` is as in `in the container`, `say` sends a record
        there.
        """
        self._folder = folder
        self._limit = limit
        self._place = place
        self._say = say
        self._there: dict[str, str] | None = None
        """What the container has acknowledged, by path; None where nothing is known."""
        self._here: dict[str, str] = {}
        """What was here when the last cell was sent, and what has been brought since."""
        self._answer: asyncio.Future[tuple[str, bytes]] | None = None
        self._remarks: set[str] = set()
        self._busy = asyncio.Lock()

    def forget(self) -> None:
        """Forget what the container has, because a kernel starts: a cell of the one before may have removed files."""
        self._there = None

    def hear(self, name: str, parts: list[bytes]) -> None:
        """A record of the container about files."""
        if self._answer and not self._answer.done():
            self._answer.set_result((name, parts[0]))

    # -- there --------------------------------------------------------------------------------

    async def sync(self, notice: Callable[[str], None]) -> str:
        """Wait until the container has acknowledged the present files. Return why it could not."""
        why = ""
        async with self._busy:
            for _ in range(_ROUNDS):
                tree = await asyncio.to_thread(workspace, self._folder, self._limit)
                if tree.refusal:
                    return tree.refusal
                for remark in tree.remarks:
                    if remark not in self._remarks:
                        self._remarks.add(remark)
                        notice(f"orbit: {remark}")
                try:
                    return await self._send(tree, notice)
                except ModalError as error:  # a file changed while it was read
                    why = error.trouble.message
        return why

    async def _send(self, tree: Closure, notice: Callable[[str], None]) -> str:
        """Send files. Raises ModalError if a file can no longer be read as it was listed."""
        files, there = tree.manifest.files, self._there
        self._here = dict(files)
        if files == there:
            return ""
        known = there or {}
        changed = {place: digest for place, digest in files.items() if known.get(place) != digest}
        asked = {
            "files": changed,
            "gone": [each for each in known if each not in files],
            "whole": there is None,
            "times": await asyncio.to_thread(_times, self._folder, changed),
        }
        wanted = list(dict.fromkeys(changed.values()))
        if payload.size(tree, wanted) > _UNASKED:
            wanted = []
        for _ in range(_ROUNDS):
            if (size := payload.size(tree, wanted)) > _UNASKED:
                notice(f"orbit: sending {units.count(len(wanted))} files, {units.size(size)}")
            for batch in _batched(wanted, _BATCH):
                blobs = await asyncio.to_thread(payload.read, tree, batch)
                parts = [part for digest, blob in blobs.items() for part in (digest.encode(), blob)]
                await self._say("content", *parts)
            name, answer = await self._ask("sync", json.dumps(asked).encode())
            if name == "failed":
                return f"the files could not be written {self._place}: {answer.decode()}"
            value: Any = codec.read_json(answer)
            if name == "synced":
                self._there = {place: digest for place, digest in files.items() if place not in value}
                first = next(iter(value.items()), None)
                return f"{first[0]} could not be written {self._place}: {first[1]}" if first else ""
            wanted = value
        return f"the files that are sent do not stay {self._place}"

    async def _ask(self, name: str, *parts: bytes) -> tuple[str, bytes]:
        self._answer = asyncio.get_running_loop().create_future()
        await self._say(name, *parts)
        return await self._answer

    # -- and back -----------------------------------------------------------------------------

    async def bring(self, pattern: str) -> str:
        """Write the container's files that match beside the notebook, and say which. A file that was edited here
        since the cell was sent is newer, and stays.
        """
        async with self._busy:
            name, answer = await self._ask("bring", pattern.encode())
        if name == "failed":
            return f"nothing was brought: {answer.decode()}"
        value: Any = codec.read_json(answer)
        brought = codec.build(tuple[Brought, ...], value["files"])
        written, remarks = await asyncio.to_thread(self._write, brought, pattern)
        lines = [f"{file.path}: {units.size(file.size)}" for file in written]
        return "\n".join([*lines, *map(str, value["remarks"]), *remarks])

    def _write(self, brought: tuple[Brought, ...], pattern: str) -> tuple[list[Brought], list[str]]:
        folder = Path(self._folder)
        edited = [file.path for file in brought if self._is_edited(file.path)]
        written, remarks = brought_files.write(
            folder, [file for file in brought if file.path not in edited], [pattern]
        )
        for file in written:
            self._here[file.path] = regular_files.file_hash(folder / file.path) or ""
        kept = [f"{path} is not brought: it was edited here while the cell ran" for path in edited]
        return list(written), [*kept, *remarks]

    def _is_edited(self, path: str) -> bool:
        known = self._here.get(path)
        return bool(known) and regular_files.file_hash(Path(self._folder) / path) not in (None, known)
