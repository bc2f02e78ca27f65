"""What each kernel of an open CUDA file needs on every GPU: compiled beside the loop once the machine is idle, or for a hover."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

from orbit_lsp.runners import Runner
from orbit_lsp.runs import result_filing
from orbit_lsp.runs.scheduler import Run, Scheduler
from orbit_lsp.specs import job_builder
from orbit_lsp.state import staleness
from orbit_lsp.state.debounce import Debounce
from orbit_lsp.state.session import Frozen, Session
from orbit_remote.common import architectures
from orbit_remote.common import messages as c

log = logging.getLogger("orbit.every_gpu")

CAPABILITIES = ("75", "80", "86", "89", "90", "100", "120")
"""Compute capabilities without their dot, in the order of time."""
_IDLE_S = 3.0
"""How long a file is left alone after its compile before the machine is used for this."""


class EveryGpu:
    """One front-end pass for an older virtual architecture, assembled for each real one: a preview, because code under
    `__CUDA_ARCH__` is that of the older one. Files that ask for it are compiled for each architecture by itself.
    """

    def __init__(
        self,
        session: Session,
        runs: Scheduler,
        runner: Callable[[], Runner],
        changed: Callable[[set[str]], None],
    ) -> None:
        self._session = session
        self._runs = runs
        self._runner = runner
        self._changed = changed
        self._idle = Debounce(self._when_idle, "every GPU")
        self._ids = itertools.count(1)  # of their own: those of runs are shown to authors
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, tuple[str, str]] = {}
        """The text and the settings that were compiled last, by file."""
        runs.when_ended(self._ended)

    def edited(self, uri: str) -> None:
        self._idle.forget(uri)
        if task := self._tasks.pop(uri, None):
            task.cancel()
            self._asked.pop(uri, None)

    def closed(self, uri: str) -> None:
        self.edited(uri)
        self._asked.pop(uri, None)

    def close(self) -> None:
        self._idle.close()
        for task in self._tasks.values():
            task.cancel()

    def wanted(self, uri: str) -> asyncio.Task[None] | None:
        """Compile now, if that has not been done of this text; None where there is nothing to do."""
        frozen = self._session.freeze(uri)
        setup = self._session.setup
        if frozen is None or frozen.scan.language != "cuda" or setup.settings.every_gpu == "off":
            return None
        job = job_builder.make(self._session, frozen, "compile", "")
        asked = frozen.text, staleness.job_key(job)
        if not frozen.scan.kernels or self._asked.get(uri) == asked:
            return None
        if not (setup.machine and setup.machine.nvcc):  # nothing is rented for a preview
            return None
        self.edited(uri)
        self._asked[uri] = asked
        task = asyncio.create_task(self._compile(frozen, job), name="every GPU")
        self._tasks[uri] = task
        task.add_done_callback(lambda done: self._done(uri, done))
        return task

    def _done(self, uri: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(uri) is task:
            del self._tasks[uri]
        if not task.cancelled() and (error := task.exception()):
            log.error("what kernels need on every GPU is not known", exc_info=error)

    def _ended(self, run: Run) -> None:
        compiled = run.action == "compile" and run.finished is not None and run.finished.outcome == "ok"
        if compiled and self._session.setup.settings.every_gpu == "idle":
            self._idle.edited(run.frozen.uri, _IDLE_S)

    def _when_idle(self, uri: str) -> None:
        if not self._runs.under_way() and not _is_busy():
            self.wanted(uri)

    async def _compile(self, frozen: Frozen, job: c.Job) -> None:
        for flags in passes(frozen.text):
            asked = replace(
                job,
                run=f"every-gpu-{next(self._ids)}",
                flags=(*architectures.without_targets(job.flags), *flags),
            )
            built: c.Built | None = None
            finished: c.Finished | None = None
            async with aclosing(self._runner().run(asked)) as events:
                async for event in events:
                    built = event if isinstance(event, c.Built) else built
                    finished = event if isinstance(event, c.Finished) else finished
            if built and finished and finished.outcome == "ok":
                figures = result_filing.figures(self._session, frozen, job, built)
                self._session.results.every_gpu.update(figures)
                self._changed({frozen.uri})
                return
            if finished is None or finished.outcome != "compile error":
                return


def passes(text: str) -> list[tuple[str, ...]]:
    """The flags to try, one after another until the file compiles: the oldest front end covers the most GPUs."""
    threads = ("-t", str(min(len(CAPABILITIES), os.cpu_count() or 1)))
    if "__CUDA_ARCH__" in text:
        return [(*_targets(CAPABILITIES[i:]), *threads) for i in (0, 1, 4)]
    return [(*_targets(CAPABILITIES[i:], CAPABILITIES[i]), *threads) for i in (0, 1, 4)]


def _targets(capabilities: tuple[str, ...], virtual: str = "") -> tuple[str, ...]:
    """`virtual` is the architecture of the front end for all of them; without it each has its own."""
    return tuple(
        word
        for capability in capabilities
        for word in ("-gencode", f"arch=compute_{virtual or capability},code=sm_{capability}")
    )


def _is_busy() -> bool:
    """Whether other programs use this machine's processors; unknown on Windows, where they are taken as idle."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] >= (os.cpu_count() or 1)
