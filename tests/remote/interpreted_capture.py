"""Captures launches of kernels that Triton's interpreter runs on the CPU: `python -P interpreted_capture.py FOLDER`, a JSON object out"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton

from orbit_remote.child.capture import capturing
from orbit_remote.child.capture.launch_watch import LaunchWatch
from orbit_remote.child.debug_job import InterpreterMemory
from orbit_remote.common.requests import Capture, Driver, DriverStart, Job, KernelDefinition

KERNELS = """import triton
import triton.language as tl

@triton.jit
def add(x, y, out, n_elements, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n_elements
    tl.store(out + o, tl.load(x + o, mask=m) + tl.load(y + o, mask=m), mask=m)

@triton.jit
def softmax(out, x, stride_xm, stride_om, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride_xm + c, mask=c < n_cols, other=-float("inf"))
    v = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * stride_om + c, v / tl.sum(v, 0), mask=c < n_cols)

@triton.jit
def gather(table, ids, out, D: tl.constexpr):
    i = tl.program_id(0)
    c = tl.arange(0, D)
    tl.store(out + i * D + c, tl.load(table + tl.load(ids + i) * D + c))

@triton.jit
def positive(x, out, count, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n, other=0.0)
    tl.store(out + o, v, mask=(o < n) & (v > 0))
    tl.store(count, tl.sum((v > 0).to(tl.int32), 0))

@triton.jit
def scale(x, factor, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + o, tl.load(x + o, mask=o < n) * factor, mask=o < n)
"""


class Captures:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "kernels.py"
        self.path.write_text(KERNELS)
        found = importlib.util.spec_from_file_location("kernels", self.path)
        assert found
        assert found.loader
        self.module = importlib.util.module_from_spec(found)
        found.loader.exec_module(self.module)
        self.made: dict[str, Any] = {}

    def take(
        self, case: str, kernel: str, grid: Any, *args: Any, wanted: Capture | None = None, **kwargs: Any
    ) -> None:
        lines = KERNELS.split("\n")
        at = lines.index(next(line for line in lines if line.startswith(f"def {kernel}(")))
        definition = KernelDefinition(kernel, kernel, at - 1, at, at, 4 + len(kernel))
        start = DriverStart(Driver("script", "bench.py"))
        job = Job(
            "r", "run", "triton", str(self.path), KERNELS, kernel=kernel, tool_kernel=definition, start=start
        )
        watch = LaunchWatch(kernel, str(self.path), wanted or Capture())
        watch.see(getattr(self.module, kernel), args, grid, kwargs)
        self.made[case] = dataclasses.asdict(capturing.of_driver(torch, job, watch, InterpreterMemory(torch)))


def main(folder: Path) -> None:
    made = Captures(folder)
    torch.manual_seed(0)
    r: Callable[..., torch.Tensor] = torch.randn
    cdiv: Any = triton.cdiv
    made.take(
        "sizes",
        "add",
        lambda meta: (cdiv(1000, meta["BLOCK"]),),
        r(1000),
        r(1000),
        torch.empty(1000),
        1000,
        BLOCK=256,
    )
    x = r(32, 120)[:, :100]
    made.take("strides", "softmax", (32,), torch.empty(32, 100), x, 120, 100, 100, BLOCK=128, num_warps=4)
    ids = torch.randint(0, 50, (64,))
    made.take("indices", "gather", (64,), 0.02 * r(50, 16), ids, torch.empty(64, 16), D=16)
    made.take(
        "a few indices", "gather", (4,), r(50, 16), torch.tensor([3, 1, 4, 1]), torch.empty(4, 16), D=16
    )
    made.take(
        "control flow", "positive", (1,), r(100), r(100), torch.zeros(1, dtype=torch.int32), 100, BLOCK=128
    )
    made.take("in place", "scale", (1,), r(100).half(), 0.5, 100, BLOCK=128)
    made.take("one tensor twice", "add", (1,), y := r(300), y, torch.empty(300), 300, BLOCK=512)
    made.take("parts of one", "add", (1,), y, y[1:], torch.empty(300), 299, BLOCK=512)
    made.take("apart in one", "add", (1,), y[:100], y[100:200], y[200:], 100, BLOCK=128)
    made.take("complex", "add", (1,), y, y.to(torch.complex64), torch.empty(300), 300, BLOCK=512)
    made.take("nothing written", "scale", (0,), r(100), 0.5, 100, BLOCK=128)
    made.take("not so often", "scale", (1,), r(100), 0.5, 100, BLOCK=128, wanted=Capture(3))
    made.take("another grid", "scale", (1,), r(100), 0.5, 100, BLOCK=128, wanted=Capture(None, (7, 1, 1)))
    big = r(1 << 19)
    made.take("a sample", "add", (16,), big, big, torch.empty(1 << 19), 1 << 19, BLOCK=1 << 15)
    print(json.dumps(made.made))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
