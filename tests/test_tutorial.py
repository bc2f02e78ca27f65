"""docs/guide/first-kernel.md: what it tells a reader to type gives what it shows, without a GPU."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from orbit_remote.common.messages import NO_GPU
from tests.cli_check import orbit
from tests.remote.nvcc_check import needs_nvcc

PAGE = Path(__file__).parent.parent / "docs" / "guide" / "first-kernel.md"
SOURCES = re.findall(r"```cuda\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
SHOWN = re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@needs_nvcc
@pytest.mark.skipif(bool(shutil.which("nvidia-smi")), reason="the page shows a machine without a GPU")
def test_the_kernel_as_it_is_and_with_its_launch_spec(tmp_path: Path) -> None:
    without, spec = SOURCES
    listing, error, _ = SHOWN
    (tmp_path / "scale.cu").write_text(without)
    assert orbit(tmp_path, "show", "scale.cu")[:2] == (0, listing)

    (tmp_path / "scale.cu").write_text(spec)
    code, out, _ = orbit(tmp_path, "show", "scale.cu")
    assert (code, "  ▶ Run (choose a GPU) | Profile\n" in out) == (0, True)
    assert orbit(tmp_path, "compile", "scale.cu")[0] == 0

    (tmp_path / "scale.cu").write_text(spec.replace("2.0f, x, y)", "2.0f, x, y, n)"))
    code, out, _ = orbit(tmp_path, "compile", "scale.cu")
    assert (code, out.splitlines()[0]) == (1, error.strip())


TRITON, TEST = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.skipif(bool(shutil.which("nvidia-smi")), reason="the page shows a machine without a GPU")
@pytest.mark.slow
def test_the_triton_half(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "softmax.py").write_text(TRITON)
    (tmp_path / "test_softmax.py").write_text(TEST)
    _, out, _ = orbit(tmp_path, "show", "softmax.py")
    assert " | Compile (imports this file): no registers yet\n" in out
    _, out, errors = orbit(tmp_path, "compile", "softmax.py")
    assert out.startswith("softmax_kernel, compiled for sm_90a\n")
    assert "  BLOCK                   1024  [" in out  # of the 1000 columns in the test
    assert "assumed" not in out + errors
    assert orbit(tmp_path, "drivers", "softmax.py")[:2] == (0, SHOWN[2])
    code, _, errors = orbit(tmp_path, "run", "softmax.py", "--through", "auto", "--trust")
    assert (code, f"error: {NO_GPU}: " in errors) == (5, True)
