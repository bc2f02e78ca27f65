"""The life of a job: start, follow, cancel, close. Knows the session, not the editor."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from orbit_lsp.profile import report_store
from orbit_lsp.runners import Runner
from orbit_lsp.runs import memory_filing, profile_filing, result_filing
from orbit_lsp.specs import job_builder
from orbit_lsp.specs.launch_plan import PROGRAM, Recipe
from orbit_lsp.state import harness, placement
from orbit_lsp.state.session import Frozen, KernelId, Running, Session
from orbit_remote.common import messages as c

log = logging.getLogger("orbit.runs")

Action = Literal["compile", "run", "profile", "sanitize"]
_DOING = {"compile": "Compile", "run": "Run", "profile": "Profile", "sanitize": "Check memory of"}
Lane = tuple[str, Action, str]
"""Of one (uri, action, kernel that is run by itself) one request waits at most."""
_TICK_S = 1.0
"""How often the seconds in a running kernel's lens are renewed."""


@dataclass(slots=True, eq=False)
class Run:
    id: str
    action: Action
    frozen: Frozen
    job: c.Job
    targets: set[KernelId] = field(default_factory=set["KernelId"])
    disk: int = 0
    """`Session.disk` when it was made: a header saved since then may not have been read."""
    recipe: Recipe = PROGRAM
    live: bool = False
    """Nobody has clicked: what it says stands on its line, and is no message."""
    refused: bool = False
    named: str = ""
    """What it is called where it is more than one job."""
    built: c.Built | None = None
    finished: c.Finished | None = None
    report: Path | None = None
    """Nsight Compute's own file, as it is kept here."""
    dumps: Path | None = None
    """The folder of what the compiler made."""
    task: asyncio.Task[c.Finished] | None = None

    @property
    def lane(self) -> Lane:
        kernel = self.job.definition.qualified if self.job.definition else self.job.kernel
        return self.frozen.uri, self.action, kernel or ""

    @property
    def title(self) -> str:
        if self.named:
            return self.named
        names = ", ".join(sorted(harness.named(target) or target.key for target in self.targets))
        name = names or self.frozen.uri.rpartition("/")[2]
        if self.job.through == "contract" and self.action == "run":
            return f"Check {name}"
        return f"{_DOING[self.action]} {name}"


class Watcher(Protocol):
    """Those who see a run: an editor's progress bar and hints, or a terminal."""

    def begin(self, run: Run) -> None: ...
    def stage(self, run: Run, state: c.State, why: str) -> None: ...
    def output(self, run: Run, stream: str, text: str) -> None: ...
    def end(self, run: Run, finished: c.Finished) -> None: ...
    def changed(self, uris: set[str]) -> None:
        """Diagnostics, hints or lenses of these files are others now."""
        ...


