"""The life of a run: start, follow, cancel, close. It knows the session, not the editor.

A run is one job, or several jobs that are watched and cancelled as one (`multi_gpu`, `history.ab_compare`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from orbit_lsp.profile import report_store
from orbit_lsp.runners import Locates, Runner
from orbit_lsp.runs import memory_filing, profile_filing, result_filing
from orbit_lsp.specs import job_builder, launch_plan
from orbit_lsp.specs.launch_plan import PROGRAM, LaunchPlan
from orbit_lsp.state import harness
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.results import renamed
from orbit_lsp.state.session import AwaitedRun, Frozen, Session, path_of
from orbit_remote.common import messages as c
from orbit_remote.common.lazy_dataclass import dataclass
from orbit_remote.common.requests import Driver, Job, Level

log = logging.getLogger("orbit.runs")

Action = Literal["compile", "run", "debug", "profile", "sanitize"]
BY_WORD: dict[str, Action] = {"run": "run", "profile": "profile", "check": "sanitize", "compile": "compile"}
"""What authors call an action -> the action of a job."""
_DOING = {
    "compile": "Compile", "run": "Run", "debug": "Debug", "profile": "Profile", "sanitize": "Check memory of",
}  # fmt: skip
Lane = tuple[str, Action, str]
"""Of one (uri, action, kernel that is run by itself) one request waits at most."""
_TICK_S = 1.0
"""How often the seconds in a running kernel's lens are renewed."""


@dataclass(slots=True, eq=False)
class Run:
    id: str
    action: Action
    frozen: Frozen
    job: Job
    targets: set[KernelId] = field(default_factory=set["KernelId"])
    disk: int = 0
    """`Session.disk` when it was made: a header saved since then may not have been read."""
    plan: LaunchPlan = PROGRAM
    live: bool = False
    """Not started by a click: its problems are shown on their lines only, without a message."""
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
    locate: Callable[[], None] | None = None
    """End it to see where its kernel stands; None where that cannot be seen."""
    of_several: bool = False
    """It stands for several jobs, which no click joins or waits for."""
    ran: bool = False
    """Its program has begun."""
    harmless: bool = False
    """It came to no result, and nothing is wrong."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """New names of files that were renamed since it began: its events have the old ones."""

    @property
    def lane(self) -> Lane:
        kernel = self.job.definition.qualified if self.job.definition else self.job.kernel
        return self.frozen.uri, self.action, kernel or ""

    @property
    def renews(self) -> bool:
        """Say whether Live renews a profile by it: only its result is shown."""
        return self.live and self.action == "profile"

    @property
    def title(self) -> str:
        if self.named:
            return self.named
        names = ", ".join(sorted(harness.named(target) or target.key for target in self.targets))
        name = names or path_of(self.frozen.uri).rpartition("/")[2]
        if self.job.start.through == "contract" and self.action == "run":
            return f"Test {name}"
        return f"{_DOING[self.action]} {name}"


class RunWatcher(Protocol):
    """Watches a run: an editor's progress bar and hints, or a terminal."""

    def begin(self, run: Run, cancel: Callable[[], object]) -> None: ...
    def stage(self, run: Run, state: c.State, why: str) -> None: ...
    def output(self, run: Run, stream: str, text: str) -> None: ...
    def debugger(self, run: Run, debugger: c.Debugger) -> None:
        """A debugger waits for its client."""
        ...

    def end(self, run: Run, finished: c.Finished) -> None: ...
    def changed(self, uris: set[str]) -> None:
        """Take note that diagnostics, hints or lenses of these files changed."""
        ...


class RunWork(Protocol):
    """The work of a run."""

    async def perform(self) -> None:
        """Raises `RunFailedError` with the reason where it cannot be done."""
        ...

    def end(self, failure: c.Failure | None) -> tuple[c.Finished, set[str]]:
        """Return the run's result, and the files whose views it changed. This is called once, however the work ended.
        `failure` says why if it did not end by itself.
        """
        ...


