"""*Run on all*: one file on several GPUs side by side, rented from Modal, and a table of what came of it.

The GPUs work at the same time; they are cancelled together, and one that fails takes no other with it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from orbit_lsp.runners.modal import spending
from orbit_lsp.runs import result_filing
from orbit_lsp.runs.run_environment import Environment
from orbit_lsp.runs.run_group import Joint
from orbit_lsp.runs.scheduler import Run, Watcher
from orbit_lsp.specs import job_builder as jobs
from orbit_lsp.state import placement
from orbit_lsp.state.session import Comparison, KernelId, OnGpu, Running, Session
from orbit_remote.common import architectures
from orbit_remote.common import messages as c

log = logging.getLogger("orbit.runs")


@dataclass(slots=True, eq=False)
class Together:
    """The runs of one comparison. `run` stands for them all: its bar, its lens, its end."""

    run: Run
    jobs: dict[str, c.Job]
    states: dict[str, str] = field(default_factory=dict[str, str])
    built: dict[str, c.Built] = field(default_factory=dict[str, c.Built])
    finished: dict[str, c.Finished] = field(default_factory=dict[str, c.Finished])

    def status(self) -> str:
        return " · ".join(f"{gpu} {self.states.get(gpu, 'queued')}" for gpu in self.jobs)


class Comparisons(Joint[Together]):
    def __init__(self, session: Session, environment: Environment, watcher: Watcher) -> None:
        super().__init__()
        self._session = session
        self._environment = environment
        self._watcher = watcher
        self.filed: Callable[[Run], None] | None = None
        """Told of what came of the main GPU, once it is in the session."""
        self._ids = itertools.count(1)

    def start(self, uri: str, target: KernelId | None, gpus: Sequence[str]) -> Run | None:
        """Start a file, by the launch spec of `target` where it has one, on each of `gpus`, and return at
        once; a comparison of the same kernel that is under way is joined. None where the file is not open.
        """
        if (frozen := self._session.freeze(uri)) is None:
            return None
        targets = {target} if target else set[KernelId]()
        for other in self._active.values():
            if other.run.frozen.uri == uri and other.run.targets == targets:
                return other.run
        recipe = jobs.recipe_of(self._session, target)
        name = f"all{next(self._ids)}"
        made = jobs.make(self._session, frozen, "run", name, recipe)
        on = {
            gpu: replace(made, run=f"{name}.{gpu}", gpu=gpu, architecture=architectures.architecture_for(gpu))
            for gpu in dict.fromkeys(gpus)
        }
        run = Run(name, "run", frozen, made, targets, self._session.disk, recipe)
        if why := recipe.refusal:
            run.finished = c.Finished(
                name, "compile error", c.Failure("compile error", why, "nothing was run")
            )
            run.task = asyncio.create_task(_over(run.finished))
            self._watcher.end(run, run.finished)
            return run
        together = Together(run, on)
        self._active[name] = together
        self._mark(together)
        run.task = asyncio.create_task(self._follow(together), name=f"run on all {name}")
        run.task.add_done_callback(lambda task: self._end(together) if task.cancelled() else None)
        self._watcher.begin(run)
        self._watcher.changed({uri})
        return run

    # -- following ----------------------------------------------------------------------------

    async def _follow(self, one: Together) -> c.Finished:
        wanted = [self._environment.wanted(job.run, gpu) for gpu, job in one.jobs.items()]
        try:
            if failure := await self._environment.rent(wanted):
                refused = {
                    gpu: c.Finished(job.run, failure.category, failure) for gpu, job in one.jobs.items()
                }
                one.finished.update(refused)
            else:
                async with asyncio.TaskGroup() as group:
                    for gpu, job in one.jobs.items():
                        group.create_task(self._carry_out(one, gpu, job), name=job.run)
        except asyncio.CancelledError:
            log.info("%s was cancelled", one.run.id)
        finally:
            self._environment.budget.over(wanted)
        return self._end(one)

    async def _carry_out(self, one: Together, gpu: str, job: c.Job) -> None:
        try:
            async with aclosing(self._environment.modal().run(job)) as events:
                async for event in events:
                    self._take(one, gpu, event)
        except Exception as error:
            log.exception("%s failed", job.run)
            text = f"the run could not be followed: {type(error).__name__}: {error}"
            failure = c.Failure("infrastructure", text, "see the server's log", retryable=True)
            one.finished[gpu] = c.Finished(job.run, "infrastructure", failure)

    def _take(self, one: Together, gpu: str, event: c.Event) -> None:
        match event:
            case c.Stage(state=state, why=why):
                one.states[gpu] = f"{state} ({why})" if why else state
                self._told(one)
            case c.Output(stream=stream, text=text):
                lines = "".join(f"[{gpu}] {line}" for line in text.splitlines(keepends=True))
                self._watcher.output(one.run, stream, lines if lines.endswith("\n") else lines + "\n")
            case c.Built():
                one.built[gpu] = event
            case c.Finished():
                one.finished[gpu] = event
                one.states[gpu] = "done" if event.outcome == "ok" else event.outcome
                self._told(one)
            case _:
                pass

    def _told(self, one: Together) -> None:
        self._mark(one)
        self._watcher.stage(one.run, "running", one.status())

    def _mark(self, one: Together) -> None:
        for target in one.run.targets:
            known = self._session.running.get(target)
            began = known.began if known and known.run == one.run.id else time.monotonic()
            self._session.running[target] = Running(one.run.id, "running", one.status(), began)

    def _end(self, one: Together) -> c.Finished:
        """Exactly once, however it ended: what came is filed, and what did not come was cancelled."""
        del self._active[one.run.id]
        for target in [t for t, running in self._session.running.items() if running.run == one.run.id]:
            del self._session.running[target]
        for gpu, job in one.jobs.items():
            one.finished.setdefault(
                gpu, c.Finished(job.run, "cancelled", c.Failure("cancelled", "cancelled"))
            )
        changed = {one.run.frozen.uri} | self._file(one)
        one.run.finished = finished = overall(one.run.id, {gpu: one.finished[gpu] for gpu in one.jobs})
        self._watcher.end(one.run, finished)
        self._watcher.changed(changed)
        return finished

    def _file(self, one: Together) -> set[str]:
        """The table under every kernel that was launched; what the main GPU said as any run of it."""
        run = one.run
        rows: dict[KernelId, dict[str, OnGpu]] = {}
        digests: dict[KernelId, str] = {}
        for gpu, finished in one.finished.items():
            price = self._environment.costs.price(gpu)
            priced = (price.usd_per_s, price.rates) if price else (None, "")
            found = result_filing.launched(self._session, run.frozen, one.jobs[gpu], run.targets, finished)
            for target, (digest, launches) in found.items():
                rows.setdefault(target, {})[gpu] = OnGpu(gpu, finished, launches, *priced)
                digests[target] = digest
            for target in run.targets:
                rows.setdefault(target, {}).setdefault(gpu, OnGpu(gpu, finished, (), *priced))
        current = {target: digest for target, _, digest in self._session.kernels(run.frozen.uri)}
        now = time.time()
        for target, by_gpu in rows.items():
            every = [by_gpu.get(gpu, OnGpu(gpu, one.finished[gpu], ())) for gpu in one.jobs]
            digest = digests.get(target) or current.get(target, "")
            self._session.comparisons[target] = Comparison(digest, now, tuple(every), run.recipe.elements)
        main = jobs.gpu_of(self._session, run.recipe)
        if placement.place(self._session) != "modal" or main not in one.jobs:
            return {target.uri for target in rows}
        job = replace(one.jobs[main], run=run.id)
        filed = result_filing.finished(
            self._session, run.frozen, job, run.targets, one.built.get(main), one.finished[main], run.recipe
        )
        if self.filed:
            self.filed(run)
        return {target.uri for target in rows} | filed


def overall(name: str, finished: dict[str, c.Finished]) -> c.Finished:
    """One end for all of them: ok where any was, and its launches have the GPUs' names."""
    good = {gpu: one for gpu, one in finished.items() if one.outcome == "ok"}
    launches = [
        replace(max(one.launches, key=lambda it: it.timing.median * it.count), name=gpu)
        for gpu, one in good.items()
        if one.launches
    ]
    cost = spending.total([one.cost for one in finished.values()])
    if good:
        bad = [f"{gpu}: {_why(one)}" for gpu, one in finished.items() if gpu not in good]
        return c.Finished(name, "ok", launches=tuple(launches), remarks=tuple(bad), cost=cost)
    first = next(iter(finished.values()))
    return c.Finished(name, first.outcome, first.failure, cost=cost)


def _why(finished: c.Finished) -> str:
    return finished.failure.message if finished.failure else finished.outcome


async def _over(finished: c.Finished) -> c.Finished:
    return finished
