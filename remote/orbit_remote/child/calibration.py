"""Measures, in a job's own process, the rates that exactly this GPU reaches, by kernels that do nothing else.

It takes a third of a second, once for each GPU and driver. A kernel can be expected to reach these rates; no kernel
reaches the peak of clocks and widths.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from orbit_remote.child.spec.helper_kernels import Stream
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job

SOURCES: Final = {
    "dram": "a kernel that only reads, and one that copies, the better of the two",
    "fp32": "chains of fused multiply-adds in registers",
    "fp16 tensor": "cuBLAS, a product of matrices of 8192 × 8192, accumulated in FP32",
}
"""How each rate is measured: the keys of `Device.reached`."""

_SOURCE: Final = r"""
extern "C" __global__ void orbit_read(const float4* in, float* out, unsigned long long n) {
  float sum = 0;
  unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
#pragma unroll 4
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    float4 v = __ldcs(in + i);
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 0.12345f) *out = sum;  // never: keeps the reads
}

extern "C" __global__ void orbit_copy(const float4* in, float4* out, unsigned long long n) {
  unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
#pragma unroll 4
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) __stcs(out + i, __ldcs(in + i));
}

extern "C" __global__ void orbit_fma(float* out, float x, int turns) {
  float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3, e = a + 4, f = a + 5, g = a + 6, h = a + 7;
#pragma unroll 16
  for (int i = 0; i < turns; ++i) {
    a = fmaf(a, x, x); b = fmaf(b, x, x); c = fmaf(c, x, x); d = fmaf(d, x, x);
    e = fmaf(e, x, x); f = fmaf(f, x, x); g = fmaf(g, x, x); h = fmaf(h, x, x);
  }
  float sum = a + b + c + d + e + f + g + h;
  if (sum == 0.12345f) *out = sum;
}
"""
_MOST_BYTES: Final = 1 << 30
_LEAST_BYTES: Final = 256 << 20
"""Several times the largest L2, which is 126 MB (B200)."""
_BLOCK: Final = 256
_TURNS: Final = 16 << 10
_CHAINS: Final = 8
_SIZE: Final = 8192
_REPEATS: Final = 9

Launch = Callable[[], None]


def measure_rates(job: Job) -> c.Finished:
    """Measure the rates. `Finished.device` has only them."""
    began = time.perf_counter()
    torch: Any = importlib.import_module("torch")
    if job.device:
        torch.cuda.set_device(job.device)
    reached = measure(torch)
    device = c.Device(str(torch.cuda.get_device_name()), job.device, reached=reached)
    return c.ok(job.run, device=device, run_s=time.perf_counter() - began)


def measure(torch: Any) -> dict[str, float]:
    """Return bytes and operations per second, by the keys of `SOURCES`. Raises what torch and cuda.core raise."""
    core: Any = importlib.import_module("cuda.core")
    device = core.Device(torch.cuda.current_device())
    device.set_current()
    stream = device.create_stream(Stream(torch))
    code = core.Program(_SOURCE, "c++", core.ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin")
    blocks = 8 * int(device.properties.multiprocessor_count)
    config = core.LaunchConfig(grid=blocks, block=_BLOCK)

    def launching(name: str, *given: object) -> Launch:
        kernel = code.get_kernel(name)
        return lambda: core.launch(stream, config, kernel, *given)

    rates: dict[str, float] = {}
    free = int(torch.cuda.mem_get_info()[0])
    if (size := min(_MOST_BYTES, free // 4)) >= _LEAST_BYTES:
        source, other = (torch.zeros(size // 4, device="cuda") for _ in range(2))
        here, there = int(source.data_ptr()), int(other.data_ptr())
        vectors = ctypes.c_uint64(size // 16)
        read = _seconds(torch, launching("orbit_read", here, there, vectors))
        copy = _seconds(torch, launching("orbit_copy", here, there, vectors))
        rates["dram"] = max(size / read, 2 * size / copy)
        del source, other
    out = torch.zeros(1, device="cuda")
    fma = launching("orbit_fma", int(out.data_ptr()), ctypes.c_float(0.5), ctypes.c_int(_TURNS))
    rates["fp32"] = 2 * _CHAINS * _TURNS * blocks * _BLOCK / _seconds(torch, fma)
    if free // 2 > 3 * 2 * _SIZE * _SIZE and int(device.properties.compute_capability_major) >= 7:
        a, b = (torch.randn(_SIZE, _SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
        product = torch.empty_like(a)
        rates["fp16 tensor"] = 2 * _SIZE**3 / _seconds(torch, lambda: torch.matmul(a, b, out=product))
    return rates


def _seconds(torch: Any, launch: Launch) -> float:
    """Return the median of a few launches by CUDA's events. Each takes some tenths of a millisecond, and events are
    wrong by microseconds.
    """
    for _ in range(3):
        launch()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(_REPEATS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        launch()
        mark.record()
    torch.cuda.synchronize()
    return median(start.elapsed_time(other) for start, other in itertools.pairwise(marks)) / 1e3
