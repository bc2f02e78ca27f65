"""The occupancy rules against the GPU itself: its attributes, its driver's own answer, and ncu's."""

from __future__ import annotations

import csv
import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbit_remote.common import occupancy as occ

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine"),
]

KERNELS = r"""
// Each kernel leans on one resource. `sink` is never null, so nothing is optimised away.
template <int N> __device__ void work(float* sink) {
  float v[N];
  #pragma unroll
  for (int i = 0; i < N; ++i) v[i] = sink[i * 32 + threadIdx.x];
  #pragma unroll
  for (int r = 0; r < 4; ++r) {
    #pragma unroll
    for (int i = 0; i < N; ++i) v[i] = fmaf(v[i], v[(i * 7 + 3) % N], v[(i + 1) % N]);
  }
  #pragma unroll
  for (int i = 0; i < N; ++i) sink[i * 32 + threadIdx.x] = v[i];
}
extern "C" __global__ void tiny(float* sink) { sink[threadIdx.x] = 1.0f; }
extern "C" __global__ void middling(float* sink) { work<24>(sink); }
extern "C" __global__ void greedy(float* sink) { work<90>(sink); }
extern "C" __global__ void __launch_bounds__(128) bounded(float* sink) { work<150>(sink); }
extern "C" __global__ void shared(float* sink) {
  __shared__ float tile[2600];
  tile[threadIdx.x] = sink[threadIdx.x];
  __syncthreads();
  sink[threadIdx.x] = tile[threadIdx.x ^ 1];
}
extern "C" __global__ void barriers(float* sink) {
  #define MEET(n) asm volatile("bar.sync " #n ";" ::: "memory"); sink[threadIdx.x] += 1.0f;
  MEET(0) MEET(1) MEET(2) MEET(3) MEET(4) MEET(5) MEET(6) MEET(7)
}
"""

MAIN = r"""
#include <cstdio>
int main() {
  float* sink;
  if (cudaMalloc(&sink, 1 << 20) != cudaSuccess) return 1;
  cudaMemset(sink, 0, 1 << 20);
  #define GO(kernel, threads, dynamic) \
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 80 * 1024); \
    kernel<<<2, threads, dynamic>>>(sink);
  GO(tiny, 32, 0) GO(tiny, 1024, 0) GO(tiny, 96, 70000) GO(middling, 192, 0) GO(middling, 64, 5000)
  GO(greedy, 256, 0) GO(bounded, 128, 0) GO(shared, 256, 0) GO(shared, 64, 3000) GO(barriers, 32, 0)
  cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) std::puts(cudaGetErrorString(error));
  return error != cudaSuccess;
}
"""
NAMES = ("tiny", "middling", "greedy", "bounded", "shared", "barriers")


