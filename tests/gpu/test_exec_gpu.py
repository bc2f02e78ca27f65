"""`orbit-lsp exec` on a real GPU: the kernels of torch and of a program are timed, and a failed launch is no success."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.forks import command

pytestmark = pytest.mark.gpu
PROGRAM = Path(__file__).parent / "programs" / "plain.cu"


def finished(folder: Path, *words: str) -> dict:
    return json.loads(command(folder, "exec", "--runner", "local", "--json", *words).stdout)


def test_the_kernels_of_torch(tmp_path: Path) -> None:
    code = "import torch; x = torch.rand(1 << 22, device='cuda')\nfor _ in range(20): y = x * 2\ntorch.cuda.synchronize()"
    got = finished(tmp_path, "-c", code)
    assert (got["outcome"], got["exit_code"]) == ("ok", 0)
    (most,) = (launches for launches in got["launches"] if launches["count"] == 20)
    assert 1_000 < most["timing"]["median"] < 1_000_000
    assert "elementwise" in most["name"]


def test_a_trace_has_the_kernels_of_torch(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(
        "import torch\ndef main():\n    for _ in range(20): torch.rand(1 << 20, device='cuda') * 2\n"
    )
    done = command(tmp_path, "trace", "t.py", "--runner", "local", "--json")
    got = json.loads(done.stdout)
    assert got["finished"]["outcome"] == "ok", done.stderr
    assert 20 in [launches["count"] for launches in got["finished"]["launches"]]
    assert Path(got["trace"]).exists()


def test_the_kernels_of_a_program(tmp_path: Path) -> None:
    subprocess.run(["nvcc", str(PROGRAM), "-o", str(tmp_path / "plain")], check=True)
    got = finished(tmp_path, "plain")
    assert (got["outcome"], got["exit_code"]) == ("ok", 0)
    assert got["launches"]


def test_an_illegal_address_is_no_success(tmp_path: Path) -> None:
    subprocess.run(
        ["nvcc", str(PROGRAM.with_name("illegal_address.cu")), "-o", str(tmp_path / "bad")], check=True
    )
    done = command(tmp_path, "exec", "--runner", "local", "bad")
    assert done.returncode != 0
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stderr
