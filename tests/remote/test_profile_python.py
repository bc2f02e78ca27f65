"""The action `profile` on Python files, without a GPU: an `ncu` that is a fake replays an H100's reports."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_remote.common.requests import Job
from tests.remote.fake_ncu import RECORDED
from tests.remote.nvcc_check import needs_nvcc
from tests.remote.profile_fixture import Faked, bench, reader, unpacked

__all__ = ["bench", "reader"]  # fixtures

pytestmark = [needs_nvcc, pytest.mark.asyncio(loop_scope="module")]

Calls = Callable[[], list[str]]
STUB = """\
#include <cstdio>
#include <cstdlib>
static int said(const char* what) {
  FILE* file = fopen(getenv("CUDA_STUB_CALLS"), "a");
  fprintf(file, "%s\\n", what);
  return fclose(file);
}
extern "C" int cuProfilerStart() { return said("start"); }
extern "C" int cuProfilerStop() { return said("stop"); }
"""
TUNED = """
import contextlib

import triton.runtime.autotuner as autotuner


def main():
    with open(os.environ["CUDA_STUB_CALLS"], "a") as calls:
        print("launch", file=calls)
    tuner = autotuner.Autotuner.__new__(autotuner.Autotuner)
    with contextlib.suppress(TypeError):
        tuner._bench()
    with open(os.environ["CUDA_STUB_CALLS"], "a") as calls:
        print("launch", file=calls)
"""


@pytest.fixture
def driver_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """A driver that is a fake: it has the two calls that tell a profiler what to look at, and notes them."""
    source, library = tmp_path / "stub.cpp", tmp_path / "driver" / "libcuda.so.1"
    source.write_text(STUB)
    library.parent.mkdir()
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    monkeypatch.setenv("CUDA_STUB_CALLS", str(tmp_path / "stub-calls"))
    return lambda: (tmp_path / "stub-calls").read_text().split()


@pytest.fixture
def no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing it takes ten times as long as the rest of a test that needs none."""
    (tmp_path / "torch.py").write_text("raise ImportError\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def softmax(bench: Faked, end: str, torch: str = "") -> Job:
    """The kernel of the recording; the program launches nothing, because there is no GPU."""
    text = (RECORDED / "softmax.py").read_text().partition("def main")[0] + end
    text = text.partition('"""\n\n')[2].replace("import torch\n", f"{torch}\n")
    job = bench.job("softmax.py", f"import os\n{text}", "softmax")
    return replace(job, path="/src/softmax.py", directory=str(bench.folder))


@pytest.mark.slow
async def test_a_triton_program(bench: Faked, driver_calls: Calls) -> None:
    bench.ncu("softmax")
    finished = await bench.profile(softmax(bench, "def main(): print('hello')\n", "import torch"))
    assert (finished.outcome, finished.stdout) == ("ok", "hello\n"), (finished.failure, finished.stderr)
    (profile,) = finished.profiles
    assert (profile.name, profile.tier, profile.grid) == ("softmax", "counters", (8192, 1, 1))
    assert {line.file for line in profile.lines} == {"/src/softmax.py"}
    words = bench.calls.read_text().split()
    pairs = set(itertools.pairwise(words))
    assert {("--profile-from-start", "off"), ("--kernel-name", "regex:^softmax$")} <= pairs
    assert driver_calls() == ["start", "stop"]


COMPILED = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def main():
    types = {"x": "*fp32", "y": "*fp32", "columns": "i32", "BLOCK": "constexpr"}
    source = ASTSource(softmax, types, {"BLOCK": 2048})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    softmax.device_caches[0] = ({"one": made},)
"""
"""Triton's own compiler is called; a launch, which would call it, needs a GPU."""


@pytest.mark.usefixtures("no_torch")
async def test_what_triton_made_of_the_kernel(bench: Faked, driver_calls: Calls) -> None:
    bench.ncu("softmax")
    finished = await bench.profile(softmax(bench, COMPILED))
    assert finished.outcome == "ok", (finished.failure, finished.stderr)
    assert {(dump.symbol, dump.name) for dump in finished.dumps} == {("softmax", "softmax")}
    # the code of the recording is that of another compiler, and so an instance of its own
    assert [(dump.level, dump.instance) for dump in finished.dumps] == [
        ("sass", 0), ("ttir", 1), ("ttgir", 1), ("llir", 1), ("ptx", 1),
    ]  # fmt: skip
    sass, ttir, ttgir, llir, ptx = map(unpacked, finished.dumps)
    assert "tt.load" in ttir
    assert "#ttg.blocked" in ttgir
    assert "define ptx_kernel void @softmax" in llir
    assert ".entry softmax" in ptx
    assert "// /src/softmax.py:13\n" in sass
    assert finished.dumps[1].constants["BLOCK"] == "2048"


@pytest.mark.usefixtures("no_torch")
async def test_what_autotuning_launches_is_not_profiled(bench: Faked, driver_calls: Calls) -> None:
    """Triton's own benchmark of a configuration is called; without one it ends at once, which is enough here."""
    bench.ncu("softmax")
    finished = await bench.profile(softmax(bench, TUNED))
    assert finished.outcome == "ok", (finished.failure, finished.stderr)
    assert driver_calls() == ["start", "launch", "stop", "start", "launch", "stop"]


@pytest.mark.usefixtures("no_torch")
async def test_a_python_file_that_raises(bench: Faked, driver_calls: Calls) -> None:
    bench.ncu()
    finished = await bench.profile(softmax(bench, "def main(): raise ValueError('no')\n"))
    assert finished.outcome == "runtime error"
    assert finished.failure
    assert "ValueError: no" in finished.failure.message
    assert finished.profiles == ()


@pytest.mark.usefixtures("no_torch")
async def test_a_python_file_that_hangs(bench: Faked, driver_calls: Calls) -> None:
    bench.ncu()
    bench.late_after = "hang"
    job = softmax(bench, "def main():\n    print('hang')\n    __import__('time').sleep(600)\n")
    finished = await bench.profile(job)
    assert finished.outcome == "timed out", finished.failure
