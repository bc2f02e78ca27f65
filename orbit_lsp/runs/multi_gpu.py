"""*Run on all*: runs one file on several GPUs at the same time, rented from Modal or of hosts reached by ssh, and
makes a table of the results.

The GPUs are cancelled together. If one fails, the others go on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

from orbit_lsp.places.places import Places
from orbit_lsp.runners.modal import spending
from orbit_lsp.runs import result_filing
from orbit_lsp.runs.scheduler import CANCELLED, Run, RunFailedError, RunWatcher, Scheduler, unfollowed
from orbit_lsp.specs import job_builder
from orbit_lsp.state import ssh_hosts
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import GpuResult, MultiGpuResult
from orbit_lsp.state.session import Session
from orbit_remote.common import architectures
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Job

log = logging.getLogger("orbit.runs")
_PREFIX = "all"


@dataclass(frozen=True, slots=True)
class MultiGpu:
    """Starts a kernel on several GPUs at once."""

    session: Session
    places: Places
    scheduler: Scheduler
    watcher: RunWatcher

    def start(self, uri: str, target: KernelId | None, gpus: Sequence[str]) -> Run | None:
        """Start a file on each of `gpus`, by the launch spec of `target` if it has one, and return at once. Join such
        a run of the same kernel that is under way. Return None if the file is not open.
        """
        if (frozen := self.session.freeze(uri)) is None:
            return None
        targets = {target} if target else set[KernelId]()
        if under_way := self.scheduler.several(uri, targets, _PREFIX):
            return under_way
        plan = job_builder.plan_of(self.session, target)
        job = job_builder.make(self.session, frozen, "run", self.scheduler.new_id(_PREFIX), plan)
        run = Run(job.run, "run", frozen, job, targets, self.session.disk.changes, plan, of_several=True)
        if why := plan.refusal:
            return self.scheduler.refuse(run, why)
        self.scheduler.launch(run, _OnGpus(run, gpus, self))
        return run


class _OnGpus:
    """Runs one kernel on each of several GPUs. The run stands for all of their jobs."""

    def __init__(self, run: Run, gpus: Sequence[str], tools: MultiGpu) -> None:
        self._run = run
        self._tools = tools
        self._jobs = {
            gpu: replace(
                run.job, run=f"{run.id}.{gpu}", gpu=gpu, architecture=architectures.architecture_for(gpu)
            )
            for gpu in dict.fromkeys(gpus)
        }
        self._states: dict[str, str] = {}
        self._built: dict[str, c.Built] = {}
        self._finished: dict[str, c.Finished] = {}

    async def perform(self) -> None:
        rented = {gpu: job for gpu, job in self._jobs.items() if not ssh_hosts.host_of(gpu)}
        wanted = [self._tools.places.rental.wanted(job.run, gpu) for gpu, job in rented.items()]
        try:
            if wanted and (failure := await self._tools.places.rental.rent(wanted)):
                raise RunFailedError(failure)
            async with asyncio.TaskGroup() as group:
                for gpu, job in self._jobs.items():
                    group.create_task(self._run_on(gpu, job), name=job.run)
        finally:
            self._tools.places.rental.budget.over(wanted)

    def end(self, failure: c.Failure | None) -> tuple[c.Finished, set[str]]:
        """Store the results that have come. The other jobs were cancelled."""
        for gpu, job in self._jobs.items():
            self._finished.setdefault(gpu, c.failed(job.run, failure or CANCELLED))
        changed = self._store()
        return overall(self._run.id, {gpu: self._finished[gpu] for gpu in self._jobs}), changed

    async def _run_on(self, gpu: str, job: Job) -> None:
        try:
            async with aclosing(self._tools.places.runner_on(gpu).run(job)) as events:
                async for event in events:
                    self._take(gpu, event)
        except Exception as error:  # one that fails takes no other with it
            log.exception("%s failed", job.run)
            self._finished[gpu] = c.failed(job.run, unfollowed(error))

    def _take(self, gpu: str, event: c.Event) -> None:
        match event:
            case c.Stage(state=state, why=why):
                self._states[gpu] = f"{state} ({why})" if why else state
                self._show()
            case c.Output(stream=stream, text=text):
                lines = "".join(f"[{gpu}] {line}" for line in text.splitlines(keepends=True))
                self._tools.watcher.output(self._run, stream, lines if lines.endswith("\n") else lines + "\n")
            case c.Built():
                self._built[gpu] = event
            case c.Finished():
                self._finished[gpu] = event
                self._states[gpu] = "done" if event.outcome == "ok" else event.outcome
                self._show()
            case _:
                pass

    def _show(self) -> None:
        status = " · ".join(f"{gpu} {self._states.get(gpu, 'queued')}" for gpu in self._jobs)
        self._tools.scheduler.mark(self._run, "running", status)
        self._tools.watcher.stage(self._run, "running", status)

    def _store(self) -> set[str]:
        """Store the table under every kernel that was launched, and what the main GPU reported like the result of any
        run.
        """
        run = self._run
        rows: dict[KernelId, dict[str, GpuResult]] = {}
        digests: dict[KernelId, str] = {}
        for gpu, finished in self._finished.items():
            price = None if ssh_hosts.host_of(gpu) else self._tools.places.rental.costs.price(gpu)
            priced = (price.usd_per_s, price.rates) if price else (None, "")
            launched = result_filing.launched(
                self._tools.session, run.frozen, self._jobs[gpu], run.targets, finished
            )
            for target, (digest, launches) in launched.items():
                rows.setdefault(target, {})[gpu] = GpuResult(gpu, finished, launches, *priced)
                digests[target] = digest
            for target in run.targets:
                rows.setdefault(target, {}).setdefault(gpu, GpuResult(gpu, finished, (), *priced))
        current = {target: digest for target, _, digest in self._tools.session.kernels(run.frozen.uri)}
        now = time.time()
        for target, by_gpu in rows.items():
            every = [by_gpu.get(gpu, GpuResult(gpu, self._finished[gpu], ())) for gpu in self._jobs]
            digest = digests.get(target) or current.get(target, "")
            self._tools.session.results.multi_gpu[target] = MultiGpuResult(
                digest, now, tuple(every), run.plan.elements
            )
        changed = {target.uri for target in rows}
        main = job_builder.gpu_of(self._tools.session, run.plan)
        if self._tools.session.setup.place() != "modal" or main not in self._jobs:
            return changed
        job = replace(self._jobs[main], run=run.id)
        return changed | result_filing.finished(
            self._tools.session,
            run.frozen,
            job,
            run.targets,
            self._built.get(main),
            self._finished[main],
            run.plan,
        )


def overall(name: str, finished: dict[str, c.Finished]) -> c.Finished:
    """Return one end for all of them: ok if any was. Its launches have the GPUs' names."""
    good = {gpu: ended for gpu, ended in finished.items() if ended.outcome == "ok"}
    launches = [
        replace(max(finished.launches, key=lambda it: it.timing.median * it.count), name=gpu)
        for gpu, finished in good.items()
        if finished.launches
    ]
    cost = spending.total([ended.cost for ended in finished.values()])
    if good:
        bad = [f"{gpu}: {_why(ended)}" for gpu, ended in finished.items() if gpu not in good]
        return c.ok(name, launches=tuple(launches), remarks=tuple(bad), cost=cost)
    first = next(iter(finished.values()))
    return c.Finished(name, first.outcome, first.failure, cost=cost)


def _why(finished: c.Finished) -> str:
    return finished.failure.message if finished.failure else finished.outcome
