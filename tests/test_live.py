"""When Live goes on and when it ends. The runner here answers what the test says: there is no GPU side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from orbit_lsp.features.live import LiveRuns
from orbit_lsp.runs.scheduler import Run, Scheduler
from orbit_lsp.state.documents import TextChange
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from tests.test_spec_views import SAXPY, URI, point

SAXPY_ID = KernelId(URI, "saxpy")


class Answers:
    """A runner whose next run ends as `outcome` says; "waits" ends when it is cancelled."""

    name = "answers"
    outcome = "ok"

    def __init__(self) -> None:
        self.built: asyncio.Queue[Job] = asyncio.Queue()

    async def run(self, job: Job) -> AsyncGenerator[c.Event, None]:
        if job.action == "build":
            self.built.put_nowait(job)
        yield c.Stage(job.run, "running", 0.0)
        if self.outcome == "waits":
            await asyncio.Event().wait()
        failure = None if self.outcome == "ok" else c.Failure(self.outcome, "said why")  # type: ignore[arg-type]
        made = (point(),) if self.outcome == "ok" else ()
        yield c.Finished(job.run, self.outcome, failure, points=made)  # type: ignore[arg-type]

    async def machine(self) -> None: ...
    async def warm(self, language: str) -> None: ...
    async def close(self) -> None: ...


class Desk:
    """Live over one open file, and what was said; it is the watcher of its runs."""

    def __init__(self) -> None:
        self.session = Session()
        self.session.open(URI, 1, SAXPY)
        self.said: list[str] = []
        self.compiled: list[str] = []
        self.answers = Answers()
        self.runs = Scheduler(self.session, self._runner, self)
        self.live = LiveRuns(self.session, self.runs, self.said.append, lambda _: None, self.compiled.append)
        self.runs.when_ended(self.live.run_ended)

    async def _runner(self, job: Job) -> Answers:
        return self.answers

    def begin(self, run: Run, cancel: object) -> None: ...
    def stage(self, run: Run, state: c.State, why: str) -> None: ...
    def output(self, run: Run, stream: str, text: str) -> None: ...
    def changed(self, uris: set[str]) -> None: ...

    def end(self, run: Run, finished: c.Finished) -> None: ...

    def runs_at_save(self) -> bool:
        before = self.runs.under_way()
        self.live.saved(URI)
        return self.runs.under_way() != before

    async def save(self, outcome: str = "ok") -> None:
        """Save, and wait until the run is over."""
        self.answers.outcome = outcome
        assert self.runs_at_save()
        (run,) = self.runs.under_way()
        assert run.task
        await run.task


@pytest.fixture
async def desk() -> Desk:
    made = Desk()
    assert made.live.toggle(SAXPY_ID)
    (run,) = made.runs.under_way()
    assert run.task
    await run.task
    return made


@pytest.mark.parametrize(
    ("outcome", "on"),
    [
        ("ok", True), ("compile error", True), ("wrong answer", True), ("runtime error", True), ("timed out", True),
        ("infrastructure", False),
        ("cancelled", False),  # by the runner itself: the author was asked about the budget
    ],
)  # fmt: skip
async def test_what_ends_it(desk: Desk, outcome: str, on: bool) -> None:
    await desk.save(outcome)
    assert (SAXPY_ID in desk.session.live) is on
    assert desk.said == ([] if on else ["orbit: Live of saxpy was turned off"])
    assert desk.runs_at_save() is on
    desk.live.shutdown()


async def test_a_run_that_the_author_cancels_does_not_end_it(desk: Desk) -> None:
    desk.answers.outcome = "waits"
    assert desk.runs_at_save()
    (run,) = desk.runs.under_way()
    assert desk.runs.cancel(SAXPY_ID)
    assert run.task
    await asyncio.wait([run.task])
    assert run.finished
    assert run.finished.outcome == "cancelled"
    assert SAXPY_ID in desk.session.live
    await desk.save()
    assert desk.said == []
    desk.live.shutdown()


async def test_the_file_is_compiled_for_its_figures_after_each_run(desk: Desk) -> None:
    assert desk.compiled == [URI]
    await desk.save()
    assert desk.compiled == [URI, URI]
    desk.live.shutdown()


async def test_closing_the_file_or_toggling_ends_it(desk: Desk) -> None:
    desk.live.closed(URI)
    assert not desk.runs_at_save()
    assert desk.live.toggle(SAXPY_ID)
    assert not desk.live.toggle(SAXPY_ID)
    assert not desk.runs_at_save()
    desk.live.shutdown()


async def test_while_the_kernels_name_is_typed_nothing_runs_and_it_goes_on(desk: Desk) -> None:
    renamed = SAXPY.replace("void saxpy", "void saxp")
    desk.session.open(URI, 2, renamed)
    desk.compiled.clear()
    assert not desk.runs_at_save()
    assert desk.compiled == [URI]
    desk.session.open(URI, 3, SAXPY + "// again\n")
    await desk.save()
    assert SAXPY_ID in desk.session.live
    desk.live.shutdown()


async def test_the_kernel_is_built_while_it_is_typed_and_nothing_is_said(desk: Desk) -> None:
    desk.session.change(URI, 2, [TextChange((5, 0), (5, 0), " ")])
    desk.live.edited(URI)
    job = await desk.answers.built.get()
    assert (job.action, job.start.through, job.kernel) == ("build", "spec", "saxpy")
    assert job.text == desk.session.files[URI].document.text
    assert desk.runs.under_way() == []
    desk.live.shutdown()


async def test_what_is_not_live_is_not_built_while_it_is_typed(desk: Desk) -> None:
    assert not desk.live.toggle(SAXPY_ID)
    desk.live.edited(URI)
    assert URI not in desk.live._keys  # pyright: ignore[reportPrivateUsage]
