"""What the driver's GPU core dumps cost a kernel (docs/dev/results/crashes.md).

    python -P bench/dump_medians.py [--pairs 10] [--out FILE]

The same 40 kernels are timed in pairs of fresh processes, one with dumps on as a notebook has them, one without, in an order
drawn at random. A third process without dumps says by how much two equal processes differ. Kernels: 20 of
PyTorch's own, 12 in CUDA C++, 8 in Triton. CUDA events time graphs of them, since the driver writes no dumps where CUPTI records.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
N = 1 << 25
"""Elements of a vector."""
BATCHES = 21
BATCH_MS = 4.0
"""A batch of launches lasts this long: an event's resolution is half a microsecond."""

CUDA = {
    "copy": "y[i] = x[i];",
    "axpy": "y[i] = 2.5f * x[i] + y[i];",
    "sine": "y[i] = sinf(x[i]);",
    "divide": "y[i] = 1.0f / (x[i] + 2.0f);",
    "gather": "y[i] = x[(i * 7919) % n];",
    "strided": "y[i] = x[(i % 4096) * 1024 + i / 4096];",
    "polynomial": "float a = x[i]; for (int k = 0; k < 64; k++) a = a * 0.99f + 0.01f; y[i] = a;",
    "chase": "int j = i; for (int k = 0; k < 16; k++) j = (j * 5 + 1) & (n - 1); y[i] = x[j];",
    "atomic": "atomicAdd(&y[i & 1023], x[i]);",
    "shuffle": "float a = x[i]; for (int d = 16; d; d /= 2) a += __shfl_xor_sync(~0u, a, d); y[i] = a;",
    "shared": (
        "__shared__ float s[256]; s[threadIdx.x] = x[i]; __syncthreads();"
        " for (int k = 0; k < 32; k++) { float a = s[(threadIdx.x * 33 + k) & 255]; __syncthreads();"
        " s[threadIdx.x] = a + 1.0f; __syncthreads(); } y[i] = s[threadIdx.x];"
    ),
    "assert": "if (!(x[i] < 1e30f)) __trap(); y[i] = x[i] * x[i];",
}
"""Bodies of kernels over `i < n`, 256 threads a block."""


def torch_kernels() -> dict[str, Callable[[], object]]:
    import torch
    from torch.nn import functional

    torch.manual_seed(0)
    x, y = torch.rand(N, device="cuda"), torch.rand(N, device="cuda")
    m, h = torch.rand(2048, 2048, device="cuda"), torch.rand(2048, 2048, device="cuda", dtype=torch.float16)
    image = torch.rand(16, 64, 56, 56, device="cuda")
    q = torch.rand(4, 16, 1024, 64, device="cuda", dtype=torch.float16)
    index = torch.randint(N, (N,), device="cuda")
    table = torch.rand(50_000, 256, device="cuda")
    rows = index % 50_000
    return {
        "add": lambda: torch.add(x, y),
        "gelu": lambda: functional.gelu(x),
        "exp": lambda: torch.exp(x),
        "sum": x.sum,
        "max": lambda: m.amax(dim=1),
        "softmax": lambda: torch.softmax(m, -1),
        "layer_norm": lambda: functional.layer_norm(m, (2048,)),
        "cumsum": lambda: torch.cumsum(x, 0),
        "sort": lambda: torch.sort(x),
        "topk": lambda: torch.topk(m, 16),
        "transpose": lambda: m.t().contiguous(),
        "index": lambda: x[index],
        "scatter": lambda: torch.zeros_like(x).scatter_(0, index, y),
        "embedding": lambda: functional.embedding(rows[:65536], table),
        "where": lambda: torch.where(x > 0.5, x, y),
        "matmul_f32": lambda: m @ m,
        "matmul_f16": lambda: h @ h,
        "attention": lambda: functional.scaled_dot_product_attention(q, q, q),
        "max_pool": lambda: functional.max_pool2d(image, 2),
        "interpolate": lambda: functional.interpolate(image, scale_factor=2.0),
    }


