"""Launches of a CUDA program's kernels, captured, and the launch specs that replay them"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e.forks import Ended, command

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine"),
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU on this machine"),
]
PROGRAM = Path(__file__).parent / "programs" / "captured.cu"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all tests: the recorder and the program are compiled once."""
    return tmp_path_factory.mktemp("cache")


def captured(folder: Path, kernel: str, cache: Path) -> Ended:
    place = {"XDG_CACHE_HOME": str(cache), "XDG_STATE_HOME": str(folder.parent / "state")}
    line = ["capture", "captured.cu", "--kernel", kernel, "--launch", "1", "--runner", "local", "--trust"]
    return command(folder, *line, environment=place)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    shutil.copy(PROGRAM, tmp_path / "work")
    return tmp_path / "work"


@pytest.mark.parametrize(
    ("kernel", "statement"),
    [
        ("block_sum", "launch block_sum<256, float><<<(n + 255) / 256, 256>>>(x, out, n)"),
        ("scale_inplace", "launch scale_inplace<<<(n + 127) / 128, 128>>>(x, n, 0.1, 0.5)"),
        ("transpose", "rows = 200; cols = 300; in = randn(rows * cols); out = empty(rows * cols)"),
        ("histogram", 'keys = load("captured.orbit.safetensors", "histogram.keys", n); counts = zeros(64)'),
        ("stencil", "symbol coef = tensor({0.25, 0.5, 0.25}, dtype=float32)"),
    ],
)
def test_a_launch_is_written_above_its_kernel_and_replays(
    project: Path, kernel: str, statement: str, cache: Path
) -> None:
    done = captured(project, kernel, cache)
    assert done.returncode == 0, done.stdout + done.stderr
    assert statement in (project / "captured.cu").read_text()


@pytest.mark.parametrize(
    ("kernel", "why"),
    [("by_struct", "'p' is a Params by value"), ("in_graph", "it is launched inside a CUDA graph")],
)
def test_what_no_launch_spec_describes_is_refused(project: Path, kernel: str, why: str, cache: Path) -> None:
    done = captured(project, kernel, cache)
    assert (done.returncode, why in done.stderr) == (5, True), done.stdout + done.stderr
    assert (project / "captured.cu").read_text() == PROGRAM.read_text()
