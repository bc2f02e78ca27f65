"""The history of kernels in open files: stored when runs end, restored when a file is opened, checked for regressions.

The file is written and read by a thread of its own, in the order in which things happened here; what comes of it
reaches the session on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from orbit_lsp.history.history_store import Action, Entry, Store, StoredResult
from orbit_lsp.history.version_groups import regression
from orbit_lsp.runs import profile_filing
from orbit_lsp.runs.scheduler import Run
from orbit_lsp.state import harness
from orbit_lsp.state.documents import split_lines
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import Profiled, Result
from orbit_lsp.state.session import Session, path_of
from orbit_remote.common import measure

log = logging.getLogger("orbit.history")

T = TypeVar("T")

_LOOKED_AT = 80
"""Runs of a kernel in which its last versions are looked for."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What the file has of one kernel: the run and the profile that are shown, and the last run's regression."""

    shown: Entry | None
    profile: Entry | None
    text: str | None
    """The file as it was profiled."""
    last: Entry | None
    regression: measure.Regression | None
    versions: frozenset[str]


class HistoryTracker:
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
        self._profiles: dict[KernelId, Profiled] = {}
        self._work: set[asyncio.Future[None]] = set()

    # -- keeping ------------------------------------------------------------------------------

    def filed(self, run: Run) -> None:
        """A run has ended and what it said is in the session: keep what is new."""
        fresh = [
            (target, said)
            for seen, known in (
                (self._seen, self._session.results.runs),
                (self._profiles, self._session.results.profiles),
            )
            for target, said in known.items()
            if seen.get(target) is not said
        ]
        self._seen = dict(self._session.results.runs)
        self._profiles = dict(self._session.results.profiles)
        if not self._keeps():
            return
        for target, said in fresh:
            text = run.frozen.text if target.uri == run.frozen.uri else None
            self._keep(target, _entry(target, said), text)

    def _keep(self, target: KernelId, entry: Entry, text: str | None) -> None:
        store = self._store()

        def work() -> tuple[measure.Regression | None, frozenset[str]]:
            store.keep(entry, text)
            entries = store.entries(entry.path, entry.kernel, _LOOKED_AT)
            return regression(entries), _versions(entries)

        def then(found: tuple[measure.Regression | None, frozenset[str]]) -> None:
            self._session.results.versions[target] = found[1]
            if entry.action == "run":
                self._tell(target, entry.digest, found[0])

        self._later(work, then)

    def _tell(self, target: KernelId, digest: str, found: measure.Regression | None) -> None:
        before = self._session.results.regressions.get(target)
        if found:
            self._session.results.regressions[target] = (digest, found)
        else:
            self._session.results.regressions.pop(target, None)
        if self._session.results.regressions.get(target) != before:
            self._changed({target.uri})

    # -- coming back --------------------------------------------------------------------------

    def restore(self, uri: str) -> None:
        """A file was opened: the last results of its kernels come back, those of the text as it is first."""
        if uri not in self._session.files or not self._keeps():
            return
        digests = {target.key: digest for target, _, digest in self._session.kernels(uri)}
        entry_point = harness.of(self._session, uri)
        if entry_point:
            digests[entry_point.target.key] = harness.digest(self._session.files[uri].document.text)
        path, store = path_of(uri), self._store()

        def work() -> dict[str, _Known]:
            found: dict[str, _Known] = {}
            for name in set(store.kernels(path)) & set(digests):
                entries = store.entries(path, name, _LOOKED_AT)
                runs = [entry for entry in entries if entry.action == "run"]
                profiles = [entry for entry in entries if entry.action == "profile"]
                profile = _shown(profiles, digests[name])
                text = store.text(profile.text) if profile and profile.text else None
                shown, last = _shown(runs, digests[name]), next(reversed(runs), None)
                found[name] = _Known(shown, profile, text, last, regression(entries), _versions(entries))
            return found

        self._later(work, lambda found: self._restored(uri, found))

    def _restored(self, uri: str, found: dict[str, _Known]) -> None:
        if uri not in self._session.files:
            return
        changed = {uri}
        for name, known in found.items():
            target = KernelId(uri, name)
            self._session.results.versions[target] = known.versions
            if known.profile and target not in self._session.results.profiles:
                profiled = self._profiled(uri, known.profile, known.text)
                self._session.results.profiles[target] = self._profiles[target] = profiled
                changed |= {self._session.uri_for(file) for file in profiled.texts}
            if known.shown is None or target in self._session.results.runs:
                continue
            self._session.results.runs[target] = self._seen[target] = _result(uri, known.shown)
            if known.regression and known.shown is known.last:
                self._session.results.regressions[target] = (known.shown.digest, known.regression)
        self._changed(changed)

    def _profiled(self, uri: str, entry: Entry, text: str | None) -> Profiled:
        """Without Nsight Compute's own file. Lines of another file are back where it is still what was compiled."""
        said = entry.said
        files = said.finished.files | (said.files or {})
        texts: dict[str, tuple[str, ...]] = {}
        for file in {line.file for profile in said.finished.profiles for line in profile.lines}:
            if Path(file) == Path(entry.path):
                known = text
            else:
                known = profile_filing.text_of(self._session, file, files[file]) if file in files else None
            if known is not None:
                texts[file] = tuple(split_lines(known))
        return Profiled(
            entry.digest, entry.at, said.finished, said.finished.profiles, entry.inputs, said.files or {}, said.through,
            _asked(uri, said), said.detail, texts,
        )  # fmt: skip

    # -- asking -------------------------------------------------------------------------------

    async def entries(self, path: str, kernel: str | None = None, most: int = 10_000) -> list[Entry]:
        """The newest runs that are kept of a file's kernels, or of one, oldest first, what has just ended among them."""
        store = self._store()
        return await self._asked(lambda: store.entries(path, kernel, most))

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
        return self._session.setup.settings.history.keep

    def _store(self) -> Store:
        mib = self._session.setup.settings.history.mib
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


def _shown(entries: list[Entry], digest: str) -> Entry | None:
    """The last of the text as it is, else the last."""
    return next((one for one in reversed(entries) if one.digest == digest), next(reversed(entries), None))


def _versions(entries: list[Entry]) -> frozenset[str]:
    """Digests of those whose text is kept."""
    return frozenset(entry.digest for entry in entries if entry.text)


def _entry(target: KernelId, known: Result | Profiled) -> Entry:
    asked = known.asked.key if known.asked and known.asked.uri == target.uri else None
    files = dict(known.files)
    if isinstance(known, Profiled):
        finished = replace(known.finished, profiles=known.profiles)
        said = StoredResult(finished, finished.launches, files, known.through, asked, detail=known.detail)
    else:
        said = StoredResult(
            known.finished, known.launches, files, known.through, asked, known.lines, known.elements
        )
    action: Action = "profile" if isinstance(known, Profiled) else "run"
    return Entry(known.at, path_of(target.uri), target.key, action, known.digest, known.inputs, said)


def _result(uri: str, entry: Entry) -> Result:
    said = entry.said
    return Result(
        entry.digest, entry.at, said.finished, said.launches, entry.inputs, said.files or {}, said.through,
        _asked(uri, said), said.lines, said.elements,
    )  # fmt: skip


def _asked(uri: str, said: StoredResult) -> KernelId | None:
    return KernelId(uri, said.asked) if said.asked else None
