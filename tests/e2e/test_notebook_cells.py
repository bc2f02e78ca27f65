"""`%%cuda` and `%%orbit profile` in the cells of a real kernel. The GPU side is recorded (recorded_worker.py)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import HERE
from tests.e2e.test_history import SAXPY
from tests.test_notebook import Kernel

PROFILES = HERE.parent / "recordings" / "profiles"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory, of_the_run: Path) -> Iterator[Callable[..., Kernel]]:
    """kernel(*words): cells run in the real Python, jobs are answered as on an H100; `words` are for the recorded worker."""
    (of_the_run / "reports").mkdir(exist_ok=True)
    made: list[Kernel] = []

    def make(*words: str) -> Kernel:
        tmp_path = tmp_path_factory.mktemp("cells")
        for name in ("JUPYTER_DATA_DIR", "XDG_STATE_HOME", "IPYTHONDIR"):
            patch.setenv(name, str(tmp_path / name))
        python = tmp_path / "recorded-python"
        recorded = f'"{HERE / "recorded_worker.py"}" "$@" --read "{of_the_run / "reports"}" {" ".join(words)}'
        python.write_text(
            f'#!/bin/sh\ncase " $* " in *" keeper "*) exec "{sys.executable}" "$@";; *) exec "{sys.executable}" {recorded};; esac\n'
        )
        python.chmod(0o755)
        made.append(Kernel(tmp_path, "--python", str(python)))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        yield make
    for each in made:
        each.close()


@pytest.fixture(scope="module")
def shared(kernel: Callable[..., Kernel]) -> Kernel:
    return kernel()


@pytest.mark.parametrize(
    ("file", "verdict", "hot"),
    [
        (
            "memory_bound.cu",
            "saxpy 70.7 µs, memory 79% of peak",
            "cell.cu:8  93%      long scoreboard   y[i] = a * x[i] + y[i];",
        ),
        (
            "softmax.py",
            "softmax 41.1 µs, memory 82% of peak",
            "cell.py:14  72%      long scoreboard   values = tl.exp(",
        ),
    ],
)
def test_a_profiled_cell_shows_its_verdict_and_its_lines(
    shared: Kernel, file: str, verdict: str, hot: str
) -> None:
    """Lines count as in the cell, whose first is the magic."""
    shown = shared.run(f"%%orbit profile\n{(PROFILES / file).read_text()}")
    assert verdict in shown
    assert hot in shown


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ("%%cuda", ["288 µs ±0.2% (cold L2, n=50)", "≤100%, 8 blocks per SM", "✓ y == a * x + y"]),
        ("%%orbit run", ["288 µs ±0.2% (cold L2, n=50)", "≤100%, 8 blocks per SM", "✓ y == a * x + y"]),
        ("%%orbit run --kernel other", ["UsageError: orbit: compile error: there is no kernel other in cell.cu; it has: saxpy"]),
        ("%%orbit fly", ["UsageError: orbit: write %%orbit run, %%orbit profile, %%orbit check or %%orbit compile, each with [--kernel K]"]),
        ("%%orbit profile --fast", ["UsageError: orbit: '--fast' is no option; write %%orbit run"]),
    ],
)  # fmt: skip
def test_cells_of_cuda(shared: Kernel, cell: str, shown: list[str]) -> None:
    text = shared.run(f"{cell}\n{SAXPY}")
    assert [each for each in shown if each not in text] == []
    assert "hover again" not in text


def test_without_a_gpu_a_cell_reports_it(kernel: Callable[..., Kernel]) -> None:
    shown = kernel("--no-gpu").run(f"%%orbit profile\n{SAXPY}")
    assert "UsageError: orbit: infrastructure: there is no NVIDIA GPU in this machine to run it on" in shown
