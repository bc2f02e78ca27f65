"""A loop on a real GPU: twenty iterations over three prepared variants of one kernel, which ends at the fastest."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loops import RESULT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]
SPEC = """\
// orbit: n = 1 << 26; x = randn(n); y = empty(n)
// orbit: launch scale<<<n / {per}, {block}>>>(x, y)
// orbit: expect y == 2 * x
__global__ void scale(const float* x, float* y) {{ {body} }}
"""
ONE = "y[i] = 2 * x[i];"
VARIANTS = {
    "small blocks": SPEC.format(per=32, block=32, body=f"int i = blockIdx.x * 32 + threadIdx.x; {ONE}"),
    "strided": SPEC.format(per=8192, block=256, body=f"for (int k = 0; k < 32; k++) {{ int i = blockIdx.x * 8192 + threadIdx.x * 32 + k; {ONE} }}"),
    "plain": SPEC.format(per=256, block=256, body=f"int i = blockIdx.x * 256 + threadIdx.x; {ONE}"),
}  # fmt: skip


def test_twenty_iterations_end_at_the_fastest_of_three(tmp_path: Path) -> None:
    for number, text in enumerate(VARIANTS.values()):
        (tmp_path / f"variant_{number}").write_text(text)
    (tmp_path / "k.cu").write_text(VARIANTS["strided"])
    result = RESULT % ("'$1'", "")
    (tmp_path / "worker").write_text(f"cp variant_$(($1 % 3)) k.cu\necho '{result}' > $2\n")
    worker = f"sh {tmp_path}/worker {{iteration}} {{result}}"
    words = [
        "loop",
        "k.cu",
        "--mode",
        "command",
        "--worker",
        worker,
        "--max-iterations",
        "20",
        "--no-progress-limit",
        "20",
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "orbit_lsp", *words],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    summary = json.loads(done.stdout)
    assert (summary["stopped"], summary["iterations"]) == ("iterations", 20)
    assert summary["ratio"] < 0.9
    assert (tmp_path / "k.cu").read_text() == VARIANTS["plain"]
    rows = [
        json.loads(line)
        for line in (tmp_path / ".orbit-loop" / "k.cu" / "history.jsonl").read_text().splitlines()
    ]
    assert {row["outcome"] for row in rows} <= {"faster", "slower", "inconclusive", "unchanged"}
