"""A program counted by CUPTI, without a GPU: its build and its run are acted, and what is made of their results is real"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from orbit_remote.counters import profiler
from orbit_remote.counters.profiler import UncountedError
from orbit_remote.recording import injection
from orbit_remote.toolchain import build, disassembly
from orbit_remote.worker.actions import builds, cuda_action, plain_action, program_counting
from orbit_remote.worker.context import WorkerContext
from tests.remote.profile_fixture import H100
from tests.remote.test_counters import sampled
from tests.remote.test_program_counts import CHECKSUM, NAME, line_of, report

SYMBOL = "_Z5saxpyifPKfPf"
JOB = Job("r1", "profile", "cuda", "/src/memory_bound.cu", "", kernel="saxpy", run_timeout_s=8)
BEGUN = {"begun": SYMBOL, "code": CHECKSUM}
LIMIT = c.Failure("timed out", "the run was ended at its limit of 8 s")

__all__ = ["report"]  # a fixture
Click = Callable[..., Any]


class Worker:
    """What a job needs of the worker here."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.stages: list[str] = []

    @contextlib.asynccontextmanager
    async def scratch(self) -> AsyncGenerator[Path]:
        yield self.home

    @contextlib.asynccontextmanager
    async def gpu(self, _: Job) -> AsyncGenerator[None]:
        yield

    def stage(self, _: Job, state: str) -> None:
        self.stages.append(state)


def leave(folder: Path, order: Path, lines: tuple[Mapping[str, Any], ...]) -> None:
    """What the program's process leaves."""
    assert order.read_text().startswith(f"symbol {SYMBOL}\n")
    (folder / f"{CHECKSUM}.cubin").write_bytes(sampled(NAME)[1])
    if lines:
        (folder / "7.counted").write_text("\n".join([*map(json.dumps, lines), ""]))


@pytest.fixture
def click(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Click:
    """A click on *Profile* of a program that ends as given, and whose process writes these lines."""
    resources = c.Resources(SYMBOL, "saxpy", "sm_90a", place=c.Place(JOB.path, 4))
    made = build.BuildResult(c.Built("r1", resources=(resources,)), tmp_path / "program", ptx=".version 9.0")
    cupti = injection.Cupti((), tmp_path, 130001, "CUpti_ActivityKernel10")
    monkeypatch.setattr(injection, "find", lambda **_: cupti)
    monkeypatch.setattr(profiler, "library", lambda cache, _: cache / "profiler.so")
    monkeypatch.setattr(disassembly, "listing", lambda _, symbol: f"SASS of {symbol}")

    async def built(*_: object) -> build.BuildResult:
        return made

    async def ordinary(job: Job, _: object) -> c.Finished:
        return c.failed(job.run, c.Failure("runtime error", "an illegal address"))

    async def clicked(finished: c.Finished, *lines: Mapping[str, Any]) -> c.Finished:
        async def run(
            job: Job, context: Worker, _: object, device: object, scratch: Path, counting: Mapping[str, str]
        ) -> c.Finished:
            leave(scratch / cuda_action.LAUNCHES, Path(counting["ORBIT_PROFILE"]), lines)
            return finished

        monkeypatch.setattr(cuda_action, "run_built", run)
        return await program_counting.counted(JOB, cast("WorkerContext", Worker(tmp_path)), H100)

    monkeypatch.setattr(builds, "build_file", built)
    monkeypatch.setattr(plain_action, "build_or_run", ordinary)
    return clicked


async def test_a_program_has_its_profile_and_its_code(click: Click, report: c.Profile) -> None:
    finished = await click(c.ok("r1", exit_code=0), BEGUN, line_of(report), {"launched": [SYMBOL]})
    (profile,) = finished.profiles
    assert (profile.source, profile.samples) == ("CUPTI 13.0", report.samples)
    assert [(dump.name, dump.level) for dump in finished.dumps] == [("saxpy", "ptx"), ("saxpy", "sass")]
    assert (finished.exit_code, finished.toolchain) == (0, {"cupti": "13.0"})


async def test_a_program_that_fails_after_its_kernel_has_both(click: Click, report: c.Profile) -> None:
    failed = c.failed("r1", c.Failure("runtime error", "main ended with exit code 3"), exit_code=3)
    finished = await click(failed, BEGUN, line_of(report))
    assert (finished.outcome, finished.exit_code, len(finished.profiles)) == ("runtime error", 3, 1)


async def test_a_program_that_hangs_after_its_kernel_has_a_profile(click: Click, report: c.Profile) -> None:
    finished = await click(c.failed("r1", LIMIT), BEGUN, line_of(report))
    assert (finished.outcome, len(finished.profiles)) == ("ok", 1)
    assert "the program was ended at its limit of 8 s, after the launches shown" in finished.remarks


async def test_a_limit_that_is_too_short_for_counting_is_said(click: Click) -> None:
    finished = await click(c.failed("r1", LIMIT), BEGUN)
    assert (finished.outcome, finished.profiles) == ("timed out", ())
    assert finished.remarks == (
        "the limit was reached while saxpy was launched again and again, to be counted",
    )


async def test_a_kernel_that_fails_is_run_as_it_is_which_says_where(click: Click) -> None:
    finished = await click(c.failed("r1", c.Failure("runtime error", "exit code 3")), BEGUN, {"failed": True})
    assert finished.failure
    assert finished.failure.message == "an illegal address"


async def test_a_kernel_that_is_never_launched(click: Click) -> None:
    finished = await click(c.ok("r1"), {"launched": ["_Z5otherPf"]})
    assert finished.remarks == ("nothing was profiled: the program did not launch saxpy; it launched other",)


@pytest.mark.parametrize(
    ("finished", "lines", "why"),
    [
        (c.ok("r1"), [{"why": "it is launched by a CUDA graph"}], "it is launched by a CUDA graph"),
        (c.ok("r1"), [], "CUPTI could not come into any process of it"),
        (c.failed("r1", c.Failure("runtime error", "SIGSEGV"), exit_code=-11), [BEGUN], "the program ended by a signal while CUPTI was in it"),
    ],
    ids=["refused", "no CUDA", "a crash"],
)  # fmt: skip
async def test_what_is_left_to_nsight_compute(
    finished: c.Finished, lines: list[Mapping[str, Any]], why: str, click: Click
) -> None:
    with pytest.raises(UncountedError, match=why):
        await click(finished, *lines)
