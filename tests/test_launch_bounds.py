"""The code actions for more threads per multiprocessor: a kernel and its registers in, title and edit out."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from lsprotocol import types as lsp

from orbit_lsp.views.compiler import block_size, launch_bounds, num_warps
from orbit_remote.common import messages as c
from tests.remote.nvcc_check import needs_nvcc
from tests.test_views import PTXAS, SAXPY, Bench

TITLE = (
    "Set __launch_bounds__(256, 8): occupancy 100% instead of 75%; at most 32 registers a thread instead of 40, which "
    "may spill"
)


def proposed(text: str, line: int = 0, **figures: object) -> tuple[str, str] | None:
    """(title, the text after the edit)."""
    bench = Bench(text).built(replace(PTXAS, **figures))
    return applied(text, launch_bounds.actions(bench.session, bench.uri, line, versioned=False))


def applied(text: str, actions: list[lsp.CodeAction]) -> tuple[str, str] | None:
    if not actions:
        return None
    (action,) = actions
    assert action.edit
    assert action.edit.changes
    (edits,) = action.edit.changes.values()
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda edit: (edit.range.start.line, -edit.range.start.character)):
        start, end = edit.range.start, edit.range.end
        assert start.line == end.line
        row = lines[start.line]
        lines[start.line] = row[: start.character] + edit.new_text + row[end.character :]
    return action.title, "\n".join(lines)


@pytest.mark.parametrize(
    ("signature", "figures", "expected"),
    [
        ("void saxpy", {}, "void __launch_bounds__(256, 8) saxpy"),
        ("void\nsaxpy", {}, "void\n__launch_bounds__(256, 8) saxpy"),
        (
            "void __launch_bounds__(256) saxpy",
            {"max_threads": 256},
            "void __launch_bounds__(256, 8) saxpy",
        ),
        (
            "__launch_bounds__(THREADS, 6) void saxpy",
            {"max_threads": 256},
            "__launch_bounds__(THREADS, 8) void saxpy",
        ),
        ("void saxpy", {"registers": 32}, None),
        ("void saxpy", {"registers": 255}, None),
        ("void saxpy", {"static_shared": 100_000}, None),
        ("void __launch_bounds__(1024) saxpy", {"max_threads": 1024}, None),
    ],
    ids=[
        "a plain signature", "a signature of two lines", "bounds without blocks", "bounds by name",
        "nothing to gain", "too many registers would have to go", "shared memory limits", "bound to other blocks",
    ],
)  # fmt: skip
def test_the_proposal(signature: str, figures: dict[str, object], expected: str | None) -> None:
    text = SAXPY.replace("void saxpy", signature)
    assert proposed(text, **figures) == (expected and (TITLE, SAXPY.replace("void saxpy", expected)))


@pytest.mark.parametrize("line", [1, 2, 3])
def test_only_on_the_signature(line: int) -> None:
    assert proposed(SAXPY, line) is None


HUNGRY = """\
__global__ void poly(float *y, const float *x, int n) {
    float a[20];
#pragma unroll
    for (int k = 0; k < 20; ++k) a[k] = x[threadIdx.x + k * n];
#pragma unroll
    for (int k = 0; k < 20; ++k) a[k] = a[k] * a[(k + 7) % 20] + a[(k + 3) % 20];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 20; ++k) sum += sqrtf(a[k]) * a[19 - k];
    y[threadIdx.x] = sum;
}
int main() { poly<<<1, 256>>>(nullptr, nullptr, 0); }
"""


def registers(text: str, folder: Path) -> int:
    """Of the only kernel, by nvcc's own words."""
    (folder / "k.cu").write_text(text)
    command = ["nvcc", "-arch=sm_90a", "-cubin", "-Xptxas", "-v", "-o", "k.cubin", "k.cu"]
    words = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stderr
    used = re.search(r"Used (\d+) registers", words)
    assert used
    return int(used[1])