class RunFailedError(Exception):
    """A run cannot go on."""

    def __init__(self, failure: c.Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


CANCELLED = c.Failure("cancelled", "cancelled")
NO_ANSWER = c.Failure("infrastructure", "the run ended without an answer", "run it again", retryable=True)


class Scheduler:
    def __init__(
        self,
        session: Session,
        runner: Callable[[Job], Awaitable[Runner]],
        watcher: RunWatcher,
        reports: Callable[[], Path] | None = None,
        explained: Callable[[c.Failure], c.Failure] | None = None,
    ) -> None:
        """Make a scheduler. `reports` names the folder in which profiles are kept; without it none are. `explained`
        adds what the author's machine knows to the failure of a run.
        """
        self._known_here = explained or _as_it_is
        self._session = session
        self._runner = runner
        self._watcher = watcher
        self._reports = reports
        self._listeners: list[Callable[[Run], object]] = []
        self._active: dict[str, Run] = {}
        self._waiting: dict[Lane, Run] = {}
        self._ids = itertools.count(1)
        self._own = secrets.token_hex(4)

    def when_ended(self, listener: Callable[[Run], object]) -> None:
        """Call `listener` with every run that has ended, once its result is in the session."""
        self._listeners.append(listener)

    def new_id(self, prefix: str = "r") -> str:
        """Return an id that no other process gives: logs of several may be read together."""
        return f"{prefix}{next(self._ids)}-{self._own}"

    # -- starting -----------------------------------------------------------------------------

    def ahead(self, target: KernelId) -> Coroutine[Any, Any, None] | None:
        """Build what a run of the kernel will launch, so that the run finds it built. Show nothing of it. Return None
        if that is of no use: for a program, for Triton, on a rented GPU.
        """
        frozen = self._session.freeze(target.uri)
        plan = job_builder.plan_of(self._session, target)
        if frozen is None or plan.through != "spec" or plan.refusal or frozen.scan.language != "cuda":
            return None
        if self._session.setup.place() != "local":
            return None
        return self._build(job_builder.make(self._session, frozen, "build", self.new_id(), plan))

    async def _build(self, job: Job) -> None:
        await self.outcome(job)

    async def outcome(self, job: Job, heard: Callable[[c.Event], object] = lambda _: None) -> c.Finished:
        """Run a job without storing its result. Each of its events is passed to `heard`."""
        finished: c.Finished | None = None
        runner = await self._runner(job)
        async with aclosing(runner.run(job)) as events:
            async for event in events:
                heard(event)
                finished = event if isinstance(event, c.Finished) else finished
        return finished or c.failed(job.run, NO_ANSWER)

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
        instance: Literal["first", "wrong"] = "first",
        tools: tuple[str, ...] = (),
        sections: tuple[str, ...] = (),
        levels: tuple[Level, ...] = (),
        only: bool = False,
        keep: bool = False,
        driver: Driver | None = None,
        sets: tuple[str, ...] = (),
        repeated: bool = False,
    ) -> Run | None:
        """Start a job for a file and return at once. Return None if the file is not open.

        Join an identical job that is under way. While another job of the same kind and file is under way, the newest
        request waits for it, and replaces an older one that waits for the same kernel. A kernel whose launch spec has
        a mistake is not run: the `Run` is over at once.

        `program` asks for the file's own program whatever the launch spec says. `driver` asks for a test, a script or
        a program; of a test, only for the parameter `sets` that are named; with `repeated` it runs again while its
        kernels' medians are not known. `restricted` says that the code is not the author's. `detail` and `sections`
        are of a profile, `instance` of a debugger, `tools` are those of compute-sanitizer. `levels` are of a
        compilation: its result then has what the compiler made. With `only`, that is of `target` alone; with `keep`,
        it has the files of the compilation too.
        """
        if (frozen := self._session.freeze(uri)) is None:
            return None
        own = action != "compile" and not program
        plan = job_builder.plan_of(self._session, target) if own else PROGRAM
        if driver:
            plan = launch_plan.driven(self._session, uri, driver)
        job = job_builder.make(self._session, frozen, action, self.new_id(), plan)
        job = job_builder.through_driver(self._session, job, target, sets, repeated=repeated)
        if levels:
            kernel = self._session.find(target) if target and only else None
            job = replace(job, levels=levels, kernel=kernel.name if kernel else None, keep=keep)
        if action in ("profile", "sanitize"):
            job = job_builder.under_a_tool(self._session, job, target, detail, tools, sections)
        if action == "debug":
            job = job_builder.debugged(self._session, job, target, instance)
        if restricted:
            job = job_builder.restricted(self._session, job, plan)
        targets = {target} if target else set[KernelId]()
        run = Run(job.run, action, frozen, job, targets, self._session.disk.changes, plan, live)
        if why := job_builder.refusal(job, plan):
            return self.refuse(run, why)
        active = [
            other
            for other in self._active.values()
            if (other.frozen.uri, other.action) == (uri, action) and not other.of_several
        ]
        for other in active:
            same = replace(other.job, run=job.run) == job and other.disk == run.disk
            if same and not _cancelling(other):
                self._join(other, run.targets)
                self._watcher.changed({uri})
                return other
        if active:
            self._wait_behind(active, run)
        else:
            self.launch(run, self._work(run))
        return run

    def _wait_behind(self, active: list[Run], run: Run) -> None:
        """Let a run wait for those of the same kind and file. It replaces the run that waits for the same kernel."""
        if older := self._waiting.pop(run.lane, None):
            self._settle(older, self._work(older), c.Failure("cancelled", "a newer request took its place"))
        self._waiting[run.lane] = run
        if run.action == "compile":  # the answer of an active one would be of an older text
            for other in active:
                self._cancel(other)
        self._watcher.changed({run.frozen.uri})

    def launch(self, run: Run, work: RunWork) -> None:
        """Begin a run and return at once."""
        self._active[run.id] = run
        self.mark(run, "queued", "")
        run.task = asyncio.create_task(self._follow(run, work), name=f"{run.action} {run.id}")
        # cancelled before its first step, a task has no chance to report its end itself
        run.task.add_done_callback(lambda task: self._end(run, work, CANCELLED) if task.cancelled() else None)
        self._watcher.begin(run, lambda: self.cancel_run(run.id))
        self._watcher.changed({run.frozen.uri})

    def refuse(self, run: Run, why: str) -> Run:
        """Return a run that never begins. The editor shows the mistakes themselves while they are typed."""
        kind: c.Outcome = "infrastructure" if run.job.driver else "compile error"
        run.finished = c.failed(run.id, c.Failure(kind, why, "nothing was run"))
        run.refused = True
        run.task = asyncio.create_task(_over(run.finished), name=f"refused {run.id}")
        result_filing.refused(self._session, run.frozen, run.job, run.targets, run.finished)
        self._watcher.changed({run.frozen.uri})
        self._watcher.end(run, run.finished)
        return run

    def several(self, uri: str, targets: set[KernelId], prefix: str) -> Run | None:
        """Return the run under way that stands for several jobs of exactly these kernels, by the prefix of its id."""
        for run in self._active.values():
            if (
                run.of_several
                and (run.frozen.uri, run.targets) == (uri, targets)
                and run.id.startswith(prefix)
            ):
                return run
        return None

    def renamed(self, names: Mapping[str, str]) -> None:
        """Take note that files have other names, both URIs and paths. Runs under way keep following them."""
        for run in self.under_way():
            if (uri := names.get(run.frozen.uri)) is None:
                continue
            run.names = renamed(run.names, names) | dict(names)
            run.frozen = replace(run.frozen, uri=uri, version=0)  # the client counts anew
            run.targets, run.built = renamed(run.targets, names), renamed(run.built, names)
        self._waiting = {run.lane: run for run in self._waiting.values()}

    # -- cancelling ---------------------------------------------------------------------------

    def cancel(self, target: KernelId) -> bool:
        """Cancel whatever is under way for `target`. Return False if nothing is."""
        return self._cancel_each(
            run for run in self.under_way() if run.action != "compile" and target in run.targets
        )

    def locate(self, target: KernelId | None = None) -> bool:
        """End the run of a kernel that is under way, to see where its warps stand. Return False if that cannot be
        seen.
        """
        for run in self._active.values():
            if run.action == "run" and run.locate and target in (None, *run.targets):
                run.locate()
                return True
        return False

    def cancel_all(self, uri: str | None = None, action: Action | None = None) -> bool:
        """Cancel what is under way, only of a file or of an action if they are given. Return False if nothing is."""
        return self._cancel_each(
            run for run in self.under_way() if uri in (None, run.frozen.uri) and action in (None, run.action)
        )

    def cancel_run(self, run_id: str) -> bool:
        for lane, waiting in list(self._waiting.items()):
            if waiting.id == run_id:
                del self._waiting[lane]
                self._settle(waiting, self._work(waiting), CANCELLED)
                return True
        run = self._active.get(run_id)
        return self._cancel(run) if run else False

    def under_way(self) -> list[Run]:
        return [*self._active.values(), *self._waiting.values()]

    async def result(self, run: Run) -> c.Finished:
        """Wait for a run, and return its result. If the caller is cancelled, the run is cancelled too, and its end is
        awaited.
        """
        assert run.task
        try:
            return await asyncio.shield(run.task)
        except asyncio.CancelledError:
            self.cancel_run(run.id)
            await asyncio.wait([run.task])
            raise

    async def close(self) -> None:
        self._waiting.clear()
        tasks = [run.task for run in self._active.values() if run.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cancel_each(self, runs: Iterable[Run]) -> bool:
        """Cancel runs. A waiting run is cancelled first, or it would be started."""
        cancelled = [self.cancel_run(run.id) for run in reversed(list(runs))]
        return any(cancelled)

    def _cancel(self, run: Run) -> bool:
        return run.task.cancel() if run.task and not _cancelling(run) else False

    # -- following ----------------------------------------------------------------------------

    def mark(self, run: Run, state: c.State, why: str) -> None:
        """Set what the lenses of its kernels say about a run."""
        run.ran = run.ran or state in ("running", "profiling", "finishing")
        if run.action == "compile" or run.renews:
            return
        for target in run.targets:
            known = self._session.running.get(target)
            began = known.began if known and known.run == run.id else time.monotonic()
            self._session.running[target] = AwaitedRun(run.id, state, why, began)

    async def _follow(self, run: Run, work: RunWork) -> c.Finished:
        log.info("%s %s of %s begins", run.id, run.action, run.frozen.uri)
        ticking = asyncio.create_task(self._tick(run)) if run.action != "compile" else None
        failure: c.Failure | None = None
        try:
            await work.perform()
        except RunFailedError as reason:
            failure = reason.failure
        except asyncio.CancelledError:
            failure = CANCELLED
        except Exception as error:
            log.exception("%s failed", run.id)
            failure = unfollowed(error)
        finally:
            if ticking:
                ticking.cancel()
        return self._end(run, work, failure)

    def _end(self, run: Run, work: RunWork, failure: c.Failure | None) -> c.Finished:
        del self._active[run.id]
        finished = self._settle(run, work, failure)
        busy = {other.lane[:2] for other in self._active.values() if not other.of_several}
        lane = next((lane for lane in self._waiting if lane[:2] == run.lane[:2]), None)
        if lane and lane[:2] not in busy:
            waiting = self._waiting.pop(lane)
            self.launch(waiting, self._work(waiting))
        return finished

    def _settle(self, run: Run, work: RunWork, failure: c.Failure | None) -> c.Finished:
        """Return the end of a run, exactly once."""
        for target in [t for t, running in self._session.running.items() if running.run == run.id]:
            del self._session.running[target]
        so_far = self._session.results.so_far
        for target in [target for target, (by, _) in so_far.items() if by == run.id]:
            del so_far[target]
        run.finished, changed = work.end(failure)
        log.info("%s ended: %s", run.id, run.finished.outcome)
        self._watcher.end(run, run.finished)
        for listener in self._listeners:
            listener(run)
        self._watcher.changed({run.frozen.uri} | changed)
        return run.finished

    def _join(self, run: Run, targets: set[KernelId]) -> None:
        """Add more kernels to a run that is under way: their lenses show its state too."""
        known = next((running for running in map(self._session.running.get, run.targets) if running), None)
        run.targets |= targets
        if known and known.run == run.id:
            self.mark(run, known.state, known.why)

    def _work(self, run: Run) -> RunWork:
        return _OneJob(
            run, self._session, self._runner, self._watcher, self._reports, self.mark, self._known_here
        )

    async def _tick(self, run: Run) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._watcher.changed({run.frozen.uri})


class _OneJob:
    """A run of one job. Its events go to the watcher and, at the end, its results under its kernels."""

    def __init__(
        self,
        run: Run,
        session: Session,
        runner: Callable[[Job], Awaitable[Runner]],
        watcher: RunWatcher,
        reports: Callable[[], Path] | None,
        mark: Callable[[Run, c.State, str], None],
        explained: Callable[[c.Failure], c.Failure],
    ) -> None:
        self._run = run
        self._job = run.job
        """The job whose events come: the run's own, or the compilation in its place where there is no GPU."""
        self._known_here = explained
        self._session = session
        self._runner = runner
        self._watcher = watcher
        self._reports = reports
        self._mark = mark
        self._finished: c.Finished | None = None
        self._raw: tuple[c.Problem, ...] = ()
        """What the compiler said of the build, in its own words."""

    async def perform(self) -> None:
        finished = await self._carried_out(self._run.job)
        self._finished = await self._kept(await self._or_compile_error(finished))

    async def _carried_out(self, job: Job) -> c.Finished:
        """Return the end of a job. Raises RunFailedError if the runner reports none."""
        self._job, self._finished = job, None
        runner = await self._runner(job)
        if isinstance(runner, Locates):
            self._run.locate = partial(runner.locate, job.run)
        async with aclosing(runner.run(job)) as events:
            async for event in events:
                self._take(event)
        if self._finished is None:
            raise RunFailedError(NO_ANSWER)
        return self._finished

    async def _or_compile_error(self, finished: c.Finished) -> c.Finished:
        """Return the end of a run. If it found no GPU, compile the file: a compile error has to be corrected first,
        with or without a GPU.
        """
        run, failure = self._run, finished.failure
        compiles = run.action in ("run", "profile", "sanitize") and run.job.start.through in (
            "program",
            "spec",
        )
        if failure is None or not compiles or run.job.driver or run.job.restricted:
            return finished
        from orbit_lsp.runners.modal import spending

        if not spending.lacks_gpu(failure):
            return finished
        job = job_builder.make(self._session, run.frozen, "compile", run.id)
        if job_builder.is_compiled(self._session, job):
            return finished
        compiled = await self._carried_out(job)
        return compiled if compiled.outcome == "compile error" else finished

    def end(self, failure: c.Failure | None) -> tuple[c.Finished, set[str]]:
        run, session = self._run, self._session
        finished = (
            self._finished if failure is None and self._finished else c.failed(run.id, failure or CANCELLED)
        )
        changed = set[str]()
        file = session.files.get(run.frozen.uri)
        if file and self._job.action == "compile" and finished.outcome != "ok":
            file.compiled = None
        if run.action == "debug" or (run.renews and finished.outcome != "ok"):
            return finished, changed
        if run.action != "compile" or finished.outcome != "cancelled":
            changed |= result_filing.finished(
                session, run.frozen, run.job, run.targets, run.built, finished, run.plan
            )
        if run.action == "profile":
            changed |= profile_filing.finished(
                session, run.frozen, run.job, run.targets, run.built, finished, run.report, run.dumps
            )
        if run.action == "sanitize":
            changed |= memory_filing.finished(session, run.frozen, run.job, run.targets, run.built, finished)
        return finished, changed

    def _take(self, event: c.Event) -> None:
        run = self._run
        event = renamed(event, run.names) if run.names else event
        match event:
            case c.Stage(state=state, why=why):
                log.info("%s %s %s", run.id, state, why)
                self._mark(run, state, why)
                self._watcher.stage(run, state, why)
            case c.Output(stream=stream, text=text):
                self._watcher.output(run, stream, text)
            case c.Debugger():
                self._watcher.debugger(run, event)
            case c.Launched():
                self._watcher.changed(
                    result_filing.so_far(self._session, run.frozen, run.job, run.targets, event)
                )
            case c.Built():
                event = self._explained(event)
                run.built = event
                file = self._session.files.get(run.frozen.uri)
                if file and self._job.action == "compile" and event.complete:
                    file.compiled = (self._job, run.disk)
                    file.compile_s = file.compile_s if event.cached else event.seconds
                self._watcher.changed(result_filing.built(self._session, run.frozen, self._job, event))
            case c.Finished():
                self._finished = self._failed_as(event)
            case _:
                pass

    def _explained(self, event: c.Built) -> c.Built:
        """Return a build's problems in terms of the author's own files."""
        run = self._run
        file = self._session.files.get(run.frozen.uri)
        if not event.problems or file is None or self._job.language != "cuda":
            return event
        from orbit_lsp.compilation import compiler_messages

        self._raw = event.problems
        problems = compiler_messages.explained(
            event.problems, self._job.path, self._job.text, file.compilation
        )
        return replace(event, problems=problems)

    def _failed_as(self, event: c.Finished) -> c.Finished:
        """Return the end in the right words: of a failed build in the same words, of a driver that measured another
        text as that, of any other in those of this machine.
        """
        machine = self._session.setup.machine
        python = machine.python if machine and machine.python else "python"
        event = result_filing.of_copies(self._run.frozen, self._job, self._run.targets, event, python)
        event = result_filing.with_unclear(self._session, self._run.frozen, self._job, event)
        failure = event.failure
        if failure is None:
            return event
        if self._run.built is not None and self._raw:
            from orbit_lsp.compilation import compiler_messages

            name = Path(self._job.path).name
            failure = compiler_messages.failure_of(failure, self._raw, self._run.built.problems, name)
        return replace(event, failure=self._known_here(failure))

    async def _kept(self, finished: c.Finished) -> c.Finished:
        """Write a profile's report, and what the compiler made, to files on this machine, and free their memory."""
        run = self._run
        if run.action == "compile":
            return finished
        if not finished.profiles or self._reports is None:
            return replace(finished, report="", dumps=())
        settings = self._session.setup.settings.profile
        kernel = next((target.key for target in sorted(run.targets)), "")
        try:
            run.report, run.dumps = await asyncio.to_thread(
                report_store.keep, self._reports(), run.job.path, kernel, run.frozen.text, finished,
                detail=run.job.detail, reports=settings.reports, mib=settings.reports_mib,
            )  # fmt: skip
        except report_store.NotKeptError as why:
            return replace(finished, report="", dumps=(), remarks=(*finished.remarks, str(why)))
        return report_store.emptied(finished)


def unfollowed(error: Exception) -> c.Failure:
    """Return the failure of a run that ended by a fault of ours, or of a library."""
    text = f"the run could not be followed: {type(error).__name__}: {error}"
    return c.Failure("infrastructure", text, "see the server's log", retryable=True)


def _as_it_is(failure: c.Failure) -> c.Failure:
    return failure


async def _over(finished: c.Finished) -> c.Finished:
    return finished


def _cancelling(run: Run) -> bool:
    return bool(run.task and run.task.cancelling())
