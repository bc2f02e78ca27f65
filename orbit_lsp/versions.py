"""The history of the kernels of open files: kept as runs end, back when a file is opened, judged for regressions.

The file is written and read by a thread of its own, in the order in which things happened here; what comes of it
reaches the session on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from orbit_lsp import bundle, contract, jobs
from orbit_lsp.history import Entry, Said, Store
from orbit_lsp.lineage import regression
from orbit_lsp.runs import Run
from orbit_lsp.session import KernelId, Result, Session, identify, path_of
from orbit_remote import contracts as c
from orbit_remote import measure

log = logging.getLogger("orbit.history")

T = TypeVar("T")

_LOOKED_AT = 80
"""Runs of a kernel in which its last versions are looked for."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What the file has of one kernel: the run that is shown, and its regression."""

    shown: Entry | None
    last: Entry | None
    regression: measure.Regression | None


class Versions:
    def __init__(
        self,
        session: Session,
        where: Callable[[], Path],
        complain: Callable[[str], None],
        changed: Callable[[set[str]], None],
    ) -> None:
        """`where` names the file; `complain` gets a sentence, once each."""
        self._session = session
        self._where = where
        self._complain = complain
        self._changed = changed
        self._said: set[str] = set()
        self._thread: ThreadPoolExecutor | None = None
        self._store_of: tuple[int, Store] | None = None
        self._seen: dict[KernelId, Result] = {}
        self._work: set[asyncio.Future[None]] = set()

    # -- keeping ------------------------------------------------------------------------------

    def filed(self, run: Run, finished: c.Finished) -> None:
        """A run has ended and what it said is in the session: keep what is new."""
        fresh = [
            (target, result)
            for target, result in self._session.results.items()
            if self._seen.get(target) is not result
        ]
        self._seen |= dict(fresh)
        if not self._keeps():
            return
        for target, result in fresh:
            text = run.frozen.text if target.uri == run.frozen.uri else None
            self._keep(target, _entry(target, result), text)
        if run.action == "profile" and finished.profiles:
            digests = {target: digest for target, _, digest in identify(run.frozen.uri, run.frozen.scan)}
            now = Entry(
                0.0, "", "", "profile", "", bundle.job_key(run.job), Said(finished, finished.launches),
            )  # fmt: skip
            for target in run.targets & set(digests):
                found = replace(now, path=path_of(target.uri), kernel=target.key, digest=digests[target])
                self._keep(target, replace(found, at=time.time()), run.frozen.text)

    def _keep(self, target: KernelId, entry: Entry, text: str | None) -> None:
        store = self._store()

        def work() -> measure.Regression | None:
            store.keep(entry, text)
            return regression(store.entries(entry.path, entry.kernel, _LOOKED_AT))

        def then(found: measure.Regression | None) -> None:
            if entry.action == "run":
                self._tell(target, entry.digest, found)

        self._later(work, then)

    def _tell(self, target: KernelId, digest: str, found: measure.Regression | None) -> None:
        before = self._session.regressions.get(target)
        if found:
            self._session.regressions[target] = (digest, found)
        else:
            self._session.regressions.pop(target, None)
        if self._session.regressions.get(target) != before:
            self._changed({target.uri})

    # -- coming back --------------------------------------------------------------------------

    def restore(self, uri: str) -> None:
        """A file was opened: the last results of its kernels come back, those of the text as it is first."""
        if uri not in self._session.files or not self._keeps():
            return
        digests = {target.key: digest for target, _, digest in self._session.kernels(uri)}
        entry_point = contract.of(self._session, uri)
        if entry_point:
            digests[entry_point.target.key] = contract.digest(self._session.files[uri].document.text)
        path, store = path_of(uri), self._store()

        def work() -> dict[str, _Known]:
            found: dict[str, _Known] = {}
            for name in set(store.kernels(path)) & set(digests):
                entries = store.entries(path, name, _LOOKED_AT)
                runs = [entry for entry in entries if entry.action == "run"]
                same = [entry for entry in runs if entry.digest == digests[name]]
                shown = next(reversed(same or runs), None)
                found[name] = _Known(shown, next(reversed(runs), None), regression(entries))
            return found

        self._later(work, lambda found: self._restored(uri, found))

    def _restored(self, uri: str, found: dict[str, _Known]) -> None:
        if uri not in self._session.files:
            return
        for name, known in found.items():
            target = KernelId(uri, name)
            if known.shown is None or target in self._session.results:
                continue
            self._session.results[target] = self._seen[target] = _result(uri, known.shown)
            if known.regression and known.shown is known.last:
                self._session.regressions[target] = (known.shown.digest, known.regression)
        self._changed({uri})

    # -- asking -------------------------------------------------------------------------------

    async def entries(self, path: str, kernel: str | None = None) -> list[Entry]:
        """Every run that is kept of a file's kernels, or of one, oldest first, what has just ended among them."""
        store = self._store()
        return await self._asked(lambda: store.entries(path, kernel, 10_000))

    async def text(self, name: str | None) -> str | None:
        """The text of an entry; None where it is not kept."""
        store = self._store()
        return await self._asked(lambda: store.text(name)) if name else None

    async def close(self) -> None:
        """Once everything is written."""
        while self._work:
            await asyncio.wait(self._work)
        if self._thread:
            await asyncio.to_thread(self._thread.shutdown)
            self._thread = None

    # -- the thread ---------------------------------------------------------------------------

    def _keeps(self) -> bool:
        return jobs.settings_of(self._session).history.keep

    def _store(self) -> Store:
        mib = jobs.settings_of(self._session).history.mib
        if self._store_of is None or self._store_of[0] != mib:
            self._store_of = (mib, Store(self._where, mib << 20))
        return self._store_of[1]

    async def _asked(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.wrap_future(self._executor().submit(work))
        finally:
            self._say()

    def _later(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        async def do() -> None:
            try:
                then(await self._asked(work))
            except Exception:
                log.exception("the history is not as it should be")

        task = asyncio.ensure_future(do())
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    def _executor(self) -> ThreadPoolExecutor:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="orbit-history")
        return self._thread

    def _say(self) -> None:
        for text in self._store().complaints():
            if text not in self._said:
                self._said.add(text)
                self._complain(text)


def _entry(target: KernelId, result: Result) -> Entry:
    asked = result.asked.key if result.asked and result.asked.uri == target.uri else None
    said = Said(
        result.finished,
        result.launches,
        dict(result.files),
        result.through,
        asked,
        result.lines,
        result.elements,
    )
    return Entry(result.at, path_of(target.uri), target.key, "run", result.digest, result.inputs, said)


def _result(uri: str, entry: Entry) -> Result:
    said = entry.said
    asked = KernelId(uri, said.asked) if said.asked else None
    return Result(
        entry.digest, entry.at, said.finished, said.launches, entry.inputs, said.files or {}, said.through, asked,
        said.lines, said.elements,
    )  # fmt: skip
