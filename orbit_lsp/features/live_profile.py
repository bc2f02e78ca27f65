"""Renews the bottleneck of a live kernel at each save, once *Profile* was clicked and if it takes less than a second."""

from __future__ import annotations

import logging

from orbit_lsp.features import Feature, FeatureContext
from orbit_lsp.profile import counting_cost
from orbit_lsp.runs.scheduler import Run, Scheduler
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session

log = logging.getLogger("orbit.live")

MOST_S = 1.0
"""A profile that takes longer would be in the way of the next save."""


class LiveProfiles(Feature):
    """Profiles a live kernel again after a run of Live, if nothing else is under way. The next edit or save cancels it.

    It renews only launch specs on this machine's GPU, because only there a process that counts is ready.
    """

    def __init__(self, session: Session, runs: Scheduler) -> None:
        self._session = session
        self._runs = runs
        self._too_long: set[KernelId] = set()
        """Kernels whose renewal took too long. A click on *Profile* takes them out again."""

    def run_ended(self, run: Run) -> None:
        if run.action == "profile":
            self._profiled(run)
        elif run.live and run.action == "run" and run.finished and run.finished.outcome == "ok":
            for target in sorted(run.targets & self._session.live):
                if self._may_renew(run, target):
                    self._runs.start("profile", target.uri, target, live=True)

    def edited(self, uri: str) -> None:
        self._cancel(uri)

    def saved(self, uri: str) -> None:
        self._cancel(uri)

    def closed(self, uri: str) -> None:
        self._cancel(uri)

    def _cancel(self, uri: str) -> None:
        for run in self._runs.under_way():
            if run.renews and run.frozen.uri == uri:
                self._runs.cancel_run(run.id)

    def _profiled(self, run: Run) -> None:
        if not run.live:
            self._too_long -= run.targets
        elif run.finished and (run.finished.run_s or 0.0) >= MOST_S:
            log.info("the profile of %s took %.1f s: it is not renewed again", run.title, run.finished.run_s)
            self._too_long |= run.targets

    def _may_renew(self, run: Run, target: KernelId) -> bool:
        file, known = self._session.files.get(target.uri), self._session.results.profiles.get(target)
        result, profile = self._session.results.runs.get(target), known.main if known else None
        if file is None or file.document.text != run.frozen.text or target in self._too_long:
            return False
        if known is None or profile is None or known.detail != "click" or profile.tier != "counters":
            return False
        here = self._session.setup.place() == "local" and profile.counted_by == "CUPTI"
        if not here or result is None or result.through != "spec":
            return False
        if (known.digest, known.inputs, known.files) == (result.digest, result.inputs, result.files):
            return False  # it is of this text
        if counting_cost.CUPTI.seconds(counting_cost.kernel_seconds(result.launches)) >= MOST_S:
            return False
        return all(other.action == "compile" for other in self._runs.under_way())


def feature(context: FeatureContext) -> Feature:
    return LiveProfiles(context.session, context.runs)
