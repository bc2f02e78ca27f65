"""The worker as a process: requests in, exactly one answer for each, nothing left behind."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orbit_remote import MAIN
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Cancel, Job, KernelDefinition, Probe, Request, SpecStart
from tests.first_cases import first_of
from tests.remote.nvcc_check import needs_nvcc

KERNEL = "__global__ void k(float* x) { x[0] = 1; }\n"


class Worker:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def send(self, *requests: Request | str) -> None:
        assert self.process.stdin
        for request in requests:
            self.process.stdin.write(
                (request if isinstance(request, str) else c.encode(request)).encode() + b"\n"
            )

    async def until(self, kind: str, *runs: str) -> dict:
        """The next event of this kind and of one of these runs."""
        assert self.process.stdout
        while line := await self.process.stdout.readline():
            event = json.loads(line)
            if event["kind"] == kind and event["run"] in runs:
                return event
        raise AssertionError(f"the worker left without {kind} of {runs}")


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", MAIN, "worker", "--cache", tmp_path / "cache",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 24,
    )  # fmt: skip
    yield Worker(process)
    assert process.stdin
    process.stdin.close()
    await process.wait()
    assert not list((tmp_path / "cache" / "scratch").glob("*"))


def job(run: str, tmp_path: Path, text: str = KERNEL, **fields: object) -> Job:
    path = str(tmp_path / "k.cu")
    values = {"run": run, "action": "compile", "language": "cuda", "path": path, "text": text} | fields
    return Job(**values)  # pyright: ignore[reportArgumentType]


async def test_a_job_cancelled_at_once_is_answered(worker: Worker, tmp_path: Path) -> None:
    worker.send(job("a", tmp_path), Cancel("a"))
    assert (await worker.until("finished", "a"))["outcome"] == "cancelled"
    worker.send(job("b", tmp_path, architecture="sm_90a"))
    assert (await worker.until("finished", "b"))["outcome"] == "ok"


async def test_garbage_is_passed_over(worker: Worker) -> None:
    for garbage in ("", "{", "[]", '{"kind":"job"}', '{"kind":"job","version":99}', "\0" * 99):
        run = f"after {garbage}"
        worker.send(garbage, Probe(run))
        assert (await worker.until("machine", run))["version"] == c.RESULT_VERSION


async def test_no_more_builds_at_once_than_cores(worker: Worker, tmp_path: Path) -> None:
    log = tmp_path / "log"
    compiler = tmp_path / "nvcc"
    compiler.write_text(
        '#!/bin/sh\ncase "$*" in\n*--version) echo release 13.0, V13.0.1;;\n*--dryrun*) ;;\n'
        f"*) echo begin >> '{log}'; sleep 0.1; echo end >> '{log}';;\nesac\n"
    )
    compiler.chmod(0o755)
    cores = os.cpu_count() or 1
    runs = {str(number) for number in range(cores + 8)}
    for run in runs:
        worker.send(job(run, tmp_path, KERNEL + f"// {run}", nvcc=str(compiler)))
    assert worker.process.stdout
    while runs:
        event = json.loads(await worker.process.stdout.readline())
        runs -= {event["run"]} if event["kind"] == "finished" else set()
    steps = [1 if word == "begin" else -1 for word in log.read_text().split()]
    assert len(steps) == 2 * (cores + 8)
    assert max(itertools.accumulate(steps)) <= cores


async def test_a_cancel_for_nothing_is_nothing(worker: Worker) -> None:
    worker.send(Cancel("nobody"), Probe("p"))
    await worker.until("machine", "p")


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
async def test_a_run_without_a_gpu_says_so(worker: Worker, tmp_path: Path) -> None:
    worker.send(job("a", tmp_path, action="run"))
    finished = await worker.until("finished", "a")
    assert (finished["outcome"], finished["failure"]["message"]) == (
        "infrastructure",
        "there is no NVIDIA GPU in this machine to run it on",
    )


async def test_jobs_under_way_end_when_the_other_side_leaves(worker: Worker, tmp_path: Path) -> None:
    slow = "#include <cooperative_groups.h>\n#include <cuda/barrier>\n" + KERNEL
    worker.send(job("a", tmp_path, slow, architecture="sm_90a"))
    await worker.until("group", "a")  # the fixture then leaves, and looks for what is left


SPEC = """\
// orbit: n = 256; x = randn(n)
// orbit: launch k<<<1, n>>>(x)
// orbit: expect x == x
__global__ void k(float* x) { x[threadIdx.x] *= 1; }
"""


@needs_nvcc
async def test_two_builds_of_one_launch_spec_at_once_are_one(worker: Worker, tmp_path: Path) -> None:
    of = KernelDefinition("k", "k", 3, 3, 3, 17)
    for run in ("a", "b"):
        worker.send(job(run, tmp_path, SPEC, action="build", start=SpecStart(of), architecture="sm_90a"))
    built = [await worker.until("built", "a", "b") for _ in "ab"]
    assert [item["cached"] for item in built] == [False, True]


@needs_nvcc
@pytest.mark.parametrize(
    ("flags", "architecture"),
    first_of(
        [
            ("-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90", "sm_90"),
            ("-gencode arch=compute_80,code=sm_80 -gencode arch=compute_86,code=sm_86", "sm_90a"),
            ("-gencode arch=compute_80,code=sm_80", "sm_90a"),
            ("-arch=all-major", "sm_90a"),
            ("", "sm_90a"),
        ],
        1,
    ),
)
async def test_a_launch_spec_is_built_for_its_gpu_whichever_the_build_names(
    worker: Worker, tmp_path: Path, flags: str, architecture: str
) -> None:
    of = KernelDefinition("k", "k", 3, 3, 3, 17)
    asked = {"action": "build", "start": SpecStart(of), "architecture": "sm_90a"}
    worker.send(job("a", tmp_path, SPEC, flags=tuple(flags.split()), **asked))
    built = await worker.until("built", "a")
    assert {each["architecture"] for each in built["resources"]} == {architecture}
