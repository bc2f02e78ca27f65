"""The main job on a real GPU: every launch measured and filed, every failure on its line."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from orbit_lsp.cli import source_listing
from orbit_lsp.places.places import Places
from orbit_lsp.runs.scheduler import Run, Scheduler
from orbit_lsp.state.kernel_ids import KernelId
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session, uri_of
from orbit_remote.common import messages as c

pytestmark = pytest.mark.gpu


class Quiet:
    """Collects what a run says."""

    def __init__(self) -> None:
        self.printed = ""
        self.running = asyncio.Event()

    def begin(self, run: Run, cancel: Callable[[], object]) -> None:
        self.printed = ""
        self.running.clear()

    def stage(self, run: Run, state: c.State, why: str) -> None:
        if state == "running":
            self.running.set()

    def output(self, run: Run, stream: str, text: str) -> None:
        self.printed += text

    def end(self, run: Run, finished: c.Finished) -> None: ...

    def changed(self, uris: set[str]) -> None: ...


class Bench:
    """The engine with this machine's GPU, as an editor and the command line use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.session = Session(setup=RunSetup(folders=[str(folder)]))
        self.watcher = Quiet()
        self.places = Places(self.session, print, self.watcher.changed)
        self.places.settings.options = {"python": sys.executable, "run_timeout_s": 20}
        assert not self.places.settings.configure(None)
        self.runs = Scheduler(self.session, self.places.runner_of, self.watcher)

    def start(self, name: str, text: str, kernel: str = "k") -> Run:
        path = self.folder / name
        path.write_text(text)
        uri = uri_of(str(path))
        self.session.open(uri, 1, text)
        run = self.runs.start("run", uri, KernelId(uri, kernel))
        assert run
        return run

    async def run(self, name: str, text: str, kernel: str = "k") -> c.Finished:
        run = self.start(name, text, kernel)
        assert run.task
        return await run.task

    def shown(self, name: str) -> str:
        return "\n".join(source_listing.lines(self.session, uri_of(str(self.folder / name)), color=False))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    result = Bench(tmp_path)
    await result.places.look_around()
    yield result
    await result.runs.close()
    await result.places.close()


MAIN = (
    "int main() {{ float* x; cudaMalloc(&x, 4096); {body} return cudaDeviceSynchronize() != cudaSuccess; }}\n"
)
WRITE = "__global__ void k(float* x) { x[threadIdx.x] = 1; }\n"


async def test_every_launch_of_every_instance_is_counted_apart(bench: Bench) -> None:
    text = (
        "template <int N> __global__ void k(float* x) { x[threadIdx.x] = N; }\n"
        "__global__ void never(float* x) {}\n"
        "namespace a { __global__ void k(float* x) { x[threadIdx.x] = 7; } }\n"
    ) + MAIN.format(
        body="for (int i = 0; i < 20; ++i) k<1><<<4, 64>>>(x);"
        "for (int i = 0; i < 5; ++i) k<2><<<8, 128>>>(x); a::k<<<1, 32>>>(x);"
    )
    finished = await bench.run("k.cu", text)
    assert finished.outcome == "ok"
    seen = [(launch.name, launch.grid[0], launch.block[0], launch.count) for launch in finished.launches]
    assert seen == [("k<1>", 4, 64, 20), ("k<2>", 8, 128, 5), ("a::k", 1, 32, 1)]
    assert [
        len(bench.session.results.runs[KernelId(uri_of(str(bench.folder / "k.cu")), key)].launches)
        for key in ("k", "a::k")
    ] == [2, 1]
    assert re.search("25 launches|25 in 2 configurations", bench.shown("k.cu"))
    assert all(launch.registers and launch.timing.median > 0 for launch in finished.launches)
    assert finished.device
    assert finished.device.name.startswith("NVIDIA")


async def test_a_kernel_that_main_does_not_launch(bench: Bench) -> None:
    finished = await bench.run("k.cu", WRITE + MAIN.format(body=""))
    assert finished.outcome == "ok"
    assert "⏱ the program did not launch it" in bench.shown("k.cu")


@pytest.mark.parametrize(
    ("kernel", "body", "exit_code", "says", "line"),
    [
        (WRITE, "k<<<1, 32>>>(x); cudaDeviceSynchronize(); exit(3);", 3, "main ended with exit code 3", 1),
        (WRITE, "k<<<1, 32>>>(x); cudaDeviceSynchronize(); *(volatile int*)0 = 1;", -11, "SIGSEGV", 1),
        (WRITE, "k<<<1, 32>>>(x); cudaDeviceSynchronize(); abort();", -6, "SIGABRT", 1),
        ("__global__ void k(float* x) { x[1ull << 40] = 1; }\n", "k<<<1, 32>>>(x);", 1, "CUDA_ERROR_ILLEGAL_ADDRESS", 1),
        (
            "#include <cassert>\n__global__ void k(float* x) {\n  assert(threadIdx.x < 7);\n}\n",
            "k<<<1, 32>>>(x);",
            1,
            "device assertion `threadIdx.x < 7` failed, first in block (0,0,0), thread (7,0,0)",
            3,
        ),
        (WRITE, "void* p; if (cudaMalloc(&p, 1ull << 50)) exit(4); k<<<1, 1>>>(x);", 4, "CUDA_ERROR_OUT_OF_MEMORY", 1),
        (WRITE, "k<<<1, 2048>>>(x); exit(cudaGetLastError() != 0);", 1, "a launch has a grid or block that this GPU cannot run", 1),
    ],
    ids=["exit code", "segmentation fault", "abort", "illegal address", "assert", "out of memory", "bad launch"],
)  # fmt: skip
async def test_runtime_errors_stand_on_their_line_and_the_next_run_works(
    bench: Bench, kernel: str, body: str, exit_code: int, says: str, line: int
) -> None:
    finished = await bench.run("k.cu", "#include <cstdlib>\n" + kernel + MAIN.format(body=body))
    assert finished.outcome == "runtime error"
    assert finished.exit_code == exit_code
    shown = bench.shown("k.cu").splitlines()
    results = [number for number, text in enumerate(shown) if says in text and "error " in text]
    assert results, "\n".join(shown)
    at = results[0]
    above = next(text for text in reversed(shown[:at]) if text.lstrip()[0].isdigit())
    assert above.lstrip().startswith(f"{line + 1} ")
    again = await bench.run("again.cu", WRITE + MAIN.format(body="k<<<1, 32>>>(x);"))
    assert (again.outcome, len(again.launches)) == ("ok", 1)


