"""The history of kernels in open files. Runs are stored when they end, and checked for regressions. They are restored
when a file is opened, or when another program has run one of its kernels.

A thread of its own reads and writes the file, in the order of events here. Its results reach the session on the event
loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from orbit_lsp.history import driver_pins
from orbit_lsp.history.driver_pins import Pin
from orbit_lsp.history.history_store import Action, HistoryEntry, HistoryStore, StoredResult
from orbit_lsp.history.version_groups import has_result, regression
from orbit_lsp.runs import result_filing
from orbit_lsp.runs.scheduler import Run
from orbit_lsp.state import harness, sqlite_file, staleness
from orbit_lsp.state.documents import split_lines
from orbit_lsp.state.kernel_ids import KernelId, identify
from orbit_lsp.state.results import Learned, Profiled, RunResult
from orbit_lsp.state.session import Session, path_of
from orbit_remote.common import measure
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Driver

log = logging.getLogger("orbit.history")

T = TypeVar("T")

_LOOK_S = 1.0
"""Between two looks at whether another program has written to the history."""
_LOOKED_AT = 80
"""Runs of a kernel in which its last versions are looked for."""


@dataclass(frozen=True, slots=True)
class _ShownHistory:
    """What the file has of one kernel: among others the run and the profile that are shown, and the last run's
    regression.
    """

    shown: HistoryEntry | None
    profile: HistoryEntry | None
    text: str | None
    """The file as it was profiled."""
    last: HistoryEntry | None
    regression: measure.Regression | None
    versions: frozenset[str]
    learned: dict[Driver, Learned]
    pinned: Driver | None = None


class HistoryTracker:
    def __init__(
        self,
        session: Session,
        where: Callable[[], Path],
        complain: Callable[[str], None],
        changed: Callable[[set[str]], None],
    ) -> None:
        """Make a tracker. `where` returns the file; `complain` gets each sentence once."""
        self._session = session
        self._where = where
        self._complain = complain
        self._changed = changed
        self._shown: set[str] = set()
        self._thread: ThreadPoolExecutor | None = None
        self._store_of: tuple[int, HistoryStore] | None = None
        self._seen: dict[KernelId, RunResult] = {}
        self._profiles: dict[KernelId, Profiled] = {}
        self._followed: set[str] = set()
        """Files whose earlier name was looked for."""
        self._work: set[asyncio.Future[None]] = set()
        self._own: set[int] = set()
        """Rows of the history that were written here since it was last looked at."""
        self._watching: asyncio.Task[None] | None = None
        self.news = 0
        """How often another program has written about an open file."""

    # -- keeping ------------------------------------------------------------------------------

    def read_ahead(self, uri: str) -> None:
        """Read a file's last runs while another run is under way, so that its result can be compared with them
        quickly.
        """
        if self._keeps():
            path, store = self._session.path(uri), self._store()
            self._later(lambda: store.entries(path, most=_LOOKED_AT), lambda _: None)

    def filed(self, run: Run) -> None:
        """Store the new results of a run that has ended; they are in the session."""
        fresh = [
            (target, kept)
            for seen, known in (
                (self._seen, self._session.results.runs),
                (self._profiles, self._session.results.profiles),
            )
            for target, kept in known.items()
            if seen.get(target) is not kept
        ]
        self._seen = dict(self._session.results.runs)
        self._profiles = dict(self._session.results.profiles)
        if not self._keeps():
            return
        for target, kept_result in [*fresh, *_without_result(run, {target for target, _ in fresh})]:
            if target.uri in self._session.files:
                self._follow(target.uri)
            text = run.frozen.text if target.uri == run.frozen.uri else None
            self._keep(target, _entry(target, kept_result), text)

    def _keep(self, target: KernelId, entry: HistoryEntry, text: str | None) -> None:
        store = self._store()

        def work() -> tuple[measure.Regression | None, frozenset[str]]:
            if added := store.keep(entry, text):
                self._own.add(added)
            entries = store.entries(entry.path, entry.kernel, _LOOKED_AT)
            return regression(entries), _versions(entries)

        def then(compared: tuple[measure.Regression | None, frozenset[str]]) -> None:
            self._session.results.versions[target] = compared[1]
            if entry.action == "run":
                self._tell(target, entry.digest, compared[0])

        self._later(work, then)

    def _tell(self, target: KernelId, digest: str, worse: measure.Regression | None) -> None:
        before = self._session.results.regressions.get(target)
        if worse:
            self._session.results.regressions[target] = (digest, worse)
        else:
            self._session.results.regressions.pop(target, None)
        if self._session.results.regressions.get(target) != before:
            self._changed({target.uri})

    # -- coming back --------------------------------------------------------------------------

    def restore(self, uri: str) -> None:
        """Restore the last results of a file's kernels when it is opened. Results of the present text come first."""
        if uri not in self._session.files or not self._keeps():
            return
        self._follow(uri)
        if self._session.files[uri].whole_notebook:
            self._restore_cells(uri)
        else:
            self._restore(uri)

    def _restore_cells(self, uri: str) -> None:
        """Do the same for a notebook that comes as one text. First find out which of its cells ran."""
        path, store = self._session.path(uri), self._store()

        def work() -> tuple[str, ...]:
            entries = [entry for name in store.kernels(path) for entry in store.entries(path, name, 1)]
            texts = {entry.text: store.text(entry.text) for entry in entries if entry.text}
            return tuple(text for text in texts.values() if text)

        def then(ran: tuple[str, ...]) -> None:
            if file := self._session.files.get(uri):
                file.tracker = self._session.notebook_tracker(ran)
                self._later(lambda: None, lambda _: self._restore(uri), uri)

        self._later(work, then)

    def _restore(self, uri: str) -> None:
        digests = self._digests(uri)
        path, store = self._session.path(uri), self._store()

        def work() -> dict[str, _ShownHistory]:
            pins = driver_pins.of_file(self._pins(), path)
            nothing = _ShownHistory(None, None, None, None, None, frozenset(), {})
            known_kernels = {
                name: replace(nothing, pinned=pins[name].driver) for name in pins if name in digests
            }
            for name in set(store.kernels(path)) & set(digests):
                entries = store.entries(path, name, _LOOKED_AT)
                runs = [entry for entry in entries if entry.action == "run" and has_result(entry)]
                profiles = [entry for entry in entries if entry.action == "profile"]
                profile = _shown(profiles, digests[name])
                text = store.text(profile.text) if profile and profile.text else None
                shown, last = _shown(runs, digests[name]), next(reversed(runs), None)
                known_kernels[name] = _ShownHistory(
                    shown, profile, text, last, regression(entries), _versions(entries),
                    _learned(runs, pins.get(name)), pins[name].driver if name in pins else None,
                )  # fmt: skip
            return known_kernels

        self._later(work, lambda known_kernels: self._restored(uri, known_kernels), uri)

    def _restored(self, uri: str, known_kernels: dict[str, _ShownHistory]) -> None:
        if uri not in self._session.files:
            return
        changed, digests = {uri}, self._digests(uri)
        for name, known in known_kernels.items():
            target = KernelId(uri, name)
            self._session.results.versions[target] = known.versions
            for driver, learned in known.learned.items():
                self._session.results.learn(target, driver, learned)
            if known.pinned:
                self._session.results.pinned[target] = known.pinned
            now = digests.get(name, "")
            if known.profile and _is_news(known.profile, self._session.results.profiles.get(target), now):
                profiled = self._profiled(uri, known.profile, known.text)
                self._session.results.profiles[target] = self._profiles[target] = profiled
                changed |= {self._session.uri_for(file) for file in profiled.texts}
            if known.shown is None or not _is_news(known.shown, self._session.results.runs.get(target), now):
                continue
            self._session.results.runs[target] = self._seen[target] = _result(uri, known.shown)
            self._session.results.regressions.pop(target, None)
            if known.regression and known.shown is known.last:
                self._session.results.regressions[target] = (known.shown.digest, known.regression)
        self._changed(changed)

    def _profiled(self, uri: str, entry: HistoryEntry, text: str | None) -> Profiled:
        """Make a profile from an entry, without Nsight Compute's own file. Lines of another file return if that file
        is still what was compiled.
        """
        stored = entry.result
        files = stored.finished.files | (stored.files or {})
        texts: dict[str, tuple[str, ...]] = {}
        for file in {line.file for profile in stored.finished.profiles for line in profile.lines}:
            if Path(file) == Path(entry.path):
                known = text
            else:
                known = result_filing.text_of(self._session, file, files[file]) if file in files else None
            if known is not None:
                texts[file] = tuple(split_lines(known))
        return Profiled(
            entry.digest, entry.at, stored.finished, stored.finished.profiles, entry.inputs, stored.files or {}, stored.through,
            _asked(uri, stored), stored.detail, texts,
        )  # fmt: skip

    def _digests(self, uri: str) -> dict[str, str]:
        """Return the digests of an open file's kernels, by name."""
        digests = {target.key: digest for target, _, digest in self._session.kernels(uri)}
        if entry_point := harness.of(self._session, uri):
            digests[entry_point.target.key] = harness.digest(self._session.files[uri].document.text)
        return digests

    # -- names follow files -------------------------------------------------------------------

    def renamed(self, old_uri: str, new_uri: str) -> dict[str, str]:
        """Follow a file or a folder that has another name, as the editor says. Return the new name of each old one,
        both as URIs and as paths.
        """
        names = self._rename(old_uri, new_uri)
        if self._keeps():
            store = self._store()
            self._later(lambda: store.rename(path_of(old_uri), path_of(new_uri)), lambda _: None)
        within = new_uri.rstrip("/") + "/"
        for uri in [uri for uri in self._session.files if uri == new_uri or uri.startswith(within)]:
            self.restore(uri)
        self._changed({uri for uri in names.values() if uri in self._session.files})
        return names

    def _rename(self, old_uri: str, new_uri: str) -> dict[str, str]:
        names = self._session.rename(old_uri, new_uri)
        self._seen, self._profiles = dict(self._session.results.runs), dict(self._session.results.profiles)
        return names

    def _follow(self, uri: str) -> None:
        """Give a file without a history the history of a file that it may have been before. That file must be gone,
        and have had an identical kernel. While it is still there, this one is a copy.
        """
        path, file = self._session.path(uri), self._session.files.get(uri)
        if path in self._followed or not self._keeps() or (file and file.unnamed):
            return
        digests, store = self._digests(uri), self._store()
        if digests or not self._session.is_cell(uri):
            self._followed.add(path)

        def work() -> str | None:
            old = None if store.kernels(path) else store.moved_from(path, digests)
            if old:
                store.rename(old, path)
            return old

        def then(old: str | None) -> None:
            if old and (before := self._session.uri_for(old)) not in self._session.files:
                self._rename(before, uri)

        if digests:
            self._later(work, then)

    # -- what other programs run --------------------------------------------------------------

    def watch(self) -> None:
        """Begin to watch the history. What a command line, another editor or an import then adds about an open file
        is shown at once.
        """
        if self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        stamp, last = None, 0
        while True:
            try:
                store, known = self._store(), stamp
                await self._asked(sqlite_file.write_again)
                stamp = await self._asked(store.stamp)
                if stamp != known:
                    last = await self._look(store, last, first=known is None)
            except Exception:
                log.exception("the history is not as it should be")
            await asyncio.sleep(_LOOK_S)

    async def _look(self, store: HistoryStore, after: int, *, first: bool) -> int:
        """Show what others have added after row `after`. Show nothing at the first look, because earlier rows are
        restored when files are opened. Return the number of the last row.
        """
        open_files = {uri: self._session.path(uri) for uri in self._session.files}

        def work() -> tuple[int, set[int], list[str]]:
            last, added = store.since(after)
            foreign = {added[number] for number in added.keys() - self._own}
            real = {os.path.realpath(path) for path in foreign if "\0" not in path}
            concerned = [uri for uri, path in open_files.items() if real and os.path.realpath(path) in real]
            return last, set(added), concerned

        last, added, concerned = await self._asked(work)
        self._own -= added
        for uri in () if first else concerned:
            self.news += 1
            if file := self._session.files.get(uri):
                await file.scan_aside()
            self.restore(uri)
        return last

    # -- asking -------------------------------------------------------------------------------

    async def entries(self, path: str, kernel: str | None = None, most: int = 10_000) -> list[HistoryEntry]:
        """Return the newest runs in the history of a file's kernels, or of one, the oldest first. What has just ended
        is among them.
        """
        if (uri := self._session.uri_for(path)) in self._session.files:
            self._follow(uri)
        store = self._store()
        return await self._asked(lambda: store.entries(path, kernel, most))

    async def learn(self, target: KernelId) -> None:
        """Recall what earlier runs of drivers showed of a kernel."""
        runs = [
            entry
            for entry in await self.entries(self._session.path(target.uri), target.key, _LOOKED_AT)
            if entry.action == "run" and has_result(entry)
        ]
        pins = await self._asked(lambda: driver_pins.of_file(self._pins(), self._session.path(target.uri)))
        pin = pins.get(target.key)
        for driver, learned in _learned(runs, pin).items():
            self._session.results.learn(target, driver, learned)
        if pin and pin.driver:
            self._session.results.pinned[target] = pin.driver

    def pin(self, target: KernelId, driver: Driver | None) -> None:
        """Make clicks on a kernel take one driver from now on, or no particular one."""
        if driver:
            self._session.results.pinned[target] = driver
        else:
            self._session.results.pinned.pop(target, None)
        self._keep_pin(target, lambda pin: replace(pin, driver=driver))

    def forget_drivers(self, target: KernelId) -> None:
        """Forget what earlier runs showed of a kernel's drivers."""
        self._session.results.learned.pop(target, None)
        self._keep_pin(target, lambda pin: replace(pin, forgotten=time.time()))

    def _keep_pin(self, target: KernelId, change: Callable[[Pin], Pin]) -> None:
        path = self._session.path(target.uri)

        def work() -> None:
            try:
                driver_pins.keep(self._pins(), change, path, target.key)
            except OSError as error:
                self._complain(f"orbit: the choice of a driver cannot be kept: {error}")

        self._later(work, lambda _: None)
        self._changed({target.uri})

    def _pins(self) -> Path:
        return self._where().with_name("driver-pins")

    async def text(self, name: str | None) -> str | None:
        """Return the text of an entry, or None if it is not kept."""
        store = self._store()
        return await self._asked(lambda: store.text(name)) if name else None

    async def close(self) -> None:
        """Stop watching, and return once everything is written."""
        if self._watching:
            self._watching.cancel()
        while self._work:
            await asyncio.wait(self._work)
        if self._thread:
            await self._asked(self._store().write_again)
            await asyncio.to_thread(self._thread.shutdown)
            self._thread = None

    # -- the thread ---------------------------------------------------------------------------

    def _keeps(self) -> bool:
        return self._session.setup.settings.history.keep

    def _store(self) -> HistoryStore:
        mib = self._session.setup.settings.history.mib
        if self._store_of is None or self._store_of[0] != mib:
            self._store_of = (mib, HistoryStore(self._where, mib << 20))
        return self._store_of[1]

    async def _asked(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.wrap_future(self._executor().submit(work))
        finally:
            self._say()

    def _later(self, work: Callable[[], T], then: Callable[[T], None], uri: str = "") -> None:
        """Do `work` in the thread, then call `then`. That may ask for the kernels of the file `uri`, so the file is
        first scanned beside the event loop if it was edited meanwhile.
        """

        async def do() -> None:
            try:
                answer = await self._asked(work)
                if file := self._session.files.get(uri):
                    await file.scan_aside()
                then(answer)
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
            if text not in self._shown:
                self._shown.add(text)
                self._complain(text)


_LISTED = ("runtime error", "wrong answer", "timed out", "cancelled")
"""How a run may end without a result and stand in the history all the same: something of it had begun."""


def _without_result(run: Run, known: set[KernelId]) -> list[tuple[KernelId, RunResult]]:
    """Return what is kept of a run that failed, was cancelled or ran out of time before one of its kernels had a
    result.
    """
    finished = run.finished
    if finished is None or run.of_several or run.refused or run.action not in ("run", "profile"):
        return []
    if finished.outcome not in _LISTED or not run.ran:
        return []
    digests = {target: digest for target, _, digest in identify(run.frozen.uri, run.frozen.scan)}
    files = run.built.files if run.built else {}
    return [
        (
            target,
            RunResult(
                digests.get(target) or harness.digest(run.frozen.text), time.time(), finished, (),
                staleness.job_key(run.job), files, run.job.start.through, target, run.plan.lines, run.plan.elements,
                driver=run.job.driver,
            ),
        )
        for target in sorted(run.targets - known)
    ]  # fmt: skip


def _shown(entries: list[HistoryEntry], digest: str) -> HistoryEntry | None:
    """Return the newest entry of the present text, else the newest of all."""
    return next(
        (entry for entry in reversed(entries) if entry.digest == digest), next(reversed(entries), None)
    )


def _is_news(entry: HistoryEntry, mine: RunResult | Profiled | None, digest: str) -> bool:
    """Say whether to show an entry in place of what the session has: it is newer, and of the present text if the
    shown one is.
    """
    return mine is None or (entry.at > mine.at and (entry.digest == digest or mine.digest != digest))


def _learned(runs: list[HistoryEntry], pin: Pin | None) -> dict[Driver, Learned]:
    """Return what the runs of each driver showed since the author made us forget it. `runs` has the oldest first."""
    since = pin.forgotten if pin else 0.0
    learned: dict[Driver, Learned] = {}
    for run in runs:
        if (driver := run.result.driver) and run.at > since:
            learned[driver] = Learned.of(run.result.finished, run.result.launches).after(learned.get(driver))
    return learned


def _versions(entries: list[HistoryEntry]) -> frozenset[str]:
    """Return the digests of the entries whose text is kept."""
    return frozenset(entry.digest for entry in entries if entry.text)


def _entry(target: KernelId, known: RunResult | Profiled) -> HistoryEntry:
    asked = known.asked.key if known.asked and known.asked.uri == target.uri else None
    files = dict(known.files)
    if isinstance(known, Profiled):
        finished = replace(known.finished, profiles=known.profiles)
        stored = StoredResult(finished, finished.launches, files, known.through, asked, detail=known.detail)
    else:
        stored = StoredResult(
            known.finished, known.launches, files, known.through, asked, known.lines, known.elements,
            driver=known.driver,
        )  # fmt: skip
    action: Action = "profile" if isinstance(known, Profiled) else "run"
    return HistoryEntry(known.at, path_of(target.uri), target.key, action, known.digest, known.inputs, stored)


def _result(uri: str, entry: HistoryEntry) -> RunResult:
    stored = entry.result
    return RunResult(
        entry.digest, entry.at, stored.finished, stored.launches, entry.inputs, stored.files or {}, stored.through,
        _asked(uri, stored), stored.lines, stored.elements, driver=stored.driver,
    )  # fmt: skip


def _asked(uri: str, result: StoredResult) -> KernelId | None:
    return KernelId(uri, result.asked) if result.asked else None
