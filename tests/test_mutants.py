"""scripts/mutants.py: what its rules make of a kernel, and what they leave alone."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
import mutants


def check(file: Path, text: str, expected: str, *rules: str) -> None:
    """Every line that differs from the original, in the order of the rules."""
    file.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
    of = mutants.source(file.name, "k")
    found: list[str] = []
    for rule in rules or mutants.RULES:
        for part in mutants.RULES[rule]:
            for change in part(of):
                after = of.text[: change.start] + change.text + of.text[change.end :]
                first = of.text.rfind("\n", 0, change.start) + 1
                found.append(after[first:].partition("\n")[0].strip())
    assert "\n".join(found) == dedent(expected).strip("\n")


@pytest.fixture
def cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mutants, "EXAMPLES", tmp_path)
    return tmp_path / "k.cu"


@pytest.fixture
def triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(mutants, "EXAMPLES", tmp_path)
    return tmp_path / "k.py"


def test_a_guarded_store(cuda: Path) -> None:
    check(
        cuda,
        """
        __global__ void k(int n, float a, const float* x, float* y) {
          if (threadIdx.x < n) y[threadIdx.x] = a * x[threadIdx.x] + 0.5f;
        }
        """,
        """
        if (threadIdx.x <= n) y[threadIdx.x] = a * x[threadIdx.x] + 0.5f;
        if (threadIdx.x + 1 < n) y[threadIdx.x] = a * x[threadIdx.x] + 0.5f;
        if (true) y[threadIdx.x] = a * x[threadIdx.x] + 0.5f;
        if (threadIdx.x < n) y[threadIdx.x + 1] = a * x[threadIdx.x] + 0.5f;
        if (threadIdx.x < n) y[threadIdx.x] = a * x[threadIdx.x + 1] + 0.5f;
        if (threadIdx.x < n) if (blockIdx.x + threadIdx.x > 0) y[threadIdx.x] = a * x[threadIdx.x] + 0.5f;
        if (threadIdx.x < n) y[threadIdx.x] = a * x[threadIdx.x] + 0.505f;
        if (threadIdx.x < n) y[threadIdx.x] = a + x[threadIdx.x] + 0.5f;
        if (threadIdx.x < n) y[threadIdx.x] = a * x[threadIdx.x] - 0.5f;
        if (threadIdx.y < n) y[threadIdx.x] = a * x[threadIdx.x] + 0.5f;
        if (threadIdx.x < n) y[threadIdx.y] = a * x[threadIdx.x] + 0.5f;
        if (threadIdx.x < n) y[threadIdx.x] = a * x[threadIdx.y] + 0.5f;
        if (threadIdx.x < n) y[threadIdx.x] = a + 0.5f;
        __global__ void k(int n, float a, const float* x, float* y) {
        """,
    )


def test_declarations_steps_masks_and_comments_stay(cuda: Path) -> None:
    check(
        cuda,
        """
        __global__ void k(float* y) {
          __shared__ float tile[32][32 + 1];  // 32 + 1
          float sums[4] = {};
        #pragma unroll 8
          for (int i = 0; i < 4; i += 2) sums[i] += __shfl_xor_sync(0xffffffff, tile[i][0], 16);
        }
        """,
        """
        for (int i = 0; i + 1 < 4; i += 2) sums[i] += __shfl_xor_sync(0xffffffff, tile[i][0], 16);
        for (int i = 1; i < 4; i += 2) sums[i] += __shfl_xor_sync(0xffffffff, tile[i][0], 16);
        for (int i = 0; i < 5; i += 2) sums[i] += __shfl_xor_sync(0xffffffff, tile[i][0], 16);
        for (int i = 0; i < 4; i += 2) sums[i] += __shfl_xor_sync(0xffffffff, tile[i][1], 16);
        for (int i = 0; i < 4; i += 2) sums[i] += __shfl_xor_sync(0xffffffff, tile[i][0], 17);
        for (int i = 0; i < 4; i += 2) sums[i] = __shfl_xor_sync(0xffffffff, tile[i][0], 16);
        for (int i = 0; i < 4; i += 2) sums[i] += __shfl_xor_sync(0xffffffff, tile[0][i], 16);
        """,
        "one short", "wrong constant", "wrong operator", "not accumulated", "indices swapped",
    )  # fmt: skip


def test_a_function_that_the_kernel_calls_is_part_of_it(cuda: Path) -> None:
    check(
        cuda,
        """
        __device__ float twice(float x) { return x * 2.0f; }
        __device__ float thrice(float x) { return x * 3.0f; }
        __global__ void k(float* y) { y[0] = twice(y[0]); }
        """,
        """
        __global__ void k(float* y) { y[1] = twice(y[0]); }
        __global__ void k(float* y) { y[0] = twice(y[1]); }
        __device__ float twice(float x) { return x * 2.02f; }
        """,
        "wrong constant",
    )


def test_triton(triton: Path) -> None:
    check(
        triton,
        """
        import triton
        import triton.language as tl

        @triton.jit
        def k(x, n, BLOCK: tl.constexpr):
            at = tl.arange(0, BLOCK)
            tl.store(x + at, tl.load(x + at, mask=at < n, other=0.0) * 2, mask=at < n)
        """,
        """
        tl.store(x + at + 1, tl.load(x + at, mask=at < n, other=0.0) * 2, mask=at < n)
        tl.store(x + at, tl.load(x + at + 1, mask=at < n, other=0.0) * 2, mask=at < n)
        tl.store(x + at, tl.load(x + at, mask=(at < n) == (at < n), other=0.0) * 2, mask=at < n)
        tl.store(x + at, tl.load(x + at, mask=at < n, other=0.0) * 2, mask=(at < n) == (at < n))
        if tl.program_id(0) > 0: tl.store(x + at, tl.load(x + at, mask=at < n, other=0.0) * 2, mask=at < n)
        """,
        "index off by one", "no bound", "unwritten",
    )  # fmt: skip
