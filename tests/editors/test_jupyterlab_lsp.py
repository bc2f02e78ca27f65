"""A notebook in JupyterLab with jupyterlab-lsp, configured as docs/dev/clients.md says: a mistake, its end, a run, its figures, an edit.

Another server for Python is on PATH, as it is on many machines.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.cli_check import orbit
from tests.editors.conftest import EDITORS, program
from tests.editors.test_clients import snippet
from tests.editors.test_jupyterlab import own_folders, served
from tests.editors.test_report_layout import chromium
from tests.processes_check import LIMIT_S
from tests.test_notebook import ADD, RECORDED

DRIVE = Path(__file__).parent / "jupyterlab" / "lsp.mjs"
SPEC = "# orbit: n = 1024; x = rund(n); y = empty(n)\n# orbit: launch add[(1,)](x, y, n, 1024)\n"


def test_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program("jupyter-lab")
    own_folders(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    orbit(tmp_path, "kernel", "install", "--python", sys.executable)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "jupyter_server_config.py").write_text(snippet("JupyterLab with jupyterlab-lsp"))
    cells = [RECORDED, ADD.replace("@triton.jit", f"{SPEC}@triton.jit")]
    (tmp_path / "work").mkdir()
    nbformat.write(
        new_notebook(cells=[new_code_cell(source) for source in cells]), tmp_path / "work" / "n.ipynb"
    )
    (EDITORS / "pictures").mkdir(exist_ok=True)
    monkeypatch.setenv("ORBIT_CHROMIUM", chromium())
    with served(tmp_path) as address:
        done = subprocess.run(
            [str(EDITORS / "vscode" / "node"), str(DRIVE), str(EDITORS / "vscode"), f"{address}/tree/n.ipynb", str(EDITORS / "pictures")],
            capture_output=True, text=True, timeout=LIMIT_S * 5, check=False,
        )  # fmt: skip
    steps = {step["step"]: step["shown"] for step in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0, (steps, done.stderr)
    assert steps == {
        "mistake": "'rund' is not a function of launch specs; did you mean 'round'?\norbit",
        "mended": "# orbit: n = 1024; x = randn(n); y = empty(n)",
        "measured": "⏱ 5.00 µs ±0% · occ ≤100%\norbit",
        "edited": "⏱ 5.00 µs · edited since · occ ≤100%\norbit",
    }