def cuda_kernels() -> dict[str, Callable[[], object]]:
    import torch

    x, y = torch.rand(N, device="cuda"), torch.rand(N, device="cuda")

    def one(name: str, body: str) -> Callable[[], object]:
        source = (
            f'extern "C" __global__ void {name}(const float* x, float* y, int n)'
            f" {{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) {{ {body} }} }}"
        )
        kernel = torch.cuda._compile_kernel(source, name)
        return lambda: kernel(grid=(N // 256, 1, 1), block=(256, 1, 1), args=(x, y, N))

    return {f"cuda_{name}": one(f"cuda_{name}", body) for name, body in CUDA.items()}


def triton_kernels() -> dict[str, Callable[[], object]]:
    import torch

    sys.path.insert(0, str(ROOT / "bench"))
    from dump_kernels import dot, pointwise, row_softmax, row_sum

    x, y = torch.rand(N, device="cuda"), torch.empty(N, device="cuda")
    h = torch.rand(1024, 1024, device="cuda", dtype=torch.float16)
    out = torch.empty(1024, 1024, device="cuda", dtype=torch.float16)
    found: dict[str, Callable[[], object]] = {}
    for block in (256, 1024):
        found[f"triton_pointwise_{block}"] = lambda b=block: pointwise[(N // b,)](x, y, N, block=b)
        found[f"triton_sum_{block}"] = lambda b=block: row_sum[(N // b,)](x, y, block=b)
        found[f"triton_softmax_{block}"] = lambda b=block: row_softmax[(N // b,)](x, y, block=b)
    for tile in (64, 128):
        found[f"triton_dot_{tile}"] = lambda t=tile: dot[(1024 // t, 1024 // t)](h, h, out, 1024, tile=t)
    return found


def _captured(launch: Callable[[], object]) -> tuple[Any, int]:
    """Return a CUDA graph of some launches, so that Python's time between them does not count, and their number."""
    import torch

    launches = 10
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(launches):
            launch()
    return graph, launches


def _milliseconds(graph: Any, count: int) -> float:
    import torch

    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / count


def measure() -> dict[str, float]:
    """Return the median time of each kernel in microseconds, in this process."""

    times: dict[str, float] = {}
    for name, launch in {**torch_kernels(), **cuda_kernels(), **triton_kernels()}.items():
        graph, launches = _captured(launch)
        graph.replay()
        count = max(1, int(BATCH_MS / max(_milliseconds(graph, 3), 1e-3)))
        times[name] = 1000 * statistics.median(_milliseconds(graph, count) for _ in range(BATCHES)) / launches
    return times


def _in_process(dumps: bool) -> dict[str, float]:
    sys.path.insert(0, str(ROOT / "remote"))
    from orbit_remote.worker.faults import dump_folder

    with tempfile.TemporaryDirectory() as folder:
        more = dump_folder.on_request(Path(folder)) if dumps else {}
        environment = {**os.environ, **{name: value for name, value in more.items() if value}}
        command = [sys.executable, "-P", __file__, "--measure"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure()))
        return
    runs: list[dict[str, dict[str, float]]] = []
    for _ in range(options.pairs):
        order = ["off", "on", "control"]
        random.shuffle(order)
        runs.append({which: _in_process(which == "on") for which in order})
        if options.out:
            options.out.write_text(json.dumps(runs, indent=1), encoding="utf-8")
    print("| kernel | µs | on over off | control over off |\n|---|---|---|---|")
    worst: dict[str, list[float]] = {"on": [], "control": []}
    for name in runs[0]["off"]:
        off = statistics.median(run["off"][name] for run in runs)
        ratio = {
            which: statistics.median(run[which][name] for run in runs) / off - 1
            for which in ("on", "control")
        }
        for which, value in ratio.items():
            worst[which].append(value)
        print(f"| {name} | {off:.1f} | {ratio['on']:+.2%} | {ratio['control']:+.2%} |")
    for which, values in worst.items():
        within = sum(abs(value) <= 0.003 for value in values)
        print(
            f"{which}: {within} of {len(values)} within 0.3 %, median {statistics.median(values):+.3%}, "
            f"worst {max(values, key=abs):+.2%}"
        )


if __name__ == "__main__":
    main()
