"""Texts whose name does not say their language: never saved, without a suffix, or a notebook as one text of Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Editor
from tests.e2e.test_notebook_cells import PROFILES, kernel, shared
from tests.e2e.test_spec_runs import KERNEL, SPEC
from tests.test_notebook import Kernel

__all__ = ["kernel", "shared"]
CUDA = SPEC + KERNEL
TRITON = """\
import triton
import triton.language as tl


@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)
"""


@pytest.mark.parametrize(
    ("uri", "language", "text", "saved"),
    [
        ("untitled:Untitled-1", "cuda-cpp", CUDA, "Untitled-1 can be compiled and run once it is saved in a file whose name ends in .cu"),
        ("untitled:Untitled-1", "python", TRITON, "Untitled-1 can be compiled and run once it is saved in a file whose name ends in .py"),
        ("file:///nowhere/saxpy", "cuda", CUDA, "saxpy can be compiled and run once it is saved in a file whose name ends in .cu"),
        ("file://", "cuda", CUDA, "this text can be compiled and run once it is saved in a file whose name ends in .cu"),
    ],
)  # fmt: skip
async def test_the_language_id_decides(
    start: Callable[..., Any], recorded_python: str, uri: str, language: str, text: str, saved: str
) -> None:
    """There are lenses as for a file, and the commands that need a file ask for one."""
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open_text(uri, language, text)
    name, line = ("saxpy", 5) if text == CUDA else ("double", 5)
    lens = (
        "▶ Run on H100 80GB HBM3"
        if text == CUDA
        else "✎ Draft a launch spec: no main, benchmark or test here"
    )
    await editor.asked_until(editor.titles, lambda titles: titles and titles[0] == (line, lens))
    for command in ("run", "profile", "checkMemory", "compile", "disassemble", "live"):
        before = len(editor.messages())
        assert await editor.command(f"orbit.{command}", {"uri": uri, "kernel": name}) is None
        await editor.until(lambda before=before: len(editor.messages()) > before)
        assert editor.messages()[-1] == f"orbit: {saved}"
    assert editor.ended() == []


async def test_a_mistake_in_a_launch_spec_is_at_its_column(start: Callable[..., Any]) -> None:
    editor: Editor = await start("vscode")
    editor.open_text("untitled:Untitled-1", "cuda-cpp", "// orbit: lunch saxpy\n" + KERNEL)
    found = await editor.until(editor.diagnostics)
    assert [(line, column) for _, line, column, _, text in found if "lunch" in text] == [(0, 10)]
    editor.edit(0, 10, 15, "n = 1; launch")
    await editor.until(lambda: not any("lunch" in text for *_, text in editor.diagnostics()))


@pytest.mark.parametrize(
    ("uri", "language"),
    [("untitled:notes", "markdown"), ("file:///n.ipynb", "json"), ("file:///k.txt", "plaintext"), ("file:///k.h", "cuda"), ("file:///empty.hpp", "cuda")],
)  # fmt: skip
async def test_other_texts_are_left_alone(start: Callable[..., Any], uri: str, language: str) -> None:
    editor: Editor = await start("vscode")
    editor.open_text(uri, language, {"k.h": "int x;", "empty.hpp": ""}.get(uri[8:], CUDA))
    assert await editor.titles() == []


async def test_a_notebook_as_one_text_shows_what_its_cells_ran(
    shared: Kernel, start: Callable[..., Any], recorded_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As jupyterlab-lsp sends it: the Python cells after each other, under a folder that is not there."""
    softmax = (PROFILES / "softmax.py").read_text()
    path = Path(shared.run("import os; print(os.environ['JPY_SESSION_NAME'])"))
    monkeypatch.setenv("XDG_STATE_HOME", str(path.parent / "XDG_STATE_HOME"))
    shared.run(f"%%orbit profile\n{softmax}")
    editor: Editor = await start("emacs", python=recorded_python)
    virtual = path.parent / ".virtual_documents" / path.name
    editor.open_text(virtual.as_uri(), "python", f"x = 1\n\n\n{softmax}")
    line = next(at for at, text in enumerate(softmax.splitlines()) if "def softmax" in text) + 3
    answer = await editor.asked_until(
        editor.titles, lambda titles: any("41.1 µs" in text for _, text in titles)
    )
    assert [(at, "edited since" in text) for at, text in answer] == [(line, False)]
    await editor.until(lambda: any("41.1 µs" in text for *_, text in editor.diagnostics()))
    editor.edit(0, 4, 5, "2")  # another cell is none of its kernel's business
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "softmax"})
    assert "is run by its cell" in editor.messages()[-1]
    assert await editor.titles() == answer
    editor.edit(line + 1, 0, 0, "    pid = 0\n")
    await editor.asked_until(editor.titles, lambda titles: titles and "edited since" in titles[0][1])
