"""Profiles on a real GPU: counters on the right kernel and the right line, and an answer whatever the program does."""

from __future__ import annotations

import base64
import math
import os
import subprocess
import sys
import time
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_remote.common import messages as c
from orbit_remote.common.requests import ContractStart
from orbit_remote.ncu import ncu_options
from tests.remote import profiling
from tests.remote.profiling import Bench, hottest

# not side by side (-n 0): Nsight Compute waits while another of it is at work on the machine
pytestmark = pytest.mark.gpu

PROGRAMS = Path(__file__).parent / "programs"
SAXPY = """\
__global__ void k(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = a * x[i] + y[i];
}
"""
MAIN = """\
int main() {{
  const int n = 1 << 24;
  float *x, *y;
  cudaMalloc(&x, n * 4), cudaMalloc(&y, n * 4);
  {body}
  return cudaDeviceSynchronize() != cudaSuccess;
}}
"""
LAUNCH = "k<<<n / 256, 256>>>(n, 2.0f, x, y);"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with profiling.bench(tmp_path) as result:
        yield result
        assert not await profiling.left_over(tmp_path)


def counted(finished: c.Finished) -> list[c.Profile]:
    assert all(profile.tier == "counters" for profile in finished.profiles), finished.profiles[0].why
    return list(finished.profiles)


async def test_a_program(bench: Bench) -> None:
    finished = await bench.profile(bench.job("k.cu", SAXPY + MAIN.format(body=LAUNCH)))
    assert (finished.outcome, finished.exit_code) == ("ok", 0), (finished.failure, finished.remarks)
    (profile,) = counted(finished)
    assert (profile.name, profile.grid, profile.block) == ("k", (65536, 1, 1), (256, 1, 1))
    assert profile.metrics["gpu__time_duration.sum"].unit == "ns"
    assert 30_000 < profile.metrics["gpu__time_duration.sum"].value < 300_000
    assert profile.metrics["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"].value > 50
    assert hottest(profile).line == 4
    assert next(iter(hottest(profile).stalls)) == "long_scoreboard"
    assert profile.place
    assert profile.place.file.endswith("k.cu")
    assert profile.source == f"CUPTI {finished.toolchain['cupti']}", finished.remarks
    assert finished.telemetry


async def test_a_program_is_counted_as_by_nsight_compute(bench: Bench) -> None:
    job = bench.job("k.cu", SAXPY + MAIN.format(body=LAUNCH))
    (here,) = counted(await bench.profile(job))
    (there,) = counted(await bench.profile(replace(job, sections=ncu_options.CLICK)))
    assert (here.counted_by, there.counted_by) == ("CUPTI", "Nsight Compute")
    assert_equal(here, there)


async def test_values_are_those_of_the_report(bench: Bench) -> None:
    job = bench.job("k.cu", SAXPY + MAIN.format(body=LAUNCH), sections=ncu_options.CLICK)
    finished = await bench.profile(job)
    assert counted(finished)[0].advice
    (profile,) = counted(finished)
    tool = ncu_options.find()
    assert tool
    answer = _read_by_itself(tool, bench.report(finished))
    finite = {
        name: value
        for name, value in answer.items()
        if math.isfinite(value) and not name.startswith(("device__", "numa__", "nvlink__", "c2clink__"))
    }
    assert {name: metric.value for name, metric in profile.metrics.items()} == finite


def _read_by_itself(tool: ncu_options.Tool, report: Path) -> dict[str, float]:
    script = (
        "import sys, ncu_report\n"
        "action = ncu_report.load_report(sys.argv[1])[0][0]\n"
        "for name in action.metric_names():\n"
        "    value = action[name].value()\n"
        "    if action[name].has_value() and isinstance(value, (int, float)): print(name, repr(float(value)))\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", script, report], env=os.environ | {"PYTHONPATH": os.pathsep.join(tool.readers)},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return {name: float(value) for name, value in map(str.split, out.splitlines())}


