"""The engine of every door: a session, the places where its jobs run, the scheduler of its runs and their history, made here alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from orbit_lsp.places.places import Places
from orbit_lsp.runs.scheduler import Run, RunWatcher, Scheduler
from orbit_lsp.state import user_folders
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c

if TYPE_CHECKING:
    from orbit_lsp.history.history_tracker import HistoryTracker
    from orbit_lsp.runners.modal import spending


class Engine:
    """Scheduler and history are made on first use: importing the history takes a tenth of a short command."""

    def __init__(
        self,
        session: Session,
        watcher: RunWatcher,
        message: Callable[[str], None],
        *,
        ask: spending.Ask | None = None,
        remedy: str = "",
        names_ways: bool = True,
        places: Places | None = None,
    ) -> None:
        """Make the parts of an engine. With `names_ways`, a failure because there is no GPU names the ways to one.
        Pass `places` to share those of another engine of the same session; else new ones are made, which use `ask`
        and `remedy`.
        """
        self.session = session
        self.places = places or Places(session, message, watcher.changed, ask, remedy)
        self._watcher = watcher
        self._message = message
        self._names_ways = names_ways

    @cached_property
    def runs(self) -> Scheduler:
        explained = self.places.explained if self._names_ways else None
        reports = user_folders.profile_folder
        return Scheduler(self.session, self.places.runner_of, self._watcher, reports, explained)

    @cached_property
    def history(self) -> HistoryTracker:
        from orbit_lsp.history.history_tracker import HistoryTracker

        return HistoryTracker(self.session, user_folders.history_file, self._message, self._watcher.changed)

    def file_runs(self) -> None:
        """Keep the results of runs in the history from now on."""

        def filed(run: Run) -> None:
            self.history.filed(run)  # which is imported now, when the job is over

        self.runs.when_ended(filed)

    async def end_runs(self) -> None:
        """End what runs, and write what the history has not written yet."""
        if "runs" in self.__dict__:
            await self.runs.close()
        if "history" in self.__dict__:
            await self.history.close()

    async def close(self) -> None:
        await self.end_runs()
        await self.places.close()


class Unwatched:
    """A watcher for a door that shows nothing of its runs."""

    def begin(self, run: Run, cancel: Callable[[], object]) -> None: ...

    def stage(self, run: Run, state: c.State, why: str) -> None: ...

    def output(self, run: Run, stream: str, text: str) -> None: ...

    def debugger(self, run: Run, debugger: c.Debugger) -> None: ...

    def end(self, run: Run, finished: c.Finished) -> None: ...

    def changed(self, uris: set[str]) -> None: ...
