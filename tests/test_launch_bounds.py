"""The code action that asks for one block more per multiprocessor: a kernel and its registers in, title and edit out."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from orbit_lsp.views.compiler import launch_bounds
from tests.remote.nvcc_check import needs_nvcc
from tests.test_views import PTXAS, SAXPY, Bench

TITLE = (
    "Set __launch_bounds__(256, 8): occupancy 100% instead of 75%; at most 32 registers a thread instead of 40, which "
    "may spill"
)


def proposed(text: str, line: int = 0, **figures: object) -> tuple[str, str] | None:
    """(title, the text after the edit)."""
    bench = Bench(text).built(replace(PTXAS, **figures))
    found = launch_bounds.actions(bench.session, bench.uri, line, versioned=False)
    if not found:
        return None
    (action,) = found
    assert action.edit
    assert action.edit.changes
    ((edit,),) = action.edit.changes.values()
    lines = text.split("\n")
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
    found = proposed(HUNGRY, registers=before, symbol="_Z4polyPfPKfi", name="poly")
    assert found
    title, text = found
    promised = re.search(r"at most (\d+) registers", title)
    assert promised
    assert registers(text, tmp_path) <= int(promised[1]) < before
