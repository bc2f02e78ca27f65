"""Comparisons in turn on a real GPU, by the command line: the same code, code that is slower by construction, and
a header of a git revision.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]

SPEC = """\
// orbit: n = 1 << 26
// orbit: x = randn(n); y = randn(n)
// orbit: launch saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y)
// orbit: expect y == 2 * x + y
// orbit: bytes 12 * n
"""
BEFORE = """\
#ifndef EXTRA
#define EXTRA 0
#endif
"""
KERNEL = """\
__global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float value = a * x[i] + y[i];
  if (blockIdx.x % 100 < EXTRA) value += 0.0f * x[i < n / 2 ? i + n / 2 : i - n / 2];
  y[i] = value;
}
"""
"""EXTRA per cent of the blocks read 4 bytes more for each 12 that every block moves, from where no cache has them:
with 25 of them a kernel that waits for memory alone takes 8 % longer.
"""
MAIN = """\
#include <cstdio>
int main() {
  int n = 1 << 26;
  float *x, *y;
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&y, n * sizeof(float));
  cudaMemset(x, 0, n * sizeof(float));
  cudaMemset(y, 0, n * sizeof(float));
  for (int i = 0; i < 30; i++) saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y);
  printf("%s\\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
"""


def orbit(folder: Path, *words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "orbit_lsp", *words], cwd=folder, capture_output=True, text=True, timeout=170, check=False,
        env={**os.environ, "XDG_STATE_HOME": str(folder / ".state")},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def compared(folder: Path, *words: str) -> dict:
    began = time.monotonic()
    code, out, message = orbit(folder, "compare", "saxpy.cu", *words, "--kernel", "saxpy", "--json")
    assert code == 0, message + out
    result = json.loads(out)
    runs = [[round(ns / 1000, 2) for ns in each] for each in result["runs"]]
    print(f"\n{result['sentence']}; {time.monotonic() - began:.1f} s; {result['remarks']}; µs: {runs}")
    return result


def text(main: str = "", extra: int = 0) -> str:
    """A program, or a kernel with a launch spec."""
    return f"#define EXTRA {extra}\n{BEFORE}{'' if main else SPEC}{KERNEL}{main}"


@pytest.mark.parametrize("main", ["", MAIN], ids=["spec", "program"])
def test_the_same_code_is_not_told_apart(tmp_path: Path, main: str) -> None:
    (tmp_path / "saxpy.cu").write_text(text(main))
    (tmp_path / "same.cu").write_text("// the same\n" + text(main))
    result = compared(tmp_path, "--with", "same.cu")
    assert abs(result["ratio"] - 1) < 0.01
    assert result["low"] < 1.01
    assert result["high"] > 0.99


@pytest.mark.parametrize("main", ["", MAIN], ids=["spec", "program"])
def test_code_that_reads_more_is_slower(tmp_path: Path, main: str) -> None:
    (tmp_path / "saxpy.cu").write_text(text(main, 25))
    (tmp_path / "before.cu").write_text(text(main))
    result = compared(tmp_path, "--with", "before.cu")
    assert result["verdict"] == "slower"
    assert 1.04 < result["ratio"] < 1.13
    assert result["low"] <= result["ratio"] <= result["high"]
    assert result["devices"][0] == result["devices"][1] != ""


@pytest.mark.skipif(shutil.which("git") is None, reason="no git on this machine")
def test_a_revision_is_built_with_its_own_header(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "saxpy.cu").write_text('#include "extra.cuh"\n' + SPEC + KERNEL)
    (tmp_path / "extra.cuh").write_text("#define EXTRA 25\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "x")
    (tmp_path / "extra.cuh").write_text("#define EXTRA 0\n")
    result = compared(tmp_path, "--with", "HEAD")
    assert result["verdict"] == "faster"
    assert 1 / 1.13 < result["ratio"] < 1 / 1.04
    assert any("extra.cuh is taken from HEAD too" in item for item in result["remarks"])


def test_the_history_tells_a_slower_version(tmp_path: Path) -> None:
    slow = text(extra=45)
    for version in (text(), slow, slow.replace("value", "sum")):
        (tmp_path / "saxpy.cu").write_text(version)
        code, _, message = orbit(tmp_path, "run", "saxpy.cu", "--kernel", "saxpy")
        assert code == 0, message
    (kernel,) = json.loads(orbit(tmp_path, "history", "saxpy.cu", "--json")[1])["kernels"]
    print([round(item["time_ns"]) for item in kernel["runs"]], kernel["regression"])
    assert [item["version"] for item in kernel["runs"]] == [1, 2, 3]
    assert kernel["regression"]["edits"] == 2
    assert 0.06 < kernel["regression"]["change"] < 0.25
    result = compared(tmp_path)
    assert result["against"].startswith("the version of ")
    assert abs(result["ratio"] - 1) < 0.01