@pytest.mark.slow
@needs_nvcc
def test_the_compiler_keeps_the_promise(tmp_path: Path) -> None:
    before = registers(HUNGRY, tmp_path)
    actions = proposed(HUNGRY, registers=before, symbol="_Z4polyPfPKfi", name="poly")
    assert actions
    title, text = actions
    promised = re.search(r"at most (\d+) registers", title)
    assert promised
    assert registers(text, tmp_path) <= int(promised[1]) < before


HOST = """\
__global__ void scale(int n, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] *= 2;  // 1024 threads
}
int main() { scale<<<(n + 1023) / 1024, 1024>>>(n, y); }
"""
SMALLER = "Launch scale with 512 threads a block: occupancy 75% instead of 50%; 2 times as many blocks to start, and fewer threads to share data with"
LARGER = "Launch scale with 64 threads a block: occupancy 100% instead of 50%; 1/2 of the blocks, so a small grid leaves more multiprocessors idle"
FAILING = SMALLER.replace("75% instead of 50%", "25% instead of a launch that fails")


@pytest.mark.parametrize(
    ("replaced", "registers", "title", "expected"),
    [
        ({}, 40, SMALLER, {"1023": "511", "/ 1024, 1024": "/ 512, 512"}),
        ({}, 100, FAILING, {"1023": "511", "/ 1024, 1024": "/ 512, 512"}),
        (
            {"int main": "constexpr int B = 1024;\nint main", "1023": "B - 1", "/ 1024, 1024": "/ B, B"},
            40,
            SMALLER,
            {"B = 1024": "B = 512"},
        ),
        (
            {
                "__global__": "// orbit: n = 999; B = 1024\n// orbit: launch scale<<<cdiv(n, B), dim3(B)>>>(n, y)\n__global__",
                "int main": "//",
            },
            40,
            SMALLER,
            {"B = 1024": "B = 512"},
        ),
        ({"1023": "31", "1024, 1024": "32, 32"}, 16, LARGER, {"31": "63", "/ 32, 32": "/ 64, 64"}),
        ({}, 32, None, {}),
        ({"(n + 1023) / 1024": "1"}, 40, None, {}),
        ({"(n + 31) / 32": "n / 32"}, 16, None, {}),
        ({"1023": "31", "1024, 1024": "32, 32", "(n + 31)": "n"}, 16, None, {}),
        ({"*= 2": "*= y[1023 - threadIdx.x]"}, 40, None, {}),
        ({"blockDim.x": "1024"}, 40, None, {}),
        ({"1024, 1024": "1024, dim3(32, 32)"}, 40, None, {}),
        ({"int main": "#define B 1024\nint main", "/ 1024, 1024": "/ B, B", "*= 2": "*= B"}, 40, None, {}),
        ({"; }\n": "; scale<<<n, m>>>(n, y); }\n"}, 40, None, {}),
    ],
    ids=[
        "numbers", "a launch that fails", "a constant", "a launch spec", "a larger size", "nothing to gain", "a grid of one",
        "unchanged", "a grid that does not round up", "a kernel that knows the size", "a kernel without blockDim",
        "two dimensions", "a macro that the kernel uses", "another launch of unknown size",
    ],
)  # fmt: skip
def test_another_block_size(
    replaced: dict[str, str], registers: int, title: str | None, expected: dict[str, str]
) -> None:
    text = HOST
    for old, new in replaced.items():
        text = text.replace(old, new)
    symbol = "_Z5scaleiPf"
    bench = Bench(text).built(replace(PTXAS, registers=registers, symbol=symbol, name="scale(int, float*)"))
    line = next(number for number, row in enumerate(text.split("\n")) if "void scale" in row)
    edited = applied(text, block_size.actions(bench.session, bench.uri, line, versioned=False))
    for old, new in expected.items():
        text = text.replace(old, new)
    assert edited == (title and (title, text))


TRITON = """\
import triton
import triton.language as tl

# orbit: x = randn(4096); g = 1
# orbit: launch square[(g,)](x, N=4096, num_warps=1)
@triton.jit
def square(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), 0)


def main(x):
    square[(1,)](x, N=4096, num_warps=1)
"""
FEWER = (
    "Launch square with num_warps=8: occupancy 100% instead of 31.2% (28 registers a thread, not 86; compiled for sm_90a); "
    "less work for each thread between loads, and reductions across more warps"
)


