"""Kernels in the cells of notebooks: the language of a cell, and what of its text is IPython's."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbit_lsp.kernels import cells
from orbit_lsp.kernels.cells import CellTracker
from orbit_lsp.notebook.cell_history import notebook_path

CUDA = "__global__ void k(float* x) { x[0] = 1; }\n"
TRITON = "@triton.jit\ndef k(x):\n    a = (x\n      % 2)\n"


@pytest.mark.parametrize(
    ("text", "kernels"),
    [
        (f"%%cuda\n{CUDA}", [("cuda", "k", 1)]),
        (f"%%cuda --kernel k\r\n{CUDA}", [("cuda", "k", 1)]),
        (f"%%orbit profile\n{CUDA}", [("cuda", "k", 1)]),
        (f"%%orbit run\n{TRITON}", [("triton", "k", 2)]),
        (f"%%orbit run\ntext = '''{CUDA}'''\n{TRITON}", [("triton", "k", 1), ("triton", "k", 4)]),
        (f"%%time\n{TRITON}", [("triton", "k", 2)]),
        (f"!nvidia-smi -L\n%timeit f()\n{TRITON}", [("triton", "k", 3)]),
        (f"import triton\n{TRITON}%orbit status", [("triton", "k", 2)]),
        ("from triton import jit\n@jit\ndef k(x): pass", [("triton", "k", 2)]),
        ("@cuda.jit\ndef k(x): pass", [("triton", "k", 1)]),
        ("@other.jit\ndef k(x): pass", []),
        (f"%%bash\n{CUDA}", []),
        (f"%%writefile k.cu\n{CUDA}", []),
        (CUDA, []),
        ("%%cuda", []),
        ("", []),
    ],
)
def test_the_kernels_of_a_cell(text: str, kernels: list[tuple[str, str, int]]) -> None:
    scan = CellTracker().scan(text)
    assert [(kernel.language, kernel.name, kernel.line) for kernel in scan.kernels] == kernels
    assert len(cells.readable(text, cells.language(text))) in (0, len(text))


def test_a_first_line_that_changes_the_language() -> None:
    tracker = CellTracker()
    texts = (f"%%cuda\n{CUDA}", f"%%cud\n{CUDA}", f"%%cuda\n{CUDA}", TRITON)
    assert [[each.dsl for each in tracker.scan(text).kernels] for text in texts] == [
        ["cuda"],
        [],
        ["cuda"],
        ["triton"],
    ]


def test_a_kernel_is_the_same_below_any_magic() -> None:
    scans = [CellTracker().scan(f"{magic}\n{CUDA}") for magic in ("%%cuda", "%%orbit run --kernel k")]
    assert scans[0].digests == scans[1].digests


@pytest.mark.parametrize(
    ("variable", "told", "path"),
    [
        ("{folder}/a.ipynb", "", "a.ipynb"),
        ("sub/a.ipynb", "", "a.ipynb"),
        ("{folder}/a.ipynb", "{folder}/b.ipynb", "b.ipynb"),
        ("", "", "unnamed.ipynb"),
        ("console-1", "", "unnamed.ipynb"),
        ("", "a\0.ipynb", "unnamed.ipynb"),
    ],
)
def test_the_notebook_that_a_front_end_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, told: str, path: str
) -> None:
    for name in ("a.ipynb", "b.ipynb"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setenv("JPY_SESSION_NAME", variable.format(folder=tmp_path))
    assert notebook_path(tmp_path, told.format(folder=tmp_path)) == str(tmp_path / path)