class Driver:
    """The few calls of libcuda that this needs; any error ends the test."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        self.device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(self.device), 0)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name: str, *arguments) -> None:
        status = getattr(self.cuda, name)(*arguments)
        assert status == 0, f"{name}: CUDA error {status}"

    def attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, self.device)
        return value.value

    def close(self) -> None:
        self.call("cuDevicePrimaryCtxRelease_v2", self.device)


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    result = Driver()
    yield result
    result.close()


@pytest.fixture(scope="module")
def sm(driver: Driver) -> occ.MultiprocessorLimits:
    # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR of cuda.h
    limits = occ.limits(f"{driver.attribute(75)}.{driver.attribute(76)}")
    if limits is None:
        pytest.skip("a GPU that is not in the table")
    return limits


def test_the_table_is_what_the_device_says(driver: Driver, sm: occ.MultiprocessorLimits) -> None:
    # CU_DEVICE_ATTRIBUTE_… of cuda.h
    assert driver.attribute(1) == occ.MAX_THREADS_PER_BLOCK
    assert driver.attribute(10) == occ.WARP
    assert driver.attribute(12) == occ.REGISTERS_PER_BLOCK
    assert driver.attribute(82) == occ.REGISTERS_PER_SM
    assert driver.attribute(39) == sm.threads
    assert driver.attribute(106) == sm.blocks
    assert driver.attribute(81) == sm.shared
    assert driver.attribute(97) == sm.shared_per_block
    assert driver.attribute(111) == sm.shared_reserved


@pytest.fixture(scope="module")
def cubin(
    sm: occ.MultiprocessorLimits, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, int]]:
    """The kernels for this GPU, and the barriers each uses as ptxas counts them."""
    folder = tmp_path_factory.mktemp("occupancy")
    source, target = folder / "kernels.cu", folder / "kernels.cubin"
    source.write_text(KERNELS)
    architecture = f"-arch=sm_{sm.capability.replace('.', '')}"
    done = subprocess.run(
        ["nvcc", "-O3", architecture, "-cubin", "-Xptxas", "-v", source, "-o", target],
        check=True,
        capture_output=True,
        text=True,
    )
    parts = re.split(r"Function properties for (\w+)", done.stderr)
    used = {
        name: int(match[1]) if (match := re.search(r"used (\d+) barriers", text)) else 0
        for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    assert set(used) == set(NAMES)
    assert used["barriers"] > 1
    return target, used


@pytest.mark.parametrize("name", NAMES)
def test_equal_to_the_drivers_occupancy(
    driver: Driver, sm: occ.MultiprocessorLimits, cubin, name: str
) -> None:
    path, used = cubin
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    driver.call("cuModuleLoad", ctypes.byref(module), str(path).encode())
    driver.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())

    def has(attribute: int) -> int:
        value = ctypes.c_int()
        driver.call("cuFuncGetAttribute", ctypes.byref(value), attribute, function)
        return value.value

    # CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, _SHARED_SIZE_BYTES, _NUM_REGS of cuda.h
    bound, static, registers = has(0), has(1), has(4)
    # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.call("cuFuncSetAttribute", function, 8, sm.shared_per_block - static)
    compared: set[int] = set()
    for threads in [*range(32, 1025, 32), 1, 33, 100, 777]:
        for dynamic in (0, 1000, 6000, 20_000, 48 * 1024, sm.shared_per_block - static):
            theirs = ctypes.c_int()
            driver.call(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor",
                ctypes.byref(theirs),
                function,
                threads,
                ctypes.c_size_t(dynamic),
            )
            ours = occ.occupancy(sm.capability, registers, threads, static, dynamic, barriers=used[name])
            assert ours is not None
            assert ours.blocks == theirs.value, (name, registers, threads, static, dynamic, bound, ours)
            compared.add(ours.blocks)
    driver.call("cuModuleUnload", module)
    assert len(compared) > 3


@pytest.mark.skipif(shutil.which("ncu") is None, reason="no ncu on this machine")
def test_equal_to_ncus_limits(sm: occ.MultiprocessorLimits, cubin, tmp_path: Path) -> None:
    source, program = tmp_path / "program.cu", tmp_path / "program"
    source.write_text(KERNELS + MAIN)
    architecture = f"-arch=sm_{sm.capability.replace('.', '')}"
    subprocess.run(["nvcc", "-O3", architecture, source, "-o", program], check=True)
    limits: dict[occ.Limiter, str] = {
        "registers": "launch__occupancy_limit_registers",
        "shared memory": "launch__occupancy_limit_shared_mem",
        "warps": "launch__occupancy_limit_warps",
        "blocks": "launch__occupancy_limit_blocks",
        "barriers": "launch__occupancy_limit_barriers",
    }
    launch = {
        "registers": "launch__registers_per_thread",
        "threads": "launch__block_size",
        "static_shared": "launch__shared_mem_per_block_static",
        "dynamic_shared": "launch__shared_mem_per_block_dynamic",
    }
    warps = "sm__maximum_warps_per_active_cycle_pct"
    done = subprocess.run(
        [
            *("ncu", "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base"),
            *("--metrics", ",".join([*limits.values(), *launch.values(), warps]), program),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    if "ERR_NVGPUCTRPERM" in done.stdout + done.stderr:
        pytest.skip("this machine does not permit profiling")
    assert done.returncode == 0, done.stdout + done.stderr
    table = done.stdout[done.stdout.index('"ID"') :]
    rows = [row for row in csv.DictReader(table.splitlines()) if row["ID"]]  # the second line has units
    assert len(rows) == 10
    for row in rows:
        number = {key: int(float(row[column].replace(",", ""))) for key, column in launch.items()}
        occupancy = occ.occupancy(sm.capability, **number, barriers=cubin[1][row["Kernel Name"]])
        assert occupancy is not None
        theirs = {
            key: int(float(row[column].replace(",", ""))) for key, column in limits.items() if row[column]
        }
        assert min(theirs.values()) == occupancy.blocks, (row, occupancy)
        ours = dict(occupancy.limits)
        # ncu counts the shared memory that the driver carved out for this launch, we count all there
        # could be: the two agree where it limits
        if "shared memory" not in occupancy.limiters:
            assert theirs.pop("shared memory") >= occupancy.blocks
            del ours["shared memory"]
        # ncu names no more blocks for barriers than there can be, and counts one where there is none
        assert theirs.pop("barriers") == min(ours.pop("barriers", sm.blocks), sm.blocks)
        assert ours == theirs, (row, occupancy)
        assert 100 * occupancy.fraction == pytest.approx(float(row[warps]), abs=0.01)