def of_warps(registers: dict[int, int], *, spilled: int = 0, shared: int = 0) -> list[c.Resources]:
    """Instances of `square` by their `num_warps`, today's first; the others spill so many bytes."""
    today = next(iter(registers))
    return [
        c.Resources(
            "square", "square", "sm_90a", registers=held, static_shared=0, dynamic_shared=shared, spill_stores=0,
            spill_loads=0 if warps == today else spilled, threads=32 * warps, place=c.Place("/src/k.py", 7),
            constants={"N": "4096", "num_warps": str(warps), "x": "*fp32 (assumed)"},
        )
        for warps, held in registers.items()
    ]  # fmt: skip


HOST_LAUNCH = "    square[(1,)](x, N=4096, num_warps=1)"
LESS = of_warps({1: 86, 8: 28})


@pytest.mark.parametrize(
    ("replaced", "instances", "title", "expected"),
    [
        ({}, of_warps({1: 86, 2: 54, 4: 38, 8: 28, 16: 22}), FEWER, {"warps=1": "warps=8"}),
        ({}, of_warps({1: 86, 2: 54, 8: 28}, spilled=8), None, {}),
        ({}, of_warps({1: 40, 2: 40}, shared=100_000), "Launch square with num_warps=2", {"warps=1": "warps=2"}),
        ({}, of_warps({1: 86}), None, {}),
        ({"warps=1": "warps=4"}, of_warps({4: 80, 8: 78, 16: 72}), None, {}),
        ({"warps=1": "warps=16"}, of_warps({16: 72, 4: 40}), "Launch square with num_warps=4", {"warps=16": "warps=4"}),
        ({", num_warps=1": ""}, of_warps({4: 168, 8: 80}), "Launch square", {"N=4096)": "N=4096, num_warps=8)"}),
        ({", num_warps=1": ","}, of_warps({4: 168, 8: 80}), "Launch square", {"N=4096,)": "N=4096,num_warps=8)"}),
        ({", num_warps=1": ""}, LESS, None, {}),
        ({HOST_LAUNCH: "    square[(1,)](x, N=4096, num_warps=w)"}, LESS, None, {}),
        ({HOST_LAUNCH: "    square[(1,)](x, **options)"}, LESS, None, {}),
        ({HOST_LAUNCH: "    y = 'é'; square[(1,)](x, 1, num_warps=1)"}, LESS, "Launch square", {"warps=1": "warps=8"}),
        ({"N), 0)": "N), num_warps)"}, LESS, None, {}),
        ({"# orbit: launch": "# launch", HOST_LAUNCH: ""}, LESS, None, {}),
        ({HOST_LAUNCH: "    square[(1,)](x"}, LESS, "Launch square", {"warps=1": "warps=8"}),
    ],
    ids=[
        "the nearest of the best", "spills", "shared memory limits", "nothing to compare with", "nothing to gain", "fewer",
        "no number, so 4", "a comma at the end", "compiled with another number", "a name", "unpacked keywords",
        "beside other alphabets", "a kernel that knows the number", "no launch", "host code that is being typed",
    ],
)  # fmt: skip
def test_another_number_of_warps(
    replaced: dict[str, str], instances: list[c.Resources], title: str | None, expected: dict[str, str]
) -> None:
    text = TRITON
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    bench = Bench(text, "file:///src/k.py").built(instances[0])
    [(target, figures)] = bench.session.results.figures.items()
    bench.session.results.every_gpu[target] = replace(figures, resources=tuple(instances))
    edited = applied(text, num_warps.actions(bench.session, bench.uri, 6, versioned=False))
    for old, new in expected.items():
        text = text.replace(old, new)
    assert (edited is None) == (title is None)
    if edited and title:
        assert edited[0].startswith(title)
        assert edited[1] == text
        assert bench.typed(7, 4, 4, "x = x + 1; ")
        assert not num_warps.actions(bench.session, bench.uri, 6, versioned=False)
