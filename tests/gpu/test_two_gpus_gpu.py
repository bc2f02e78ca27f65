"""A real program for two GPUs through every door: the same launches on both, both kept free meanwhile, and a GPU a job otherwise."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orbit_lsp.queue import pool
from orbit_lsp.queue.job_queue import JobQueue, engines
from orbit_lsp.queue.job_store import JobStore
from orbit_lsp.queue.request import Request
from orbit_lsp.queue.slot_engine import EngineOptions
from orbit_remote.recording import telemetry

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]
HALVES = """\
#include <cstdio>
#include <cuda_runtime.h>
__global__ void fill(float* x, float value, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] = value;
}
__global__ void add(const float* x, float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] += x[i];
}
int main() {
  int count = 0, n = 1 << 22;
  cudaGetDeviceCount(&count);
  if (count < 2) return printf("needs two GPUs, sees %d\\n", count), 3;
  float *x[2], *y[2], *from_other;
  for (int gpu = 0; gpu < 2; ++gpu) {
    cudaSetDevice(gpu);
    cudaMalloc(&x[gpu], n * sizeof(float));
    cudaMalloc(&y[gpu], n * sizeof(float));
    for (int i = 0; i < 10; ++i) fill<<<264, 256>>>(x[gpu], gpu + 1.0f, n);
    fill<<<264, 256>>>(y[gpu], 0.0f, n);
  }
  cudaSetDevice(1);
  cudaMalloc(&from_other, n * sizeof(float));
  cudaMemcpyPeer(from_other, 1, x[0], 0, n * sizeof(float));
  add<<<264, 256>>>(x[1], y[1], n);
  add<<<264, 256>>>(from_other, y[1], n);
  float sum = 0;
  cudaMemcpy(&sum, y[1] + n - 1, sizeof sum, cudaMemcpyDeviceToHost);
  printf("sum %g of %d GPUs\\n", sum, count);
  return cudaGetLastError() != cudaSuccess || sum != 3.0f;
}
"""
NCCL = """\
import torch
import torch.cuda.nccl as nccl
import triton
import triton.language as tl


@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def main():
    n = 1 << 20
    parts = []
    for gpu in range(2):
        with torch.cuda.device(gpu):
            part = torch.full((n,), gpu + 1.0, device=f"cuda:{gpu}")
            scale[(n // 1024,)](part, n, BLOCK=1024)
            parts.append(part)
    nccl.all_reduce(parts)
    for part in parts:
        torch.cuda.synchronize(part.device)
        assert part[0].item() == 6.0, part[0]
    print("reduced over", len(parts))


if __name__ == "__main__":
    main()
"""
ONE = """\
#include <cuda_runtime.h>
__global__ void k(float* x) { x[threadIdx.x] = 1; }
int main() { float* x; cudaMalloc(&x, 128); for (int i = 0; i < 20; ++i) k<<<1, 32>>>(x); return cudaDeviceSynchronize(); }
"""


@pytest.fixture(autouse=True)
def two_gpus() -> None:
    if (count := len(telemetry.devices())) < 2:
        pytest.skip(f"needs two GPUs, this machine has {count}")


def orbit(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-P", "-m", "orbit_lsp", *words, "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, json.loads(done.stdout)


def launches(finished: dict[str, Any]) -> dict[str, int]:
    result: dict[str, int] = {}
    for launch in finished["launches"]:
        name = launch["name"].partition("(")[0]
        result[name] = result.get(name, 0) + launch["count"]
    return result


def test_by_the_command_line_both_are_seen_where_two_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "halves.cu").write_text(HALVES)
    code, result = orbit(tmp_path, "run", "halves.cu", "--runner", "local", "--gpu", "H100:2")
    assert (code, result["stdout"]) == (0, "sum 3 of 2 GPUs\n")
    assert launches(result) == {"fill": 22, "add": 2}
    assert "launches on GPUs 0, 1, each grouped by itself" in result["remarks"]
    assert not [remark for remark in result["remarks"] if "kept free" in remark]


def test_a_program_that_did_not_ask_for_both_is_a_remark(tmp_path: Path) -> None:
    (tmp_path / "halves.cu").write_text(HALVES)
    code, result = orbit(tmp_path, "run", "halves.cu", "--runner", "local")
    assert code == 0
    assert [
        remark
        for remark in result["remarks"]
        if remark.startswith("it ran kernels on 2 GPUs, of which 1 were kept")
    ]


def test_one_gpu_alone_is_seen_where_its_number_is_given(tmp_path: Path) -> None:
    (tmp_path / "halves.cu").write_text(HALVES)
    code, result = orbit(tmp_path, "run", "halves.cu", "--runner", "local", "--device", "1")
    assert (code, result["exit_code"], result["stdout"]) == (2, 3, "needs two GPUs, sees 1\n")


def test_nccl_over_both_through_torch(tmp_path: Path) -> None:
    (tmp_path / "reduce.py").write_text(NCCL)
    code, result = orbit(tmp_path, "run", "reduce.py", "--runner", "local", "--gpu", "H100:2")
    assert (code, result["stdout"]) == (0, "reduced over 2\n"), result["failure"]
    assert launches(result)["scale"] == 2


async def test_by_the_queue_a_place_may_be_both_and_other_jobs_wait(tmp_path: Path) -> None:
    slots = pool.parse("local:0-1,local:0,local:1")
    jobs = JobQueue(JobStore(tmp_path / "jobs.sqlite"), slots, engines(EngineOptions()), "test")
    await jobs.start()
    try:
        wanted = [Request(name="halves.cu", text=HALVES, gpu="local:0-1", timeout_s=120)]
        wanted += [Request(name="one.cu", text=ONE, gpu=f"local:{at % 2}", timeout_s=120) for at in range(6)]
        known = [await jobs.submit(request) for request in wanted]
        ended = await asyncio.gather(*(jobs.wait(job.id) for job in known))
        assert [job.outcome for job in ended if job] == ["ok"] * 7
        result = jobs.store.result(known[0].id)
        assert result
        assert launches(result["finished"]) == {"fill": 22, "add": 2}
    finally:
        await jobs.close()
