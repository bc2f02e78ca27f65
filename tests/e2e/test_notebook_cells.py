"""`%%cuda` and `%%orbit profile` in the cells of a real kernel. The GPU side is recorded (recorded_worker.py)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp

from tests.cli_check import orbit
from tests.e2e.conftest import HERE, Editor
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
        patch.setenv("JPY_SESSION_NAME", str(tmp_path / "saxpy.ipynb"))
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


# -- what cells ran, elsewhere ----------------------------------------------------------------------

TWICE = SAXPY.replace("{", "{int other;")


class Notebook:
    """A notebook that an editor has open, with a cell for each text."""

    def __init__(self, editor: Editor, path: Path, *texts: str) -> None:
        self.editor = editor
        self.uri = path.as_uri()
        self._texts = texts
        cells = [lsp.NotebookCell(lsp.NotebookCellKind.Code, self.cell(at)) for at in range(len(texts))]
        notebook = lsp.NotebookDocument(self.uri, "jupyter-notebook", 1, cells)
        editor.client.notebook_document_did_open(lsp.DidOpenNotebookDocumentParams(notebook, self.items()))

    def cell(self, number: int) -> str:
        """Its URI, as VS Code writes it."""
        return f"{self.uri.replace('file:', 'vscode-notebook-cell:')}#W{number}sZmlsZQ%3D%3D"

    def items(self) -> list[lsp.TextDocumentItem]:
        return [lsp.TextDocumentItem(self.cell(at), "python", 1, text) for at, text in enumerate(self._texts)]

    def look_at(self, number: int) -> None:
        """What the editor is asked from now on is about this cell."""
        self.editor.uri = self.cell(number)

    def change(self, **cells: Any) -> None:
        change = lsp.NotebookDocumentChangeEvent(cells=lsp.NotebookDocumentCellChanges(**cells))
        document = lsp.VersionedNotebookDocumentIdentifier(2, self.uri)
        self.editor.client.notebook_document_did_change(lsp.DidChangeNotebookDocumentParams(document, change))

    def edit(self, number: int, text: str) -> None:
        document = lsp.VersionedTextDocumentIdentifier(2, self.cell(number))
        whole = lsp.TextDocumentContentChangeWholeDocument(text)
        self.change(text_content=[lsp.NotebookDocumentCellContentChanges(document, [whole])])

    def remove(self, number: int) -> None:
        gone = lsp.TextDocumentIdentifier(self.cell(number))
        array = lsp.NotebookCellArrayChange(number, 1)
        self.change(structure=lsp.NotebookDocumentCellChangeStructure(array, did_close=[gone]))


def runs(folder: Path, notebook: str) -> dict[str, list[str]]:
    """The actions that the history has of a notebook's kernels."""
    _, out, _ = orbit(folder, "history", notebook, "--json")
    return {each["kernel"]: [run["action"] for run in each["runs"]] for each in json.loads(out)["kernels"]}


def test_cells_are_in_the_history_of_their_notebook(kernel: Callable[..., Kernel]) -> None:
    own = kernel()
    folder = Path(own.run("import os; print(os.getcwd())"))
    assert runs(folder, "saxpy.ipynb") == {}
    own.run(f"%%cuda\n{SAXPY}")
    own.run(f"%%orbit profile\n{(PROFILES / 'memory_bound.cu').read_text()}")
    own.run("%%cuda --compile\n__global__ void compiled() {}")
    assert runs(folder, "saxpy.ipynb") == {"saxpy": ["run", "profile"]}
    assert "288 µs" in orbit(folder, "history", "saxpy.ipynb")[1]
    assert orbit(folder, "history", "saxpy.ipynb", "--text", "1")[1] == f"%%cuda\n{SAXPY}"
    (folder / "vs code.ipynb").write_text("{}")
    own.run(f"__vsc_ipynb_file__ = {str(folder / 'vs code.ipynb')!r}")
    own.run(f"%%cuda\n{SAXPY}")
    assert runs(folder, "vs code.ipynb") == {"saxpy": ["run"]}


async def test_a_cell_in_an_editor_shows_what_its_notebook_ran(
    shared: Kernel, start: Callable[..., Any], recorded_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as it has run: nothing is clicked in the editor."""
    path = Path(shared.run("import os; print(os.environ['JPY_SESSION_NAME'])"))
    monkeypatch.setenv("XDG_STATE_HOME", str(path.parent / "XDG_STATE_HOME"))
    shared.run(f"%%cuda\n{SAXPY}")
    editor: Editor = await start("vscode", python=recorded_python)
    notebook = Notebook(editor, path, "x = 1", f"%%cuda\n{SAXPY}", "%%bash\n__global__ void no() {}")
    notebook.look_at(1)
    line = SAXPY.splitlines().index("__global__ void saxpy(int n, float a, const float* x, float* y) {") + 1
    answer = [(line, "✓ 288 µs ±0.2%")]
    await editor.asked_until(editor.titles, lambda titles: titles == answer)
    assert any("288 µs" in text or "reg" in text or "≤100%" in text for _, text in await editor.hints())
    assert "NVIDIA H100 80GB HBM3" in await editor.hover(line, 18)
    offered = {action.command for action in await editor.actions(line)}
    assert offered == {"orbit.openReport", "orbit.history"}
    notebook.edit(1, f"%%cuda\n{TWICE}")
    await editor.asked_until(editor.titles, lambda titles: "edited since" in titles[0][1])
    shared.run(f"%%cuda\n{TWICE}")
    await editor.asked_until(editor.titles, lambda titles: titles == answer)
    for number in (0, 2):
        notebook.look_at(number)
        assert await editor.titles() == []
    await editor.command("orbit.run", {"uri": notebook.cell(1), "kernel": "saxpy"})
    assert "is run by its cell" in editor.messages()[-1]
    notebook.remove(1)
    notebook.look_at(1)
    assert await editor.titles() == []


async def test_a_cell_of_cuda_without_a_launch_spec_offers_one(
    start: Callable[..., Any], recorded_python: str, tmp_path: Path
) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    cell = "%%cuda\n__global__ void fill(int n, float* x) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) x[i] = 1;\n}\n"
    notebook = Notebook(
        editor, tmp_path / "fill.ipynb", cell, cell.replace("__global__", "// orbit: lunch fill\n__global__")
    )
    notebook.look_at(0)
    assert await editor.titles() == [(1, "✎ Draft a launch spec: this file has no main")]
    notebook.look_at(1)
    await editor.until(lambda: any("lunch" in text for *_, text in editor.diagnostics()))
