"""A program that still runs: its times so far stand on the line, and give way to those of its end. The worker is acted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.runs.scheduler import Run, Scheduler
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.views import kernel_status, labels
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.recording.injection import Overhead
from orbit_remote.worker.actions import cuda_action
from tests import processes_check
from tests.test_views import H100, LAUNCHES, URI, Bench


class Watcher:
    """Says when the views have changed; nothing else is looked at here."""

    def __init__(self) -> None:
        self.news = asyncio.Event()

    def begin(self, *_: object) -> None: ...
    def stage(self, *_: object) -> None: ...
    def output(self, *_: object) -> None: ...
    def end(self, *_: object) -> None: ...

    def changed(self, uris: set[str]) -> None:
        if URI in uris:
            self.news.set()


class Runner:
    """Reports a launch, waits until the program has ended, and reports the end."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def run(self, job: Job) -> AsyncGenerator[c.Event]:
        yield c.Stage(job.run, "running", 0.0)
        few = replace(LAUNCHES, timing=replace(LAUNCHES.timing, n=7, median=300_000.0), count=8)
        yield c.Launched(job.run, (few,))
        await self.ended.wait()
        yield c.Finished(job.run, "ok", launches=(LAUNCHES,), device=H100)


def hint(bench: Bench) -> str:
    known = kernel_status.of(bench.session, URI)[0]
    return labels.hint(bench.session, URI, known)


async def until(bench: Bench, watcher: Watcher, text: str) -> None:
    async with asyncio.timeout(processes_check.LIMIT_S):
        while not hint(bench).startswith(text):
            watcher.news.clear()
            await watcher.news.wait()


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "is cancelled"])
async def test_times_so_far_stand_on_the_line_while_it_runs(ends: bool) -> None:
    bench, watcher, runner = Bench(), Watcher(), Runner()

    async def runner_of(_: Job) -> Any:
        return runner

    runs = Scheduler(bench.session, runner_of, watcher)
    run = runs.start("run", URI, KernelId(URI, "saxpy"))
    assert isinstance(run, Run)
    await until(bench, watcher, "⏱ 300 µs ±0.2% · so far, n=7")
    if ends:
        runner.ended.set()
        await runs.result(run)
        assert hint(bench) == "⏱ 288 µs ±0.2% · n=19 · occ ≤75%"
    else:
        runs.cancel_run(run.id)
        assert run.task
        await asyncio.wait([run.task])
        assert hint(bench) == ""
    await runs.close()


HEADER = {"orbit": 1, "pid": 7}
CONFIGURATION = [1, 64, 1, 1, 256, 1, 1, 1, 1, 1, 32, 0, 0, 0, 7, 0, 1]


async def test_a_worker_tells_what_is_new_and_stays_silent_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_action, "_TELL_S", 0.001)
    events: asyncio.Queue[c.Launched] = asyncio.Queue()

    class Context:
        send = events.put_nowait

    context: Any = Context()
    job = Job("r", "run", "cuda", "k.cu", "")
    telling = asyncio.create_task(cuda_action._tell(job, context, tmp_path, Overhead(), {}))
    try:
        lines: list[object] = [HEADER, ["n", 1, "_Z1kPf"]]
        for count in (2, 5):
            lines.append(["k", *CONFIGURATION, 0, 1000, [10 * at for at in range(count)], [5] * count])
            (tmp_path / "7.tmp").write_text("".join(json.dumps(line) + "\n" for line in lines) + '["k", 1')
            (tmp_path / "7.tmp").rename(tmp_path / "7.jsonl")
            told = await asyncio.wait_for(events.get(), processes_check.LIMIT_S)
            (launches,) = told.launches
            assert (launches.symbol, launches.timing.samples) == ("_Z1kPf", ())
            assert launches.count == (2 if count == 2 else 7)
        assert events.empty()
    finally:
        telling.cancel()


def test_runs_of_two_processes_have_no_id_in_common() -> None:
    async def runner_of(_: Job) -> Any:
        raise AssertionError

    one, other = (Scheduler(Bench().session, runner_of, Watcher()) for _ in range(2))
    ids = [each.new_id() for each in (one, one, other, other)]
    assert len(set(ids)) == 4
    assert [name.partition("-")[0] for name in ids] == ["r1", "r2", "r1", "r2"]