async def test_a_template_launched_100_000_times(bench: Bench) -> None:
    text = (
        "template <int N> __global__ void k(float* x) {\n  x[threadIdx.x + blockIdx.x * N] += N;\n}\n"
        "__global__ void other(float* x) { x[0] = 1; }\n"
    ) + MAIN.format(
        body="for (int i = 0; i < 50000; ++i) { k<64><<<64, 64>>>(x); k<128><<<8, 128>>>(y); other<<<1, 1>>>(x); }"
    )
    finished = await bench.profile(bench.job("k.cu", text))
    assert finished.outcome == "ok", (finished.failure, finished.remarks)
    assert [(profile.name, profile.grid) for profile in counted(finished)] == [
        ("k<64>", (64, 1, 1)),
        ("k<128>", (8, 1, 1)),
    ]


async def test_more_configurations_than_anybody_reads(bench: Bench) -> None:
    body = "for (int i = 1; i < 100; ++i) k<<<i, 256>>>(i * 256, 2.0f, x, y);"
    finished = await bench.profile(bench.job("k.cu", SAXPY + MAIN.format(body=body)))
    assert finished.outcome == "ok", (finished.failure, finished.remarks)
    assert len(counted(finished)) == ncu_options.MOST_RESULTS
    assert any("have other configurations" in remark for remark in finished.remarks)


async def test_a_kernel_that_is_never_launched(bench: Bench) -> None:
    text = SAXPY + "__global__ void other(float* x) { x[0] = 1; }\n" + MAIN.format(body="other<<<1, 1>>>(x);")
    finished = await bench.profile(bench.job("k.cu", text))
    assert (finished.outcome, finished.profiles) == ("ok", ())
    assert "nothing was profiled: the program did not launch k; it launched other" in finished.remarks


async def test_a_program_that_fails_after_its_kernel(bench: Bench) -> None:
    finished = await bench.profile(
        bench.job("k.cu", SAXPY + MAIN.format(body=LAUNCH + " cudaDeviceSynchronize(); return 3;"))
    )
    assert (finished.outcome, finished.exit_code) == ("runtime error", 3), finished.failure
    assert len(counted(finished)) == 1


async def test_a_kernel_that_crashes(bench: Bench) -> None:
    text = SAXPY + MAIN.format(body="k<<<n / 256, 256>>>(n, 2.0f, nullptr, y);")
    finished = await bench.profile(bench.job("k.cu", text))
    assert finished.outcome == "runtime error"
    assert finished.failure
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in finished.failure.message


async def test_a_kernel_that_hangs(bench: Bench) -> None:
    text = "__global__ void k(volatile float* x) { while (x[0] == 0) {} }\n" + MAIN.format(
        body="cudaMemset(x, 0, n * 4); k<<<1, 1>>>(x);"
    )
    began = time.monotonic()
    finished = await bench.profile(bench.job("k.cu", text, run_timeout_s=6))
    assert finished.outcome == "timed out", finished.failure
    assert time.monotonic() - began < 45


async def test_a_program_that_hangs_after_its_kernel(bench: Bench) -> None:
    text = SAXPY + MAIN.format(body=LAUNCH + " cudaDeviceSynchronize(); for (;;) {}")
    finished = await bench.profile(bench.job("k.cu", text, run_timeout_s=8))
    assert len(counted(finished)) == 1
    assert any("ended at its limit of 8 s" in remark for remark in finished.remarks)


async def test_a_program_that_forks(bench: Bench) -> None:
    text = (
        "#include <sys/wait.h>\n#include <unistd.h>\n"
        + SAXPY
        + MAIN.replace(
            "int main() {{",
            "int main() {{\n  if (int child = fork()) {{ int s; waitpid(child, &s, 0); return s != 0; }}",
        ).format(body=LAUNCH)
    )
    finished = await bench.profile(bench.job("k.cu", text))
    assert finished.outcome == "ok", (finished.failure, finished.remarks)
    assert len(counted(finished)) == 1


async def test_a_program_that_reads_its_own_clock(bench: Bench) -> None:
    text = (
        "#include <chrono>\n"
        + SAXPY
        + MAIN.format(
            body="auto t = std::chrono::steady_clock::now(); k<<<n / 256, 256>>>(n, 2.0f, x, y); cudaDeviceSynchronize();"
            " if (std::chrono::steady_clock::now() - t > std::chrono::milliseconds(100)) return 9;"
        )
    )
    finished = await bench.profile(bench.job("k.cu", text))
    assert len(counted(finished)) == 1
    assert finished.outcome in ("ok", "runtime error")


