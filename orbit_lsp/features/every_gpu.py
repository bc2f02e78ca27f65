"""What each kernel of an open file needs on every GPU. It is compiled for them once the machine is idle, or for a
hover.

Each compile imports a Triton file. So it is compiled only after its own compile has succeeded, once, and only with
the text of that compile.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

from orbit_lsp.features import Feature, FeatureContext
from orbit_lsp.runners import Runner
from orbit_lsp.runs import result_filing
from orbit_lsp.runs.scheduler import Run, Scheduler
from orbit_lsp.specs import job_builder
from orbit_lsp.state import staleness
from orbit_lsp.state.debounce import Debounce
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import CompilerFigures
from orbit_lsp.state.session import Frozen, Session
from orbit_remote.common import architectures
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job

log = logging.getLogger("orbit.every_gpu")

CAPABILITIES = ("75", "80", "86", "89", "90", "100", "120")
"""Compute capabilities without their dot, in the order of time."""
WARPS = (1, 2, 4, 8, 16)
"""Values of `num_warps` that Triton kernels are compiled with, besides their own."""
_TRITON_DEFAULT = "sm_90"
"""What Triton compiles for where neither a GPU nor a setting says for what."""
_IDLE_S = 3.0
"""How long a file is left alone after its compile before the machine is used for this."""


class EveryGpu(Feature):
    """Compiles kernels for every GPU.

    CUDA: the front end runs once, for an older virtual architecture, and its output is assembled for each real one.
    That is a preview, because code under `__CUDA_ARCH__` is that of the older architecture. Files that ask for
    `__CUDA_ARCH__` are compiled for each architecture by itself. Triton: one job for each architecture. The job for
    the architecture of the file's own compile also tries other numbers of warps.
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
        self._ids = itertools.count(1)  # a count of its own, because authors see the numbers of runs
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, tuple[str, str]] = {}
        """The text and the settings that were compiled last, by file."""
        self._imported: dict[str, tuple[str, int]] = {}
        """The text of the last compile of a Triton file, and how many changes on disk had been seen then."""

    def edited(self, uri: str) -> None:
        self._idle.forget(uri)
        if task := self._tasks.pop(uri, None):
            task.cancel()
            self._asked.pop(uri, None)

    def closed(self, uri: str) -> None:
        self.edited(uri)
        self._asked.pop(uri, None)

    def shutdown(self) -> None:
        self._idle.close()
        for task in self._tasks.values():
            task.cancel()

    def hovered(self, uri: str) -> None:
        self.wanted(uri)

    def wanted(self, uri: str) -> asyncio.Task[None] | None:
        """Compile the text now, unless that has been done already. Return None if there is nothing to do."""
        frozen, file = self._session.freeze(uri), self._session.files.get(uri)
        setup = self._session.setup
        if frozen is None or file is None or not file.builds or setup.settings.every_gpu == "off":
            return None
        triton = frozen.scan.language == "triton"
        if triton and self._imported.get(uri) != (frozen.text, self._session.disk.changes):
            return None
        job = job_builder.make(self._session, frozen, "compile", "")
        asked = frozen.text, staleness.job_key(job)
        if not frozen.scan.kernels or self._asked.get(uri) == asked:
            return None
        machine = setup.machine  # nothing is rented for a preview
        if not (machine and (machine.packages.get("triton") if triton else machine.nvcc)):
            return None
        self.edited(uri)
        self._imported.pop(uri, None)
        self._asked[uri] = asked
        work = self._compile_triton(frozen, job) if triton else self._compile(frozen, job)
        task = asyncio.create_task(work, name="every GPU")
        self._tasks[uri] = task
        task.add_done_callback(lambda done: self._done(uri, done))
        return task

    def _done(self, uri: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(uri) is task:
            del self._tasks[uri]
        if not task.cancelled() and (error := task.exception()):
            log.error("what kernels need on every GPU is not known", exc_info=error)

    def run_ended(self, run: Run) -> None:
        if run.action != "compile" or run.finished is None or run.finished.outcome != "ok":
            return
        uri = run.frozen.uri
        if run.job.language == "triton" and run.job.gpu is None:
            self._imported[uri] = run.frozen.text, self._session.disk.changes
            self._asked.pop(uri, None)
        if self._session.setup.settings.every_gpu == "idle":
            self._idle.edited(uri, _IDLE_S)

    def _when_idle(self, uri: str) -> None:
        if not self._runs.under_way() and not _is_busy():
            self.wanted(uri)

    async def _compile(self, frozen: Frozen, job: Job) -> None:
        own = architectures.without_targets(job.flags)
        for flags in passes(frozen.text):
            built, finished = await self._built(replace(job, flags=(*own, *flags)))
            if built and finished and finished.outcome == "ok":
                figures = result_filing.figures(self._session, frozen, job, built)
                self._session.results.every_gpu.update(figures)
                self._changed({frozen.uri})
                return
            if finished is None or finished.outcome != "compile error":
                return

    async def _compile_triton(self, frozen: Frozen, job: Job) -> None:
        known: dict[KernelId, CompilerFigures] = {}
        not_compiled: dict[KernelId, dict[str, str]] = {}
        own = (job.architecture or _TRITON_DEFAULT).removeprefix("sm_").rstrip("af")
        for capability in dict.fromkeys((*CAPABILITIES, own)):
            if self._runs.under_way():  # it may wait for the process that this takes
                self._imported[frozen.uri] = frozen.text, self._session.disk.changes
                self._asked.pop(frozen.uri, None)
                return
            warps = WARPS if capability == own else ()
            asked = replace(job, architecture=f"sm_{capability}", warps=warps, gpu=None)
            built, finished = await self._built(asked)
            if built is None or finished is None or finished.outcome == "cancelled":
                return
            compiled = result_filing.figures(self._session, frozen, job, built)
            for target, figures in compiled.items():
                before = known.get(target)
                resources = (*(before.resources if before else ()), *figures.resources)
                known[target] = replace(figures, resources=resources)
            why = result_filing.not_compiled(self._session, frozen, compiled, built, finished)
            for target, reason in why.items():
                not_compiled.setdefault(target, {})[f"sm_{capability}"] = reason
        for target, reasons in not_compiled.items():
            if target in known:
                known[target] = replace(known[target], not_compiled=reasons)
        self._session.results.every_gpu.update(known)
        self._changed({frozen.uri})

    async def _built(self, job: Job) -> tuple[c.Built | None, c.Finished | None]:
        built: c.Built | None = None
        finished: c.Finished | None = None
        job = replace(job, run=f"every-gpu-{next(self._ids)}")
        async with aclosing(self._runner().run(job)) as events:
            async for event in events:
                built = event if isinstance(event, c.Built) else built
                finished = event if isinstance(event, c.Finished) else finished
        return built, finished


def feature(context: FeatureContext) -> Feature:
    return EveryGpu(context.session, context.runs, context.places.compiler, context.changed)


def passes(text: str) -> list[tuple[str, ...]]:
    """Return the flags of several attempts; the first that compiles counts. The first attempt covers every GPU, and
    each later one leaves out more of the old ones.
    """
    threads = ("-t", str(min(len(CAPABILITIES), os.cpu_count() or 1)))
    if "__CUDA_ARCH__" in text:
        return [(*_targets(CAPABILITIES[i:]), *threads) for i in (0, 1, 4)]
    return [(*_targets(CAPABILITIES[i:], CAPABILITIES[i]), *threads) for i in (0, 1, 4)]


def _targets(capabilities: tuple[str, ...], virtual: str = "") -> tuple[str, ...]:
    """Return the flags that name the architectures. With `virtual`, the front end compiles for this one architecture
    on behalf of all. Otherwise each has its own.
    """
    return tuple(
        word
        for capability in capabilities
        for word in ("-gencode", f"arch=compute_{virtual or capability},code=sm_{capability}")
    )


def _is_busy() -> bool:
    """Return whether other programs use this machine's processors. On Windows that is unknown, and the answer is
    False.
    """
    return hasattr(os, "getloadavg") and os.getloadavg()[0] >= (os.cpu_count() or 1)
