"""Errors in a CUDA file some 50 ms after a keystroke. They come from nvcc's own front end, which waits with the
file's headers parsed.

They are shown only for a file of which the front end said the same as the last compile. Each compile that ends is
such a test. What nvcc says once typing has paused (`idle_compile`) replaces them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orbit_lsp.features import Feature, FeatureContext
from orbit_lsp.kernels import SOURCE_SUFFIXES
from orbit_lsp.runners.local import LocalRunner
from orbit_lsp.runs import result_filing
from orbit_lsp.runs.scheduler import Run
from orbit_lsp.specs import job_builder
from orbit_lsp.state.debounce import Debounce
from orbit_lsp.state.session import Frozen, Session
from orbit_remote.common import limits
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job

if TYPE_CHECKING:
    from orbit_lsp.runners.ssh.runner import SshRunner

log = logging.getLogger("orbit.keystrokes")

_PAUSE_S = 0.002
"""Edits that an editor sends at once are one."""


class Keystrokes(Feature):
    """Checks `.cu` files that are compiled while they are typed, where this machine has nvcc."""

    def __init__(
        self,
        session: Session,
        runner: Callable[[], LocalRunner | SshRunner],
        changed: Callable[[set[str]], None],
    ) -> None:
        self._session = session
        self._runner = runner
        self._changed = changed
        self._ids = itertools.count(1)
        self._agreed: set[str] = set()
        """Files of which the front end said what the last compile did."""
        self._pauses = Debounce(self._paused, "keystrokes")
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._tests: dict[str, asyncio.Task[None]] = {}

    def edited(self, uri: str) -> None:
        self._stop(uri)
        if uri in self._agreed:
            self._pauses.edited(uri, _PAUSE_S)

    def closed(self, uri: str) -> None:
        self._stop(uri)
        self._agreed.discard(uri)
        if test := self._tests.pop(uri, None):
            test.cancel()

    def shutdown(self) -> None:
        self._pauses.close()
        for task in (*self._checks.values(), *self._tests.values()):
            task.cancel()

    def _stop(self, uri: str) -> None:
        self._pauses.forget(uri)
        if check := self._checks.pop(uri, None):
            check.cancel()

    def _paused(self, uri: str) -> None:
        file = self._session.files.get(uri)
        if file is None or not file.scanned:
            return
        if frozen := self._session.freeze(uri):
            self._begin(self._checks, uri, self._check(frozen))

    def run_ended(self, run: Run) -> None:
        settings, uri = self._session.setup.settings, run.frozen.uri
        wanted = (
            settings.compile_on_idle and settings.compile_on_save and uri.lower().endswith(SOURCE_SUFFIXES)
        )
        wanted = wanted and len(run.frozen.text) <= limits.QUOTED.most
        machine = self._session.setup.machine
        if not (wanted and run.action == "compile" and run.job.language == "cuda" and run.built and machine):
            return
        alone = uri in self._session.files and self._session.files[uri].source is None
        if machine.nvcc and run.built.complete and alone and uri not in self._tests:
            self._begin(self._tests, uri, self._test(run, run.built))

    def _begin(self, tasks: dict[str, asyncio.Task[None]], uri: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="keystrokes")
        tasks[uri] = task
        task.add_done_callback(lambda done: self._done(tasks, uri, done))

    def _done(self, tasks: dict[str, asyncio.Task[None]], uri: str, task: asyncio.Task[None]) -> None:
        if tasks.get(uri) is task:
            del tasks[uri]
        if not task.cancelled() and (error := task.exception()):
            log.error("errors while typing are those of nvcc alone", exc_info=error)

    async def _test(self, run: Run, built: c.Built) -> None:
        """Make the front end wait with the headers of a file that was compiled, and compare what it says of that
        text.
        """
        typed = await self._runner().typed(replace(run.job, run=self._id()), start=True)
        uri = run.frozen.uri
        if uri not in self._session.files:
            return
        nvcc = _errors(built.problems)
        ours = _errors(self._explained(run.frozen, run.job, typed)) if typed else nvcc
        if typed and ours <= nvcc and bool(ours) == bool(nvcc):
            self._agreed.add(uri)
        else:
            self._agreed.discard(uri)

    async def _check(self, frozen: Frozen) -> None:
        job = job_builder.make(self._session, frozen, "compile", self._id())
        typed = await self._runner().typed(job, start=False)
        file = self._session.files.get(frozen.uri)
        if typed and file and file.document.version == frozen.version:
            problems = self._explained(frozen, job, typed)
            self._changed(result_filing.typed(self._session, frozen, problems))

    def _explained(self, frozen: Frozen, job: Job, typed: c.Built) -> tuple[c.Problem, ...]:
        from orbit_lsp.compilation import compiler_messages

        file = self._session.files[frozen.uri]
        return compiler_messages.explained(typed.problems, job.path, job.text, file.compilation)

    def _id(self) -> str:
        return f"typed-{next(self._ids)}"


def _errors(problems: Iterable[c.Problem]) -> set[tuple[str, int, str]]:
    """Return the errors by file, line and words. Columns do not count: nvcc gives none for a line with a system
    header's macro.
    """
    errors = [each for each in problems if (each.severity, each.tool) == ("error", "nvcc")]
    return {
        (each.place.file, each.place.line, each.message) if each.place else ("", 0, each.message)
        for each in errors
    }


def feature(context: FeatureContext) -> Feature:
    return Keystrokes(context.session, context.places.compiler, context.changed)
