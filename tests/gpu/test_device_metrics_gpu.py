"""Device metrics of evaluations on a real GPU: whatever can be known of a kernel is known, and what it computes is counted."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.queue import pool
from orbit_lsp.queue.job_queue import JobQueue, engines
from orbit_lsp.queue.job_store import JobStore
from orbit_lsp.queue.slot_engine import EngineOptions

# not side by side (-n 0): Nsight Compute waits while another of it is at work on the machine
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]
COUNT = 1 << 24
SIDE = 2048
SAXPY = """\
__global__ void saxpy(const float* x, float* y, int n, float a) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = fmaf(a, x[i], y[i]);
}
"""
ADD = """\
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)
"""
MATMUL = f"""\
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.randn({SIDE}, {SIDE}, dtype=torch.float16) for _ in "ab"]


def get_init_inputs():
    return []
"""
TWO_KERNELS = """\
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return torch.mm(a, b) + 0
"""


@asynccontextmanager
async def server(folder: Path, **environment: str) -> AsyncGenerator[Any]:
    import httpx2

    from orbit_lsp.api import http_app, metric_jobs
    from orbit_lsp.api.guard import RequestLimits

    store = JobStore(folder / "jobs.sqlite")
    jobs = JobQueue(store, pool.parse("local:0"), engines(EngineOptions()), "api")
    await jobs.start()
    app = http_app.app(jobs, RequestLimits(), ["127.0.0.1"], metrics=metric_jobs.settings(environment))
    transport = httpx2.ASGITransport(app=app)
    try:
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", timeout=600
        ) as client:
            yield client
    finally:
        await jobs.close()


def tensor(name: str, role: str) -> dict[str, Any]:
    spec = {"shape": [COUNT], "dtype": "float32", "init": {"kind": "randn"}}
    return {"name": name, "type": "tensor", "role": role, "tensor_spec": spec}


async def metrics(client: Any, route: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = (await client.post(route, json={"device_metrics": True} | body)).json()
    metadata = answer["kernel_exec_result"]["metadata"]
    assert metadata["device_metrics"], answer
    assert metadata["device_metrics_why"] is None
    assert (await client.get(f"/job/{answer['job_id']}")).json() == answer
    return metadata["device_metrics"]


def unknown(groups: dict[str, Any]) -> list[str]:
    return [
        name
        for group, fields in groups.items()
        if group != "kernel"
        for name, value in fields.items()
        if value is None
    ]


async def test_a_cuda_kernel_with_an_io_contract(tmp_path: Path) -> None:
    n, a = {"name": "n", "type": "int", "value": COUNT}, {"name": "a", "type": "float", "value": 2.0}
    launch = {"grid": {"x": COUNT // 256}, "block": {"x": 256}}
    kernel = {
        "source_code": SAXPY,
        "kernel_type": "cuda",
        "io": {"args": [tensor("x", "input"), tensor("y", "inout"), n, a], "launch": launch},
    }
    async with server(tmp_path) as client:
        known = await metrics(client, "/evaluate", {"kernel": kernel, "grade": "referee"})
    assert known["custom_device_metrics"] is None
    groups = known["original_device_metrics"]
    assert groups["kernel"].startswith("saxpy")
    assert unknown(groups) == [], groups
    assert groups["roofline_metrics"]["flop_count_total"] == 2 * COUNT
    assert groups["roofline_metrics"]["dram_bytes_sum"] > 4 * COUNT  # what is written may stay in the L2
    assert groups["access_pattern_metrics"]["l1_load_sectors_per_req"] == pytest.approx(4, rel=0.02)
    assert groups["occupancy_metrics"]["block_size"] == 256
    assert 0 < groups["memory_metrics"]["dram_total_bandwidth_gb_s"] < 20_000
    assert 50 < groups["detailed_metrics"]["sm_active_cycles_pct"] <= 100


async def test_a_triton_kernel_with_an_io_contract(tmp_path: Path) -> None:
    n = {"name": "n", "type": "int", "value": COUNT}
    block = {"name": "BLOCK", "type": "int", "value": 1024, "is_meta": True}
    args = [tensor("x", "input"), tensor("y", "input"), tensor("out", "output"), n, block]
    kernel = {
        "source_code": ADD,
        "kernel_type": "triton",
        "io": {"args": args, "launch": {"grid": {"x": COUNT // 1024}, "num_warps": 4}},
    }
    async with server(tmp_path) as client:
        groups = (await metrics(client, "/evaluate", {"kernel": kernel}))["original_device_metrics"]
    assert groups["kernel"] == "add"
    assert unknown(groups) == [], groups
    assert groups["roofline_metrics"]["flop_count_total"] == COUNT
    assert groups["occupancy_metrics"]["block_size"] == 128


async def test_two_kernelbench_classes(tmp_path: Path) -> None:
    """A product of matrices may load through the TMA. Then it makes no ordinary requests, and their counters are unknown."""
    may_be_nothing = {"l1_load_sectors_per_req", "l1_store_sectors_per_req", "l2_excess_frac"}
    async with server(tmp_path) as client:
        known = await metrics(client, "/", {"ref_code": MATMUL, "custom_code": TWO_KERNELS})
    for side in ("original_device_metrics", "custom_device_metrics"):
        groups = known[side]
        assert set(unknown(groups)) <= may_be_nothing, (side, groups)
        operations = groups["roofline_metrics"]["flop_count_total"]
        # the matrix product is the longer of two kernels; its epilogue may have some of its own
        assert 2 * SIDE**3 <= operations <= 2.1 * SIDE**3, (side, groups)
        assert groups["pipeline_metrics"]["tensor_pipe_active_pct"] > 10
        assert groups["compute_metrics"]["tensor_pipe_utilization_pct"] > 0


async def test_only_the_sections_of_the_environment(tmp_path: Path) -> None:
    kernel = {"source_code": SAXPY_WITH_SPEC, "kernel_type": "cuda"}
    async with server(tmp_path, NCU_SECTIONS="Occupancy,LaunchStats") as client:
        groups = (await metrics(client, "/evaluate", {"kernel": kernel}))["original_device_metrics"]
    assert unknown({name: groups[name] for name in ("kernel", "occupancy_metrics")}) == []
    assert groups["detailed_metrics"]["warp_occupancy_pct"] > 0
    assert groups["timing_metrics"]["gpu_time_duration_seconds"] > 0
    assert groups["scheduler_metrics"]["issue_active_pct"] is None
    assert groups["memory_metrics"]["l2_throughput_pct"] is None


SAXPY_WITH_SPEC = f"""\
// orbit: n = {COUNT}; x = randn(n); y = randn(n)
// orbit: launch saxpy<<<n / 256, 256>>>(x, y, n, 2.0f)
{SAXPY}"""
