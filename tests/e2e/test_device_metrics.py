"""Device metrics in the evaluation server's answers. The profiles are recorded (recorded_worker.py)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from orbit_lsp.api import device_metrics, metric_jobs
from orbit_lsp.queue.job_queue import JobQueue
from orbit_lsp.queue.job_store import Result
from orbit_lsp.queue.request import Request
from orbit_remote.common import messages as c
from tests.e2e.forks import LIMIT_S, command
from tests.e2e.test_api import CANDIDATE, REFERENCE, server
from tests.e2e.test_history import SAXPY

COUNTED = SAXPY + "// SHEET saxpy\n"
PAIR = {"ref_code": REFERENCE + "# // SHEET gemm\n", "custom_code": CANDIDATE + "# // SHEET fused\n"}
ASKED = {"device_metrics": True}


def cuda(text: str) -> dict[str, Any]:
    return {"kernel": {"source_code": text, "kernel_type": "cuda"}} | ASKED


def told(answer: dict[str, Any]) -> str:
    """The kernels of both fields, and why one is null."""
    metadata = answer["kernel_exec_result"]["metadata"]
    known, why = metadata["device_metrics"], metadata["device_metrics_why"]
    kernels = [side and side["kernel"] for side in known.values()] if known else None
    return f"{kernels}" + (f": {why}" if why else "")


async def evaluated(client: httpx2.AsyncClient, route: str, body: dict[str, Any]) -> dict[str, Any]:
    response = await client.post(route, json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    assert (await client.get(f"/job/{answer['job_id']}")).json() == answer
    return answer


async def test_a_comparison_has_them_of_both_sides(tmp_path: Path, recorded_python: str) -> None:
    async with server(tmp_path, recorded_python) as (client, queue):
        for route in ("/", "/compare"):
            answer = await evaluated(client, route, PAIR | ASKED)
            assert told(answer) == "['gemm', 'fused']"
        known = answer["kernel_exec_result"]["metadata"]["device_metrics"]
        for side in ("original_device_metrics", "custom_device_metrics"):
            assert list(known[side]) == ["kernel", *device_metrics.TABLE, *device_metrics.DERIVED]
            assert known[side]["occupancy_metrics"]["block_size"] == 256
        mine, reference, ran = (queue.store.request(job.id) for job in queue.store.jobs(most=3))
        if mine.key.endswith(":reference"):
            mine, reference = reference, mine
        key = f"device-metrics:{answer['job_id']}"
        assert (ran.action, ran.key, ran.sections) == ("run", "", device_metrics.SECTIONS)
        assert mine == replace(ran, action="profile", key=key, gpu="local:0")
        assert (reference.key, reference.sections) == (f"{key}:reference", ran.sections)
        assert reference.text.startswith(PAIR["ref_code"])
        assert "class ModelNew(Model):" in reference.text


@pytest.mark.parametrize(
    ("route", "body", "text"),
    [
        ("/evaluate", cuda(COUNTED), "['saxpy', None]"),
        ("/evaluate", cuda(COUNTED + "// WRONG\n"), "['saxpy', None]"),  # it ran
        ("/evaluate", cuda(COUNTED) | {"device_metrics": None}, 'None: not asked for: send "device_metrics": true, or start the server with ENABLE_DEVICE_METRICS=true'),
        ("/evaluate", cuda(COUNTED.replace("{", "{BUG", 1)), "None: nothing was profiled, because the kernel did not run to its end"),
        ("/evaluate", cuda(SAXPY + "// DENIED\n"), "None: this machine does not permit its counters (ERR_NVGPUCTRPERM); its administrator can permit them"),
        ("/evaluate", cuda(SAXPY), "None: Nsight Compute profiled no launch"),
        ("/", PAIR | ASKED | {"custom_code": CANDIDATE + "# DENIED\n"}, "['gemm', None]: custom_device_metrics: this machine does not permit its counters (ERR_NVGPUCTRPERM); its administrator can permit them"),
        ("/", {"ref_code": REFERENCE + "# DENIED", "custom_code": CANDIDATE + "# DENIED"} | ASKED, "None: this machine does not permit its counters (ERR_NVGPUCTRPERM); its administrator can permit them"),
        ("/", PAIR | ASKED | {"grade": "referee"}, "None: at grade referee the candidate's own host code is not run under a profiler, which would be outside its sandbox; grade author has device metrics"),
    ],
)  # fmt: skip
async def test_what_is_known_and_why_the_rest_is_not(
    tmp_path: Path, recorded_python: str, route: str, body: dict[str, Any], text: str
) -> None:
    async with server(tmp_path, recorded_python) as (client, _):
        assert told(await evaluated(client, route, body)) == text


async def test_the_servers_environment_and_the_request(tmp_path: Path, recorded_python: str) -> None:
    settings = metric_jobs.settings({"ENABLE_DEVICE_METRICS": "true", "NCU_SECTIONS": "Occupancy"})
    async with server(tmp_path, recorded_python, metrics=settings) as (client, queue):
        kernel = {"kernel": cuda(COUNTED)["kernel"]}
        assert told(await evaluated(client, "/evaluate", kernel)) == "['saxpy', None]"
        assert {queue.store.request(job.id).sections for job in queue.store.jobs()} == {("Occupancy",)}
        refused = await evaluated(client, "/evaluate", kernel | {"device_metrics": False})
        assert told(refused).startswith("None: not asked for")
        assert len(queue.store.jobs()) == 3


async def test_they_are_collected_once_and_not_lost(tmp_path: Path, recorded_python: str) -> None:
    request = Request(name="kernel.cu", text=COUNTED, sections=device_metrics.SECTIONS)
    async with server(tmp_path, recorded_python) as (client, queue):
        job = await queue.submit(request)  # whoever sent it has gone before the profile began
        await queue.wait(job.id)
        assert len(queue.store.jobs()) == 1
        answers: list[dict[str, Any]] = []
        async with asyncio.timeout(LIMIT_S):
            while not answers or "kernel_exec_result" not in answers[-1]:
                both = [client.get(f"/job/{job.id}"), client.get(f"/job/{job.id}")]
                answers += [answer.json() for answer in await asyncio.gather(*both)]
                assert len(queue.store.jobs()) == 2
                await queue.wait(queue.store.jobs()[0].id)
        assert (answers[0]["status"] in ("queued", "starting", "profiling"), told(answers[-1])) == (
            True,
            "['saxpy', None]",
        )
    async with server(tmp_path, recorded_python) as (client, queue):
        assert (await client.get(f"/job/{job.id}")).json() == answers[-1]
        profile = queue.store.jobs()[0].id
        assert told((await client.get(f"/job/{profile}")).json()).startswith("None: not asked for")
        assert len(queue.store.jobs()) == 2


async def profiled_badly(queue: JobQueue, request: Request) -> str:
    """An evaluation whose profile has failed."""
    job = await queue.submit(request)
    ended = await queue.wait(job.id)
    assert ended
    profile = replace(request, action="profile", key=f"device-metrics:{job.id}", gpu=ended.slot)
    failed, _ = queue.store.add(profile, job.owner, queue.door)
    failure = c.Failure("infrastructure", "orbit-lsp was killed or crashed while this job ran")
    queue.store.end(failed.id, Result(c.failed(failed.id, failure)), "")
    return job.id


async def test_a_profile_that_failed_is_not_run_at_each_look(tmp_path: Path, recorded_python: str) -> None:
    request = Request(name="kernel.cu", text=COUNTED, sections=device_metrics.SECTIONS)
    async with server(tmp_path, recorded_python) as (client, queue):
        job = await profiled_badly(queue, request)
        for _ in range(2):
            answer = (await client.get(f"/job/{job}")).json()
            assert told(answer) == "None: orbit-lsp was killed or crashed while this job ran"
        assert len(queue.store.jobs()) == 2


async def test_the_key_of_a_profile_that_another_request_has_taken(
    tmp_path: Path, recorded_python: str
) -> None:
    request = Request(name="kernel.cu", text=COUNTED, sections=device_metrics.SECTIONS)
    async with server(tmp_path, recorded_python) as (client, queue):
        job = await queue.submit(request)
        await queue.wait(job.id)
        other = await queue.submit(Request(name="kernel.cu", text=SAXPY, key=f"device-metrics:{job.id}"))
        answer = (await client.get(f"/job/{job.id}")).json()
        why = f"the key device-metrics:{job.id} was used for another request, job {other.id}"
        assert told(answer) == f"None: {why}"


def test_a_section_that_does_not_exist_ends_the_command(tmp_path: Path, recorded_python: str) -> None:
    environment = {"NCU_SECTIONS": "SpeedOfLight,Speed", "XDG_STATE_HOME": str(tmp_path / "state")}
    words = ("api", "--port", "0", "--python", recorded_python)
    done = command(tmp_path, *words, environment=environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (64, "", 1)
    start = (
        "orbit-lsp: error: NCU_SECTIONS names 'Speed', which is not a section of Nsight Compute; use some of "
    )
    assert done.stderr.startswith(start)
