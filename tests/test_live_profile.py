"""When Live renews a profile. The runner here answers what the test says, in place of a GPU."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from lsprotocol import types as lsp

from orbit_lsp.features.live import LiveRuns
from orbit_lsp.features.live_profile import LiveProfiles
from orbit_lsp.runs.scheduler import Run, Scheduler
from orbit_lsp.server.notifier import Notifier
from orbit_lsp.state.documents import TextChange
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.session import Session
from orbit_lsp.views import lenses
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from tests import recorded_profiles
from tests.test_spec_views import SAXPY, URI, point

SAXPY_ID = KernelId(URI, "saxpy")
BODY = 5, SAXPY.splitlines()[5].index("}")
MEMORY, COMPUTE = "memory 79%", "compute 99%"


class Gpu:
    """A runner: each run takes `microseconds`, each profile shows the recorded one `counted`. A profile waits for `counts`."""

    name = "gpu"

    def __init__(self) -> None:
        self.jobs: list[str] = []
        self.microseconds = 288.0
        self.counted = replace(recorded_profiles.profile("memory_bound"), counted_by="CUPTI", tool="13.0")
        self.took_s = 0.7
        self.refused = False
        self.outcome: c.Outcome = "ok"
        self.counting, self.counts = asyncio.Event(), asyncio.Event()
        self.counts.set()

    async def run(self, job: Job) -> AsyncGenerator[c.Event, None]:
        if job.action != "build":  # one ahead of the next save, whenever typing has paused
            self.jobs.append(job.action)
        if job.action == "profile":
            yield c.Stage(job.run, "profiling", 0.0)
            self.counting.set()
            await self.counts.wait()
            if self.refused:
                yield c.failed(job.run, c.Failure("infrastructure", "the GPU is gone"))
                return
            yield c.ok(
                job.run, profiles=(replace(self.counted, place=None, name="saxpy"),), run_s=self.took_s
            )
        elif self.outcome != "ok":
            yield c.failed(job.run, c.Failure(self.outcome, "said why"))
        else:
            made = point(self.microseconds)
            yield c.ok(job.run, points=(made,), launches=made.launches)

    async def machine(self) -> None: ...
    async def warm(self, language: str) -> None: ...
    async def close(self) -> None: ...


class Editor:
    """A file whose kernel is live; it watches its runs."""

    def __init__(self, *, profiled: bool = True) -> None:
        self.session = Session()
        self.session.open(URI, 1, SAXPY)
        self.gpu = Gpu()
        self.said: list[str] = []
        window: Any = SimpleNamespace(
            client_capabilities=lsp.ClientCapabilities(),
            window_show_message=lambda params: self.said.append(params.message),
            window_log_message=lambda _: None,
        )
        self.client = Notifier(window, self.session)
        self.runs = Scheduler(self.session, self._runner, self)
        self.live = LiveRuns(self.session, self.runs, lambda _: None, lambda _: None, lambda _: None)
        self.features = (self.live, LiveProfiles(self.session, self.runs))
        for feature in self.features:
            self.runs.when_ended(feature.run_ended)
        self._profiled = profiled

    async def begun(self) -> Editor:
        if self._profiled:
            self.runs.start("profile", URI, SAXPY_ID)
            await self.quiet()
        self.live.toggle(SAXPY_ID)
        await self.quiet()
        self.gpu.jobs.clear()
        return self

    async def _runner(self, job: Job) -> Gpu:
        return self.gpu

    async def save(self, *, edited: bool = True) -> list[str]:
        """Edit and save, wait until nothing is under way, and return the actions of the jobs that there were."""
        if edited:
            self.type()
        for feature in self.features:
            feature.saved(URI)
        await self.quiet()
        done, self.gpu.jobs = self.gpu.jobs, []
        return done

    def type(self) -> None:
        version = self.session.files[URI].document.version + 1
        self.session.change(URI, version, [TextChange(BODY, BODY, " __syncwarp(); ")])
        for feature in self.features:
            feature.edited(URI)

    async def quiet(self) -> None:
        while under_way := [run.task for run in self.runs.under_way() if run.task]:
            await asyncio.wait(under_way)

    @property
    def lens(self) -> str:
        return " | ".join(lens.command.title for lens in lenses.lenses(self.session, URI) if lens.command)

    def begin(self, run: Run, cancel: object) -> None:
        self.client.begin(run, lambda: None)

    def stage(self, run: Run, state: c.State, why: str) -> None: ...
    def output(self, run: Run, stream: str, text: str) -> None: ...
    def changed(self, uris: set[str]) -> None: ...
    def end(self, run: Run, finished: c.Finished) -> None:
        self.client.end(run, finished)


async def test_the_bottleneck_is_renewed_at_a_save() -> None:
    editor = await Editor().begun()
    assert MEMORY in editor.lens
    editor.gpu.counted = replace(recorded_profiles.profile("compute_bound"), counted_by="CUPTI", tool="13.0")
    assert await editor.save() == ["run", "profile"]
    assert COMPUTE in editor.lens
    assert "edited since" not in editor.lens
    editor.live.shutdown()


@pytest.mark.parametrize(
    "change",
    [
        {"microseconds": 100_000.0},  # 17 passes would take longer than a second
        {"outcome": "wrong answer"},
        {"outcome": "compile error"},
    ],
    ids=["too long", "a wrong answer", "does not compile"],
)
async def test_what_is_not_profiled(change: dict[str, object]) -> None:
    editor = await Editor().begun()
    for name, value in change.items():
        setattr(editor.gpu, name, value)
    assert await editor.save() == ["run"]
    editor.live.shutdown()


async def test_a_save_without_an_edit_has_nothing_to_renew() -> None:
    editor = await Editor().begun()
    assert await editor.save(edited=False) == ["run"]
    editor.live.shutdown()


async def test_a_kernel_that_was_never_profiled_is_not() -> None:
    editor = await Editor(profiled=False).begun()
    assert await editor.save() == ["run"]
    editor.live.shutdown()


async def test_a_profile_of_nsight_compute_is_kept() -> None:
    editor = Editor()
    editor.gpu.counted = recorded_profiles.profile("memory_bound")
    await editor.begun()
    assert await editor.save() == ["run"]
    editor.live.shutdown()


async def test_a_profile_that_took_too_long_waits_for_the_next_click() -> None:
    editor = await Editor().begun()
    editor.gpu.took_s = 1.4
    assert await editor.save() == ["run", "profile"]
    assert await editor.save() == ["run"]
    editor.runs.start("profile", URI, SAXPY_ID)
    await editor.quiet()
    editor.gpu.jobs.clear()
    assert await editor.save() == ["run", "profile"]
    editor.live.shutdown()


async def test_the_next_edit_cancels_it_and_its_kernel_is_never_shown_as_running() -> None:
    editor = await Editor().begun()
    editor.gpu.counts.clear()
    editor.gpu.counting.clear()
    editor.type()
    for feature in editor.features:
        feature.saved(URI)
    await editor.gpu.counting.wait()
    (run,) = editor.runs.under_way()
    assert (run.renews, editor.session.running) == (True, {})
    editor.type()
    await editor.quiet()
    assert run.finished
    assert run.finished.outcome == "cancelled"
    assert SAXPY_ID in editor.session.live
    assert "edited since" in editor.lens
    editor.live.shutdown()


async def test_text_that_was_edited_during_the_run_is_not_profiled() -> None:
    editor = await Editor().begun()
    for feature in editor.features:
        feature.saved(URI)
    editor.type()
    await editor.quiet()
    assert editor.gpu.jobs == ["run"]
    editor.live.shutdown()


async def test_a_renewal_that_fails_says_nothing_and_live_goes_on() -> None:
    editor = await Editor().begun()
    editor.gpu.refused = True
    assert await editor.save() == ["run", "profile"]
    assert editor.said == []
    assert editor.lens.startswith("✓ 288 µs")
    assert SAXPY_ID in editor.session.live
    editor.runs.start("profile", URI, SAXPY_ID)
    await editor.quiet()
    assert editor.said == ["the GPU is gone"]
    editor.live.shutdown()


async def test_a_click_on_profile_meanwhile_is_not_cancelled_by_an_edit() -> None:
    editor = await Editor().begun()
    editor.gpu.counts.clear()
    clicked = editor.runs.start("profile", URI, SAXPY_ID)
    editor.type()
    editor.gpu.counts.set()
    await editor.quiet()
    assert clicked
    assert clicked.finished
    assert clicked.finished.outcome == "ok"
    editor.live.shutdown()
