#!/usr/bin/env python3
"""Twelve kernels that each spend nearly all their time on one line, which chance has chosen.

scripts/plant_hot_lines.py FOLDER [SEED]

Writes the programs and `planted.json`: file -> kernel and hot line. The kind of work, the place among lines of
little work and their number come from the seed, so that nobody who writes the profiler chooses them.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

SEED = 20261121

COLD = (
    "v = v * 1.5f + 0.25f;",
    "v = fmaxf(v, w);",
    "w = w + 1.0f / (1.0f + v * v);",
    "v = v - floorf(v);",
    "w = fminf(w, 8.0f) * 0.5f;",
    "v += x[(i * 3) & mask] * 0.125f;",
    "w += (i & 7) == 3 ? v : 0.5f;",
    "v = copysignf(v, w);",
)
HOT = {
    "sine": "for (int j = 0; j < 300; ++j) v = sinf(v) + 1.01f;",
    "divide": "for (int j = 0; j < 400; ++j) v = (v + 2.0f) / (w + 3.0f + v);",
    "gather": "for (int j = 0; j < 60; ++j) v += x[(i * 33 + j * 7919) & mask];",
    "chase": "for (int j = 0; j < 60; ++j) w += (next = links[next & mask]) & 1;",
    "double": "for (int j = 0; j < 200; ++j) v = (float)((double)v * 1.0000001 + (double)w);",
    "atomic": "for (int j = 0; j < 12; ++j) atomicAdd(&y[j & 3], v);",
    "conflicts": "for (int j = 0; j < 200; ++j) v += tile[(threadIdx.x * 32 + j) & 1023];",
    "header": "for (int j = 0; j < 300; ++j) v = __half2float(__hadd(__float2half(v), __float2half(w)));",
    "local": "for (int j = 0; j < 200; ++j) own[(i + j) & 31] += v, v = own[(j * 5 + i) & 31];",
}
INCLUDE = "#include <cuda_fp16.h>\n"
KERNEL = """\
__global__ void planted(const float* x, const int* links, float* y, int mask) {{
  __shared__ float tile[1024];
  int i = blockIdx.x * blockDim.x + threadIdx.x, next = i;
  float own[32];
  for (int j = 0; j < 32; ++j) own[j] = j;
  for (int j = threadIdx.x; j < 1024; j += blockDim.x) tile[j] = j;
  __syncthreads();
  float v = x[i & mask], w = 1.0f;
{body}
  y[i & mask] = v + w + next + own[i & 31] + tile[i & 1023];
}}
"""
MAIN = """\
int main() {{
  const int n = 1 << 22;
  float *x, *y;
  int* links;
  cudaMalloc(&x, n * 4), cudaMalloc(&y, n * 4), cudaMalloc(&links, n * 4);
  cudaMemset(x, 63, n * 4), cudaMemset(links, 21, n * 4);
{launches}
  return cudaDeviceSynchronize() != cudaSuccess;
}}
"""
LAUNCH = "  planted<<<1056, 256>>>(x, links, y, n - 1);"
COLD_TRITON = (
    "v = v * 1.5 + 0.25",
    "v = tl.maximum(v, w)",
    "w = w + 1.0 / (1.0 + v * v)",
    "v = v - tl.floor(v)",
    "w = tl.minimum(w, 8.0) * 0.5",
)
HOT_TRITON = {
    "triton_exp": ("for j in range(120):", "v = tl.exp(-v * v) + tl.sqrt(w + v * v)"),
    "triton_max": ("for j in range(40):", "v = v - tl.max(v, axis=0) * 0.01"),
    "triton_gather": ("for j in range(40):", "v += tl.load(x + (at * 33 + j * 7919) % n)"),
}
TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def planted(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    w = v * 0.0 + 1.0
{body}
    tl.store(y + at, v + w, mask=at < n)


def main():
    n = 1 << 20
    x = torch.rand(n, device="cuda")
    y = torch.empty_like(x)
    for _ in range(2):
        planted[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
"""


@dataclass(frozen=True, slots=True)
class Planted:
    """`line` counts from 1."""

    file: str
    text: str
    line: int
    kernel: str = "planted"


def cases(seed: int = SEED) -> list[Planted]:
    chance = random.Random(seed)
    planteds: list[Planted] = []
    for name, hot in HOT.items():
        lines = [chance.choice(COLD) for _ in range(chance.randint(4, 14))]
        at = chance.randint(0, len(lines))
        lines.insert(at, hot)
        kernel = KERNEL.format(body="\n".join(f"  {line}" for line in lines))
        planteds.append(_planted(f"{name}.cu", INCLUDE + kernel + MAIN.format(launches=LAUNCH), f"  {hot}"))
    for name, (loop, hot) in HOT_TRITON.items():
        before = [f"    {chance.choice(COLD_TRITON)}" for _ in range(chance.randint(2, 8))]
        after = [f"    {chance.choice(COLD_TRITON)}" for _ in range(chance.randint(2, 8))]
        body = "\n".join([*before, f"    {loop}", f"        {hot}", *after])
        planteds.append(_planted(f"{name}.py", TRITON.format(body=body), f"        {hot}"))
    return planteds


def together(seed: int = SEED) -> tuple[str, dict[str, int]]:
    """Return one program with all CUDA kernels of `cases`, and the hot line of each kernel by its name (`planted_sine`)."""
    text, names = INCLUDE, [f"planted_{name}" for name in HOT]
    lines: dict[str, int] = {}
    for name, case in zip(names, cases(seed), strict=False):  # those of Triton come last
        kernel = case.text.removeprefix(INCLUDE).partition("int main() {")[0]
        lines[name] = text.count("\n") + case.line - INCLUDE.count("\n")
        text += kernel.replace("planted(", f"{name}(")
    launches = "\n".join(LAUNCH.replace("planted<", f"{name}<") for name in names)
    return text + MAIN.format(launches=launches), lines


def _planted(file: str, text: str, hot: str) -> Planted:
    return Planted(file, text, text.splitlines().index(hot) + 1)


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 64
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    every = cases(int(sys.argv[2]) if len(sys.argv) == 3 else SEED)
    for planted in every:
        (folder / planted.file).write_text(planted.text)
    known = {item.file: {"kernel": item.kernel, "line": item.line} for item in every}
    (folder / "planted.json").write_text(json.dumps(known, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
