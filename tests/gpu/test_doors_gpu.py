"""The doors on a real GPU: one engine, the same numbers through each, and the next job after one that fails."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.queue import pool
from orbit_lsp.queue.job_queue import JobQueue, engines
from orbit_lsp.queue.job_store import JobStore
from orbit_lsp.queue.request import Request
from orbit_lsp.queue.slot_engine import EngineOptions

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]
SPEC = """\
// orbit: n = 1 << 26; x = randn(n); y = empty(n)
// orbit: launch copy<<<n / 256, 256>>>(x, y)
// orbit: expect y == x
// orbit: bytes 8 * n
__global__ void copy(const float* x, float* y) { int i = blockIdx.x * 256 + threadIdx.x; y[i] = x[i]; }
"""
FAULT = SPEC.replace("y[i] = x[i]", "y[i + (1ll << 40)] = x[i]")
FOREVER = SPEC.replace("y[i] = x[i]", "while (x[0] != 12345.0f) y[i] = x[i]")
EXAMPLE = Path(__file__).parents[2] / "examples" / "kernelbench_norm_gelu.py"


@asynccontextmanager
async def queue(folder: Path, door: str) -> AsyncGenerator[JobQueue]:
    jobs = JobQueue(JobStore(folder / "jobs.sqlite"), pool.parse("local:0"), engines(EngineOptions()), door)
    await jobs.start()
    try:
        yield jobs
    finally:
        await jobs.close()


async def test_a_job_that_faults_or_never_ends_spoils_nothing(tmp_path: Path) -> None:
    async with queue(tmp_path, "test") as jobs:
        known = [
            await jobs.submit(Request(name="copy.cu", text=text, timeout_s=limit))
            for text, limit in [(SPEC, 60.0), (FAULT, 60.0), (FOREVER, 5.0), (SPEC, 60.0)]
        ]
        ended = [await jobs.wait(job.id) for job in known]
        assert [job.outcome for job in ended if job] == ["ok", "runtime error", "timed out", "ok"]
        results = [jobs.store.result(job.id) for job in (known[0], known[3])]
        medians = [result["finished"]["launches"][0]["timing"]["median"] for result in results if result]
        assert medians[1] == pytest.approx(medians[0], rel=0.03)


def by_the_command_line(folder: Path) -> float:
    command = [sys.executable, "-P", "-m", "orbit_lsp", "run", "copy.cu", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return json.loads(done.stdout)["launches"][0]["timing"]["median"]


async def test_an_agent_gets_the_number_of_the_command_line(tmp_path: Path) -> None:
    from mcp import Client

    from orbit_lsp.agents import mcp_server

    (tmp_path / "copy.cu").write_text(SPEC)
    own = by_the_command_line(tmp_path)
    async with queue(tmp_path, "mcp") as jobs, Client(mcp_server.server(jobs, budget_usd=0.0)) as client:
        ran: Any = await client.call_tool("run", {"file": str(tmp_path / "copy.cu"), "wait_s": 300})
        assert ran.structured_content["numbers"][0]["value"] == pytest.approx(own, rel=0.03)
        profiled: Any = await client.call_tool("profile", {"file": str(tmp_path / "copy.cu"), "wait_s": 300})
        assert profiled.structured_content["outcome"] == "ok"
        same: Any = await client.call_tool(
            "compare", {"file": str(tmp_path / "copy.cu"), "other_text": SPEC, "wait_s": 600}
        )
        assert "no measurable difference" in same.structured_content["verdict"]


async def test_a_candidate_and_its_reference_over_http(tmp_path: Path) -> None:
    import httpx2

    from orbit_lsp.api import http_app
    from orbit_lsp.api.guard import RequestLimits

    whole = EXAMPLE.read_text()
    async with queue(tmp_path, "api") as jobs:
        app = http_app.app(jobs, RequestLimits(), ["127.0.0.1"])
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", timeout=600
        ) as client:
            right = (await client.post("/", json={"ref_code": whole, "custom_code": whole})).json()
            assert right["kernel_exec_result"]["correctness"] is True, right
            assert right["ref_runtime"]["median"] > 0
            wrong = whole.replace("0.7071067811865476", "0.5")
            result = (await client.post("/", json={"ref_code": whole, "custom_code": wrong})).json()
            judged = result["kernel_exec_result"]
            assert (judged["compiled"], judged["correctness"], judged["runtime"]) == (True, False, None), (
                result
            )


async def test_a_launch_spec_runs_no_host_code_of_its_file(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    host = f'#include <cstdio>\nstatic int made = [] {{ std::fclose(std::fopen("{trace}", "w")); return 1; }}();\n'
    async with queue(tmp_path, "test") as jobs:
        job = await jobs.submit(Request(name="copy.cu", text=host + SPEC, timeout_s=60.0))
        await jobs.wait(job.id)
        result = jobs.store.result(job.id)
    assert result
    assert (result["finished"]["outcome"], result["finished"]["judged"]["grade"]) == ("ok", "referee")
    assert not trace.exists()
