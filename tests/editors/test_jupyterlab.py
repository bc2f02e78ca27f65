"""JupyterLab in a headless Chromium with a kernel of ours: picked, run, interrupted, restarted, ended."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tests.cli_check import orbit
from tests.editors.conftest import EDITORS, program
from tests.editors.test_report_layout import chromium
from tests.processes_check import LIMIT_S
from tests.test_notebook import ADD, RECORDED

DRIVE = Path(__file__).parent / "jupyterlab" / "drive.mjs"
IMAGE = """
import base64, struct, zlib
def part(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
rows = b''.join(b'\\0' + b''.join(bytes([x * 2, y * 4, 128]) for x in range(96)) for y in range(48))
png = b'\\x89PNG\\r\\n\\x1a\\n' + part(b'IHDR', struct.pack('>IIBBBBB', 96, 48, 8, 2, 0, 0, 0)) + part(b'IDAT', zlib.compress(rows)) + part(b'IEND', b'')
display({'image/png': base64.b64encode(png).decode(), 'text/plain': 'a picture'}, raw=True)
"""
CELLS = ["x = 20\nx + 1", IMAGE, f"{RECORDED}print('prepared')", ADD, "print('begun')\nwhile True: pass", "x"]


def own_folders(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of JupyterLab, its kernels and what they keep."""
    for name, place in [("JUPYTER_DATA_DIR", "jupyter"), ("JUPYTER_RUNTIME_DIR", "runtime"), ("JUPYTER_CONFIG_DIR", "config"),
                        ("XDG_STATE_HOME", "state"), ("IPYTHONDIR", "ipython")]:  # fmt: skip
        monkeypatch.setenv(name, str(folder / place))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Its address; it ends with all that it started."""
    command = [
        program("jupyter-lab"), "--no-browser", "--allow-root", "--ServerApp.token=", "--ServerApp.port=0",
        f"--ServerApp.root_dir={folder / 'work'}",
        "--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stderr=subprocess.PIPE, stdout=log, text=True) as server,
    ):
        assert server.stderr
        try:
            address = next(
                word for line in server.stderr for word in line.split() if word.startswith("http://127.0.0.1")
            )
            yield address.rstrip("/")
        finally:
            server.terminate()
            server.communicate(timeout=LIMIT_S)


def test_a_kernel_in_jupyterlab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_folders(tmp_path, monkeypatch)
    (tmp_path / "work").mkdir()
    orbit(tmp_path, "kernel", "install", "--python", sys.executable)
    notebook = new_notebook(cells=[new_code_cell(source) for source in CELLS])
    nbformat.write(notebook, tmp_path / "work" / "kernels.ipynb")
    node, pictures = EDITORS / "vscode" / "node", EDITORS / "pictures"
    pictures.mkdir(exist_ok=True)
    monkeypatch.setenv("ORBIT_CHROMIUM", chromium())
    with served(tmp_path) as address:
        done = subprocess.run(
            [str(node), str(DRIVE), str(EDITORS / "vscode"), f"{address}/tree/kernels.ipynb", str(pictures)],
            capture_output=True, text=True, timeout=LIMIT_S * 5, check=False,
        )  # fmt: skip
        steps = {step["step"]: step["shown"] for step in map(json.loads, done.stdout.splitlines())}
        assert done.returncode == 0, (steps, done.stderr)
        assert orbit(tmp_path, "sessions", "list")[1] == "no notebook kernel runs, and no GPU is rented\n"
    assert "measured on NVIDIA H100" in steps.pop("measured")
    assert steps == {
        "picked": "Orbit: this GPU",
        "run": "[1]:\n21",
        "image": "96x48",
        "lines of the table": 3,
        "interrupt": "KeyboardInterrupt:",
        "state kept": "[6]:\n20",
        "restart": "NameError: name 'x' is not defined",
        "ended": "No Kernel",
    }