async def test_a_program_that_reads_and_prints(bench: Bench) -> None:
    body = 'char name[20]; if (scanf("%19s", name) == 1) printf("hello %s\\n", name); ' + LAUNCH
    text = "#include <cstdio>\n" + SAXPY + MAIN.format(body=body)
    finished = await bench.profile(bench.job("k.cu", text, stdin="world\n"))
    assert finished.outcome == "ok", (finished.failure, finished.remarks)
    assert finished.stdout == "hello world\n"
    assert len(counted(finished)) == 1


async def test_a_program_with_a_profiler_of_its_own(bench: Bench) -> None:
    text = (PROGRAMS / "own_cupti.cu").read_text()
    flags = (
        f"-I{PROGRAMS}",
        "-lcupti",
        "-I/usr/local/cuda/extras/CUPTI/include",
        "-L/usr/local/cuda/extras/CUPTI/lib64",
    )
    finished = await bench.profile(bench.job("own_cupti.cu", text, None, flags=flags))
    assert finished.outcome in ("ok", "runtime error"), finished.failure
    assert finished.profiles or finished.launches or finished.remarks


async def test_text_that_is_not_saved(bench: Bench) -> None:
    (bench.folder / "k.cu").write_text("something else\n")
    job = bench.job("k.cu", "\n\n" + SAXPY + MAIN.format(body=LAUNCH), saved=False)
    finished = await bench.profile(job)
    (profile,) = counted(finished)
    assert (Path(hottest(profile).file).name, hottest(profile).line) == ("k.cu", 6)


async def test_the_full_set(bench: Bench) -> None:
    finished = await bench.profile(bench.job("k.cu", SAXPY + MAIN.format(body=LAUNCH), detail="full"))
    (profile,) = counted(finished)
    assert len(profile.metrics) > 1500


