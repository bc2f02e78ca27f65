"""When a Triton file is compiled for every GPU: once after a compile, and nothing but the text of that one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from orbit_lsp.features.every_gpu import CAPABILITIES, WARPS, EveryGpu
from orbit_lsp.state.documents import TextChange
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job
from tests.settings_check import settings_of_values

URI = "file:///src/k.py"
TEXT = "import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n"
HERE = c.Machine("p", 1, "python", "3.11", packages={"triton": "3.6.0"})


class Runner:
    """Compiles nothing, and refuses one architecture."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    async def run(self, job: Job) -> AsyncIterator[c.Event]:
        self.jobs.append(job)
        architecture = job.architecture or ""
        if architecture == "sm_80":
            error = c.Problem("error", "no fp8 here\nat all", "triton", c.Place("/src/k.py", 6))
            yield c.Built(job.run, (error,))
            yield c.failed(job.run, c.Failure("compile error", "k.py does not compile"))
        else:
            resources = c.Resources("k", "k", architecture, registers=16, place=c.Place("/src/k.py", 5))
            yield c.Built(job.run, (), (resources,))
            yield c.ok(job.run)


@pytest.mark.parametrize(
    ("before", "asked"),
    [
        ("", True),
        ("an edit", False),
        ("a change on disk", False),
        ("a compile that failed", False),
        ("no compile", False),
        ("a compile that was rented", False),
        ("a hover before", False),
    ],
)
async def test_only_what_was_compiled_is_compiled_again(before: str, asked: bool) -> None:
    session = Session(setup=RunSetup(settings=settings_of_values({"every_gpu": "hover"}), machine=HERE))
    session.open(URI, 1, TEXT)
    runs: Any = SimpleNamespace(under_way=list)
    runner: Any = Runner()
    every = EveryGpu(session, runs, lambda: runner, lambda _: None)
    frozen = session.freeze(URI)
    assert frozen
    outcome: Any = "compile error" if before == "a compile that failed" else "ok"
    job = Job("r1", "compile", "triton", "/src/k.py", TEXT, gpu="H100" if "rented" in before else None)
    if before != "no compile":
        ended: Any = SimpleNamespace(
            frozen=frozen, job=job, action="compile", finished=c.Finished("r1", outcome)
        )
        every.run_ended(ended)
    if before == "an edit":
        session.change(URI, 2, [TextChange((5, 4), (5, 8), "return")])
    if before == "a change on disk":
        await session.disk.note("/src/other.py")
    if before == "a hover before" and (first := every.wanted(URI)):
        await first
        runner.jobs.clear()
    task = every.wanted(URI)
    assert (task is not None) is asked
    if task is None:
        assert not runner.jobs
        return
    await task
    assert [job.architecture for job in runner.jobs] == [f"sm_{each}" for each in CAPABILITIES]
    assert [job.warps for job in runner.jobs if job.warps] == [WARPS]
    [figures] = session.results.every_gpu.values()
    assert [each.architecture for each in figures.resources] == [f"sm_{x}" for x in CAPABILITIES if x != "80"]
    assert figures.not_compiled == {"sm_80": "no fp8 here"}
    every.shutdown()