async def test_an_error_that_the_program_ignores_is_told(bench: Bench) -> None:
    text = "__global__ void k(float* x) { x[1ull << 40] = 1; }\nint main() { float* x; cudaMalloc(&x, 4); k<<<1, 1>>>(x); cudaDeviceSynchronize(); return 0; }\n"
    finished = await bench.run("k.cu", text)
    assert (finished.outcome, finished.exit_code) == ("runtime error", 0)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in bench.shown("k.cu")


ENDLESS = '__global__ void k(float* x) { while (true) asm volatile(""); }\n' + MAIN.format(
    body="k<<<1, 1>>>(x);"
)


async def test_a_kernel_that_never_ends_meets_its_limit(bench: Bench) -> None:
    bench.places.settings.options |= {"run_timeout_s": 2}
    bench.places.settings.configure(None)
    finished = await bench.run("k.cu", ENDLESS)
    assert finished.outcome == "timed out"
    assert finished.failure
    assert "orbit.run_timeout_s" in finished.failure.remedy
    again = await bench.run("again.cu", WRITE + MAIN.format(body="k<<<1, 32>>>(x);"))
    assert again.outcome == "ok"


async def test_cancelling_a_kernel_that_never_ends(bench: Bench) -> None:
    run = bench.start("k.cu", ENDLESS)
    await bench.watcher.running.wait()
    assert bench.runs.cancel(KernelId(run.frozen.uri, "k"))
    assert run.task
    assert (await run.task).outcome == "cancelled"
    again = await bench.run("again.cu", WRITE + MAIN.format(body="k<<<1, 32>>>(x);"))
    assert again.outcome == "ok"


TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(x + i, v + 1, mask=i < n)

"""


async def test_triton_entry_points_and_their_launches(bench: Bench) -> None:
    entry = """
def test(): raise SystemExit("not this one")
def benchmark():
    x = torch.zeros(1 << 20, device="cuda")
    for _ in range(7): k[(1024,)](x, x.numel(), BLOCK=1024, num_warps=4)
    k[(4096,)](x, x.numel(), BLOCK=256)
    print("sum", x.sum().item())
"""
    finished = await bench.run("k.py", TRITON + entry)
    assert finished.outcome == "ok", finished.failure
    assert [(launch.name, launch.grid[0], launch.block[0], launch.count) for launch in finished.launches] == [
        ("k", 1024, 128, 7),
        ("k", 4096, 128, 1),
    ]
    assert finished.launches[0].constants["BLOCK"] == "1024"
    assert "sum 8388608.0" in finished.stdout
    assert re.search("8 launches|8 in 2 configurations", bench.shown("k.py"))


@pytest.mark.parametrize(
    ("text", "outcome", "says", "line"),
    [
        (TRITON.replace("v + 1", "v + wrong") + "def main(): k[(1,)](torch.zeros(4, device='cuda'), 4, BLOCK=4)\n", "compile error", "wrong is not defined", 10),
        (TRITON + "def main():\n    torch.zeros(3) @ torch.zeros(4)\n", "runtime error", "RuntimeError", 13),
        (TRITON.replace("x + i,", "x + i + (1 << 40),") + "def main(): k[(1,)](torch.zeros(4, device='cuda'), 4, BLOCK=4)\n", "runtime error", "CUDA_ERROR_ILLEGAL_ADDRESS", 6),
        (TRITON, "runtime error", "no entry point", 6),
    ],
    ids=["compile error", "exception", "illegal address", "no entry"],
)  # fmt: skip
async def test_triton_failures_stand_on_their_line(
    bench: Bench, text: str, outcome: str, says: str, line: int
) -> None:
    finished = await bench.run("k.py", text)
    assert finished.outcome == outcome
    shown = bench.shown("k.py")
    assert says.lower() in shown.lower()


async def test_a_second_triton_run_finds_a_warm_child(bench: Bench) -> None:
    text = TRITON + "def main():\n    for _ in range(5): k[(1,)](torch.zeros(4, device='cuda'), 4, BLOCK=4)\n"
    for _ in range(3):
        began = time.monotonic()
        finished = await bench.run("k.py", text)
        print(f"{time.monotonic() - began:.2f} s")
        assert (finished.outcome, sum(launch.count for launch in finished.launches)) == ("ok", 5)