class Runs:
    def __init__(
        self,
        session: Session,
        runner: Callable[[c.Job], Awaitable[Runner]],
        watcher: Watcher,
        reports: Callable[[], Path] | None = None,
    ) -> None:
        """`reports` names the folder that profiles are kept in; without it none are."""
        self._session = session
        self._runner = runner
        self._watcher = watcher
        self._reports = reports
        self.filed: Callable[[Run], None] | None = None
        """Told of every run once what it said is in the session."""
        self._active: dict[str, Run] = {}
        self._waiting: dict[Lane, Run] = {}
        self._ids = itertools.count(1)

    # -- starting -----------------------------------------------------------------------------

    def ahead(self, target: KernelId) -> Coroutine[Any, Any, None] | None:
        """Build what a run of the kernel will launch, so that the run finds it built, and say nothing of it; None
        where that is of no use: for a program, for Triton, on a rented GPU.
        """
        frozen = self._session.freeze(target.uri)
        recipe = job_builder.recipe_of(self._session, target)
        if frozen is None or recipe.through != "spec" or recipe.refusal or frozen.scan.language != "cuda":
            return None
        if placement.place(self._session) != "local":
            return None
        return self._build(job_builder.make(self._session, frozen, "build", f"r{next(self._ids)}", recipe))

    async def _build(self, job: c.Job) -> None:
        runner = await self._runner(job)
        async with aclosing(runner.run(job)) as events:
            async for _ in events:
                pass

    def start(
        self,
        action: Action,
        uri: str,
        target: KernelId | None = None,
        *,
        program: bool = False,
        live: bool = False,
        restricted: bool = False,
        detail: Literal["click", "full"] = "click",
        tools: tuple[str, ...] = (),
    ) -> Run | None:
        """Start a job for a file and return at once; None where the file is not open.

        An identical job that is under way is joined. While another job of the same kind and file is
        under way the newest request waits for it, in place of an older one that waits for the same
        kernel. A kernel whose launch spec has a mistake is not run: the `Run` is over at once. `program`
        asks for the file's own program whatever the launch spec says; `restricted` says that the code is
        not the author's. `detail` is of a profile, `tools` are those of compute-sanitizer.
        """
        if (frozen := self._session.freeze(uri)) is None:
            return None
        own = action != "compile" and not program
        recipe = job_builder.recipe_of(self._session, target) if own else PROGRAM
        job = job_builder.make(self._session, frozen, action, f"r{next(self._ids)}", recipe)
        if action in ("profile", "sanitize"):
            job = job_builder.under_a_tool(self._session, job, target, detail, tools)
        if restricted:
            job = job_builder.restricted(self._session, job, recipe)
        targets = {target} if target else set[KernelId]()
        run = Run(job.run, action, frozen, job, targets, self._session.disk, recipe, live)
        if why := job_builder.refusal(self._session, recipe):
            return self._refuse(run, why)
        active = [
            other for other in self._active.values() if (other.frozen.uri, other.action) == (uri, action)
        ]
        for other in active:
            same = replace(other.job, run=job.run) == job and other.disk == run.disk
            if same and not _cancelling(other):
                known = next((r for r in self._session.running.values() if r.run == other.id), None)
                other.targets |= run.targets
                if known:  # the kernel that joins waits for the same
                    self._mark(other, known.state, known.why)
                self._watcher.changed({uri})
                return other
        if active:
            if older := self._waiting.pop(run.lane, None):
                self._settle(older, _replaced(older))
            self._waiting[run.lane] = run
            if action == "compile":  # its answer would be of an older text
                for other in active:
                    self._cancel(other)
            self._watcher.changed({uri})
            return run
        self._launch(run)
        return run

    def cancel(self, target: KernelId) -> bool:
        """Cancel whatever is under way for `target`; False where nothing is."""
        ids = [run.id for run in self.under_way() if run.action != "compile" and target in run.targets]
        return sum(map(self.cancel_run, reversed(ids))) > 0  # what waits first, or it would be started

    def cancel_run(self, run_id: str) -> bool:
        for place, waiting in list(self._waiting.items()):
            if waiting.id == run_id:
                del self._waiting[place]
                self._settle(waiting, _cancelled(waiting))
                return True
        run = self._active.get(run_id)
        return self._cancel(run) if run else False

    def cancel_file(self, uri: str, action: Action) -> None:
        for run in list(self._active.values()):
            if (run.frozen.uri, run.action) == (uri, action):
                self._cancel(run)

    def under_way(self) -> list[Run]:
        return [*self._active.values(), *self._waiting.values()]

    async def close(self) -> None:
        self._waiting.clear()
        tasks = [run.task for run in self._active.values() if run.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _refuse(self, run: Run, why: str) -> Run:
        """A run that never begins; the editor shows the mistakes themselves while they are typed."""
        failure = c.Failure("compile error", why, "nothing was run")
        run.finished = c.Finished(run.id, "compile error", failure)
        run.refused = True
        run.task = asyncio.create_task(_over(run.finished), name=f"refused {run.id}")
        self._watcher.end(run, run.finished)
        return run

    # -- following ----------------------------------------------------------------------------

    def _launch(self, run: Run) -> None:
        self._active[run.id] = run
        self._mark(run, "queued", "")
        run.task = asyncio.create_task(self._follow(run), name=f"{run.action} {run.id}")
        run.task.add_done_callback(lambda task: self._unbegun(run) if task.cancelled() else None)
        self._watcher.begin(run)
        self._watcher.changed({run.frozen.uri})

    async def _follow(self, run: Run) -> c.Finished:
        log.info("%s %s of %s begins", run.id, run.action, run.frozen.uri)
        ticking = asyncio.create_task(self._tick(run)) if run.action != "compile" else None
        try:
            runner = await self._runner(run.job)
            async with aclosing(runner.run(run.job)) as events:
                async for event in events:
                    self._take(run, event)
            finished = await self._kept(run, run.finished or _lost(run))
        except asyncio.CancelledError:
            finished = _cancelled(run)
        except Exception as error:
            log.exception("%s failed", run.id)
            text = f"the run could not be followed: {type(error).__name__}: {error}"
            failure = c.Failure("infrastructure", text, "see the server's log", retryable=True)
            finished = c.Finished(run.id, "infrastructure", failure)
        finally:
            if ticking:
                ticking.cancel()
        self._end(run, finished)
        return finished

    async def _kept(self, run: Run, finished: c.Finished) -> c.Finished:
        """A profile's report, and what the compiler made, as files on this machine, and no longer in memory."""
        if not finished.profiles or self._reports is None:
            return replace(finished, report="", dumps=())
        settings = placement.settings_of(self._session).profile
        kernel = next((target.key for target in sorted(run.targets)), "")
        try:
            run.report, run.dumps = await asyncio.to_thread(
                report_store.keep, self._reports(), run.job.path, kernel, run.frozen.text, finished,
                detail=run.job.detail, reports=settings.reports, mib=settings.reports_mib,
            )  # fmt: skip
        except report_store.NotKept as why:
            return replace(finished, report="", dumps=(), remarks=(*finished.remarks, str(why)))
        return report_store.emptied(finished)

    def _unbegun(self, run: Run) -> None:
        """Cancelled before the first step of `_follow`, which says the end of every other run."""
        self._end(run, _cancelled(run))

    def _end(self, run: Run, finished: c.Finished) -> None:
        del self._active[run.id]
        self._settle(run, finished)
        of_file = (lane for lane in self._waiting if lane[:2] == run.lane[:2])
        if (lane := next(of_file, None)) and not any(
            other.lane[:2] == lane[:2] for other in self._active.values()
        ):
            self._launch(self._waiting.pop(lane))

    def _take(self, run: Run, event: c.Event) -> None:
        match event:
            case c.Stage(state=state, why=why):
                log.info("%s %s %s", run.id, state, why)
                self._mark(run, state, why)
                self._watcher.stage(run, state, why)
            case c.Output(stream=stream, text=text):
                self._watcher.output(run, stream, text)
            case c.Built():
                run.built = event
                if run.action == "compile" and event.complete and run.frozen.uri in self._session.files:
                    self._session.compiled[run.job.path] = (run.job, run.disk)
                self._watcher.changed(result_filing.built(self._session, run.frozen, run.job, event))
            case c.Finished():
                run.finished = event
            case _:
                pass

    def _settle(self, run: Run, finished: c.Finished) -> None:
        """The end of a run, exactly once."""
        log.info("%s ended: %s", run.id, finished.outcome)
        run.finished = finished
        for target in [t for t, running in self._session.running.items() if running.run == run.id]:
            del self._session.running[target]
        changed = {run.frozen.uri}
        if run.action == "compile" and finished.outcome != "ok":
            self._session.compiled.pop(run.job.path, None)
        if run.action != "compile" or finished.outcome not in ("ok", "cancelled"):
            changed |= result_filing.finished(
                self._session, run.frozen, run.job, run.targets, run.built, finished, run.recipe
            )
        if run.action == "profile":
            changed |= profile_filing.finished(
                self._session, run.frozen, run.job, run.targets, run.built, finished, run.report, run.dumps
            )
        if run.action == "sanitize":
            changed |= memory_filing.finished(
                self._session, run.frozen, run.job, run.targets, run.built, finished
            )
        if self.filed:
            self.filed(run)
        self._watcher.end(run, finished)
        self._watcher.changed(changed)

    def _mark(self, run: Run, state: c.State, why: str) -> None:
        if run.action == "compile":
            return
        for target in run.targets:
            known = self._session.running.get(target)
            began = known.began if known else time.monotonic()
            self._session.running[target] = Running(run.id, state, why, began)

    def _cancel(self, run: Run) -> bool:
        return run.task.cancel() if run.task and not _cancelling(run) else False

    async def _tick(self, run: Run) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._watcher.changed({run.frozen.uri})


async def _over(finished: c.Finished) -> c.Finished:
    return finished


def _cancelling(run: Run) -> bool:
    return bool(run.task and run.task.cancelling())


def _cancelled(run: Run) -> c.Finished:
    return c.Finished(run.id, "cancelled", c.Failure("cancelled", "cancelled"))


def _replaced(run: Run) -> c.Finished:
    return c.Finished(run.id, "cancelled", c.Failure("cancelled", "a newer request took its place"))


def _lost(run: Run) -> c.Finished:
    failure = c.Failure("infrastructure", "the run ended without an answer", "run it again", retryable=True)
    return c.Finished(run.id, "infrastructure", failure)
