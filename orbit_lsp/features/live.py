"""Live: a kernel is checked and timed again whenever its file is saved, until it is turned off."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from orbit_lsp.features import Feature, FeatureContext
from orbit_lsp.features.quiet_compile import QuietCompile
from orbit_lsp.runs.scheduler import Run, Scheduler
from orbit_lsp.state import units
from orbit_lsp.state.debounce import Debounce
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session

log = logging.getLogger("orbit.live")

_KEYS_S = 0.06
"""Longer than between two keys of one word typed fast, shorter than from the last key to the save."""


class LiveRuns(Feature):
    """Runs live kernels. At most one run of a kernel is under way, and only the newest text waits; the scheduler
    ensures that.

    The compiler takes most of the time from a save to the number. So on this machine's own GPU the kernel is built
    while it is typed; the run that follows finds the build made, or under way.

    On a rented GPU every run counts in the month's budget. A run that may not begin ends Live, and so does a run that
    could not be carried out.
    """

    def __init__(
        self,
        session: Session,
        runs: Scheduler,
        message: Callable[[str], None],
        changed: Callable[[set[str]], None],
        compile_file: Callable[[str], None],
    ) -> None:
        self._session = session
        self._runs = runs
        self._message = message
        self._changed = changed
        self._compile = compile_file
        self._idle: dict[KernelId, asyncio.TimerHandle] = {}
        self._pauses = Debounce(self._paused, "live")
        self._keys = Debounce(self._build_ahead, "build ahead")
        self._ahead: dict[KernelId, asyncio.Task[None]] = {}

    def toggle(self, target: KernelId) -> bool:
        """Turn it on or off, and return whether it is on now. Turning it on runs the kernel."""
        if target in self._session.live:
            self._end(target)
            return False
        self._session.live.add(target)
        self._run(target)
        self._changed({target.uri})
        return True

    def saved(self, uri: str) -> None:
        """Run the kernels of a saved file. The file is compiled for its figures after that, or at once if no kernel
        can be run.
        """
        self._pauses.forget(uri)
        if self._of(uri) and not self._run_all(uri):
            self._compile(uri)

    def edited(self, uri: str) -> None:
        """Build after the last of several keys in a row. Run once typing has paused for longer, if the settings say
        so.
        """
        if not self._of(uri):
            return
        self._keys.edited(uri, _KEYS_S)
        settings = self._session.setup.settings.live
        if settings.on == "pause":
            self._pauses.edited(uri, settings.pause_ms / 1000)

    def closed(self, uri: str) -> None:
        self._pauses.forget(uri)
        for target in self._of(uri):
            self._end(target)

    def run_ended(self, run: Run) -> None:
        """End Live for a run that could not be carried out: it would fail at the next save too."""
        if not run.live or run.renews or run.finished is None:
            return
        outcome = run.finished.outcome
        # nobody has cancelled it here: the author was asked about the budget and said no
        declined = outcome == "cancelled" and run.task is not None and not run.task.cancelling()
        if outcome == "infrastructure" or declined:
            for target in run.targets & self._session.live:
                self._end(target)
                self._message(f"orbit: Live of {target.key} was turned off")
        elif run.frozen.uri in self._session.files:
            self._compile(run.frozen.uri)

    def shutdown(self) -> None:
        for timer in self._idle.values():
            timer.cancel()
        self._pauses.close()
        self._keys.close()
        for task in self._ahead.values():
            task.cancel()

    def _paused(self, uri: str) -> None:
        self._run_all(uri)

    def _build_ahead(self, uri: str) -> None:
        for target in self._of(uri):
            if task := self._ahead.pop(target, None):
                task.cancel()  # of another text
            if work := self._runs.ahead(target):
                self._ahead[target] = asyncio.get_running_loop().create_task(work, name="build ahead")

    def _of(self, uri: str) -> list[KernelId]:
        return sorted(target for target in self._session.live if target.uri == uri)

    def _run_all(self, uri: str) -> bool:
        if targets := self._of(uri):  # what compiles an older text would slow the run down
            self._runs.cancel_all(uri, "compile")
        started = [self._run(target) for target in targets]
        return any(started)

    def _run(self, target: KernelId) -> bool:
        self._begin_idle(target)
        if self._session.find(target) is None:  # being renamed, or deleted: the idle timer ends it
            return False
        run = self._runs.start("run", target.uri, target, live=True)
        return run is not None and not run.refused

    def _begin_idle(self, target: KernelId) -> None:
        if timer := self._idle.pop(target, None):
            timer.cancel()
        after = self._session.setup.settings.live.idle_s
        self._idle[target] = asyncio.get_running_loop().call_later(after, self._idled, target, after)

    def _idled(self, target: KernelId, after: float) -> None:
        self._end(target)
        self._message(f"orbit: Live of {target.key} ended, nothing was run for {units.time(after * 1e9)}")

    def _end(self, target: KernelId) -> None:
        log.info("Live of %s ends", target.key)
        if timer := self._idle.pop(target, None):
            timer.cancel()
        self._session.live.discard(target)
        if task := self._ahead.pop(target, None):
            task.cancel()
        self._changed({target.uri})


def feature(context: FeatureContext) -> Feature:
    def compile_file(uri: str) -> None:
        context.features.of(QuietCompile).compile(uri)

    return LiveRuns(context.session, context.runs, context.message, context.changed, compile_file)