async def test_counters_that_are_denied(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted ncu: the refusal cannot be had where counters are permitted."""
    fake = bench.folder / "bin" / "ncu"
    fake.parent.mkdir()
    fake.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo "Version 2025.3.1.0"; exit; }\n'
        'while [ "$1" != --log-file ]; do shift; done\n'
        'echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance'
        ' Counters on the target device 0." > "$2"\nexit 1\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    job = bench.job("k.cu", SAXPY + MAIN.format(body=LAUNCH), detail="full")
    finished = await bench.profile(job)
    assert finished.outcome == "ok", (finished.failure, finished.remarks)
    assert [(profile.name, profile.tier) for profile in finished.profiles] == [("k", "times")]
    assert "NVreg_RestrictProfilingToAdminUsers=0" in finished.profiles[0].why
    assert finished.launches[0].timing.median > 0
    fake.write_text("#!/bin/sh\n[ \"$1\" = --version ] && { echo 'Version 2025.3.1.0'; exit; }\nexit 99\n")
    again = await bench.profile(job)  # remembered: it is not tried again
    assert again.profiles[0].why == finished.profiles[0].why


# -- launch specs, Triton, contracts ----------------------------------------------------------------

SPEC = """\
// orbit: n = 1 << 24; x = randn(n); y = randn(n)
// orbit: launch k<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y)
"""


async def test_a_launch_spec(bench: Bench) -> None:
    finished = await bench.profile(bench.job("k.cu", SPEC + SAXPY, by_spec=True))
    assert finished.outcome == "ok", (finished.failure, finished.stderr)
    (profile,) = counted(finished)
    assert (profile.name, profile.grid) == ("k", (65536, 1, 1))
    assert hottest(profile).line == 6
    assert profile.place
    assert profile.source == f"CUPTI {finished.toolchain['cupti']}", finished.remarks
    assert not finished.report


async def test_a_launch_spec_is_counted_as_by_nsight_compute(bench: Bench) -> None:
    job = bench.job("k.cu", SPEC + SAXPY, by_spec=True)
    (here,) = counted(await bench.profile(job))
    (there,) = counted(await bench.profile(replace(job, sections=ncu_options.CLICK)))
    assert (here.counted_by, there.counted_by) == ("CUPTI", "Nsight Compute")
    assert_equal(here, there)


def assert_equal(here: c.Profile, there: c.Profile) -> None:
    """Counts are equal, the time and a rate are near each other, and the hot line is the same."""
    counts = [
        name for name in here.metrics if name.endswith("inst_executed.sum") or "_mem_global_op_" in name
    ]
    counts += [name for name in here.metrics if name.startswith("launch__")]
    assert {name: here.metrics[name] for name in counts} == {name: there.metrics[name] for name in counts}
    for name in ("gpu__time_duration.sum", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"):
        assert here.metrics[name].value == pytest.approx(there.metrics[name].value, rel=0.1)
    assert hottest(here).line == hottest(there).line


async def test_a_launch_spec_that_traps_is_a_runtime_error(bench: Bench) -> None:
    text = SPEC + SAXPY.replace("y[i] =", "if (i == 7) __trap(); y[i] =")
    finished = await bench.profile(bench.job("k.cu", text, by_spec=True))
    assert (finished.outcome, finished.profiles) == ("runtime error", ())


async def test_a_launch_spec_that_hangs_is_ended_at_its_limit(bench: Bench) -> None:
    text = SPEC + SAXPY.replace("y[i] =", "while (n) __nanosleep(9999); y[i] =")
    finished = await bench.profile(bench.job("k.cu", text, by_spec=True, run_timeout_s=5))
    assert finished.outcome == "timed out"


SOFTMAX = """\
import torch
import triton
import triton.language as tl

{decorator}
@triton.jit
def k(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * columns + at, values / tl.sum(values, axis=0), mask=at < columns)

{end}
"""
SOFTMAX_MAIN = """
def main():
    x = torch.randn(8192, 2048, device="cuda")
    y = torch.empty_like(x)
    for _ in range(20):
        k[(8192,)](x, y, 2048{block})
    torch.cuda.synchronize()
"""


async def test_a_triton_program(bench: Bench) -> None:
    text = SOFTMAX.format(decorator="", end=SOFTMAX_MAIN.format(block=", BLOCK=2048"))
    finished = await bench.profile(bench.job("k.py", text))
    assert finished.outcome == "ok", (finished.failure, finished.stderr)
    (profile,) = counted(finished)
    assert (profile.name, profile.grid) == ("k", (8192, 1, 1))
    assert {Path(line.file).name for line in profile.lines} == {"k.py"}
    inside = [name for line in profile.lines if line.line in (11, 12) for name in line.inside]
    assert any(name.startswith("standard.py:") for name in inside), profile.lines
    assert sum(line.samples for line in profile.lines) > 0.9 * (profile.samples or 0)
    assert profile.place
    assert profile.place.line in (6, 7)


async def test_what_triton_made_of_it(bench: Bench) -> None:
    """Of the configuration that autotuning chose, and of none that it tried."""
    tune = "@triton.autotune([triton.Config({'BLOCK': 2048}, num_warps=w) for w in (1, 2, 4, 8, 16)], key=['columns'])"
    text = SOFTMAX.format(decorator=tune, end=SOFTMAX_MAIN.format(block=""))
    finished = await bench.profile(bench.job("k.py", text))
    (profile,) = counted(finished)
    assert [dump.level for dump in finished.dumps] == ["ttir", "ttgir", "llir", "ptx", "sass"]
    assert {(dump.symbol, dump.instance) for dump in finished.dumps} == {("k", 0)}
    (chosen,) = [remark for remark in finished.remarks if remark.startswith("autotuning chose ")]
    assert f"num_warps: {finished.dumps[0].constants['num_warps']}," in chosen
    ttir, ttgir, _, ptx, sass = map(unpacked, finished.dumps)
    assert "tt.load" in ttir
    assert f'"ttg.num-warps" = {finished.dumps[0].constants["num_warps"]}' in ttgir
    assert profile.block
    assert f".reqntid {profile.block[0]}" in ptx
    assert "k.py:11, in standard.py:" in sass


async def test_what_nvcc_made_of_it(bench: Bench) -> None:
    text = "template <int N> " + SAXPY + MAIN.format(body=LAUNCH.replace("k<<<", "k<7><<<"))
    finished = await bench.profile(bench.job("k.cu", text))
    assert [(dump.name, dump.level) for dump in finished.dumps] == [
        (counted(finished)[0].name, level) for level in ("ptx", "sass")
    ]
    ptx, sass = map(unpacked, finished.dumps)
    assert f".entry {finished.dumps[0].symbol}" in ptx
    assert "k.cu:4\n" in sass
    assert "FFMA" in sass


async def test_what_nvcc_made_of_a_launch_spec(bench: Bench) -> None:
    spec = "// orbit: n = 1 << 24; x = randn(n); y = randn(n)\n// orbit: launch k<<<n / 256, 256>>>(n, 2.0, x, y)\n"
    finished = await bench.profile(bench.job("k.cu", spec + SAXPY, by_spec=True))
    assert finished.outcome == "ok", (finished.failure, finished.stderr)
    assert [dump.level for dump in finished.dumps] == ["ptx", "sass"]


def unpacked(dump: c.Dump) -> str:
    return zlib.decompress(base64.b64decode(dump.text)).decode()


async def test_library_code_in_a_loop(bench: Bench) -> None:
    text = SOFTMAX.replace(
        "    values = tl.exp(",
        "    for _ in range(40):\n        values = values - tl.max(values, axis=0) * 0.01\n    values = tl.exp(",
    ).format(decorator="", end=SOFTMAX_MAIN.format(block=", BLOCK=2048"))
    finished = await bench.profile(bench.job("k.py", text))
    (profile,) = counted(finished)
    assert hottest(profile).line == 12
    assert sum(hottest(profile).inside.values()) > 0.5 * hottest(profile).samples
    assert sum(line.samples for line in profile.lines) > 0.9 * (profile.samples or 0)


async def test_autotuning_is_not_profiled(bench: Bench) -> None:
    tune = "@triton.autotune([triton.Config({'BLOCK': 2048}, num_warps=w) for w in (1, 2, 4, 8, 16)], key=['columns'])"
    text = SOFTMAX.format(decorator=tune, end=SOFTMAX_MAIN.format(block=""))
    finished = await bench.profile(bench.job("k.py", text))
    assert finished.outcome == "ok", (finished.failure, finished.stderr)
    assert len(counted(finished)) == 1
    (chosen,) = [remark for remark in finished.remarks if remark.startswith("autotuning chose ")]
    assert "BLOCK: 2048, num_warps: " in chosen
    assert chosen.endswith(" for k")


async def test_a_triton_launch_spec(bench: Bench) -> None:
    spec = (
        "# orbit: x = randn(4096, 2048); y = empty(4096, 2048)\n"
        "# orbit: launch k[(4096,)](x, y, 2048, BLOCK=2048, num_warps=4)"
    )
    text = SOFTMAX.format(decorator=spec, end="")
    finished = await bench.profile(bench.job("k.py", text, by_spec=True))
    assert finished.outcome == "ok", (finished.failure, finished.stderr)
    (profile,) = counted(finished)
    assert (profile.name, profile.grid) == ("k", (4096, 1, 1))
    assert hottest(profile).line in (11, 12, 13)
    assert profile.counted_by == "CUPTI", finished.remarks


KERNELBENCH = (
    SOFTMAX
    + """
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        k[(x.shape[0],)](x, y, x.shape[1], BLOCK=2048)
        return y


def get_inputs():
    return [torch.randn(4096, 2048)]


def get_init_inputs():
    return []
"""
)


async def test_a_contract(bench: Bench) -> None:
    text = KERNELBENCH.format(decorator="", end="")
    finished = await bench.profile(bench.job("k.py", text, None, start=ContractStart()))
    assert finished.outcome == "ok", (finished.failure, finished.stderr)
    assert [profile.name for profile in counted(finished)] == ["k"]
