"""A kernel with a launch spec, run by the worker of this machine: what the benchmarks and scripts share."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import cast

from orbit_lsp.kernels.cuda import cuda_kernels
from orbit_lsp.kernels.model import Kernel
from orbit_lsp.kernels.python import triton_kernels
from orbit_lsp.runners import Runner
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job, KernelDefinition, SpecStart

_numbers = itertools.count(1)


def kernel_of(text: str, path: Path, name: str) -> Kernel:
    scan = (cuda_kernels if path.suffix == ".cu" else triton_kernels).scan(text)
    return next(kernel for kernel in scan.kernels if kernel.name == name)


def job(path: Path, name: str, limit_s: float = 120.0) -> Job:
    """What a click on the kernel asks for."""
    path = path.resolve()
    text = path.read_text(encoding="utf-8")
    kernel = kernel_of(text, path, name)
    spot = kernel.name_span
    where = KernelDefinition(
        name, kernel.qualified, kernel.whole.line, kernel.line, spot.line, spot.end_column
    )
    return Job(
        f"{path.name}/{next(_numbers)}", "run", "cuda" if path.suffix == ".cu" else "triton", str(path), text, name,
        str(path.parent), run_timeout_s=limit_s, start=SpecStart(where),
    )  # fmt: skip


async def run(runner: Runner, request: Job) -> c.Finished:
    async with aclosing(cast("AsyncGenerator[c.Event]", runner.run(request))) as events:
        async for event in events:
            if isinstance(event, c.Finished):
                return event
    raise AssertionError(f"{request.run} did not finish")
