"""Writing a launch spec in an editor: faults at their column, completion, hover, drafts that are applied."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from orbit_lsp.state.documents import from_client, to_client
from tests.e2e.conftest import EDITORS, Editor

# é has 1 unit in utf-16 and 2 in utf-8, the rocket 2 and 4
LINES = """\
// orbit: s = "é🚀"; n = 1 << 20; x = randn(m); y = randn(n)
// orbit: launch saxpy<<<n / 256, 256>>>(n, 2.0f, x, y)
__global__ void saxpy(int n, float a, const float* x, float* y) {}
"""


def units(editor: Editor, text: str, column: int) -> int:
    """In what the client counts columns."""
    return to_client(text, column, editor.encoding)


def specs(editor: Editor) -> list[tuple[int, int, int, str]]:
    return [
        diagnostic[1:]
        for diagnostic in editor.diagnostics()
        if diagnostic[0] == "orbit" and not diagnostic[4].startswith("⏱")
    ]


@pytest.mark.parametrize("name", EDITORS)
async def test_a_fault_comes_while_typing_and_goes_when_it_is_mended(
    start, recorded_python, name: str
) -> None:
    editor: Editor = await start(name, python=recorded_python, compile_on_save=False)
    editor.open("saxpy.cu", LINES)
    first = LINES.splitlines()[0]
    column = units(editor, first, first.index("m)"))
    unused = units(editor, first, first.index("s ="))
    expected = [(0, unused, unused + 1, "'s' is used nowhere."), (0, column, column + 1, "'m' is not known here.")]  # fmt: skip
    assert await editor.until(lambda: specs(editor)) == expected
    editor.edit(0, column, column + 1, "n")
    await editor.until(lambda: len(specs(editor)) == 1)
    assert specs(editor) == expected[:1]
    end = units(editor, first, first.index("; n ="))
    start_of = units(editor, first, first.index("s ="))
    editor.edit(0, start_of, end + 2, "")
    await editor.until(lambda: not specs(editor))


async def test_positions_are_in_the_encoding_that_the_client_chose(start, recorded_python) -> None:
    for encoding, column in (("utf-8", 47), ("utf-16", 44), ("utf-32", 43)):
        editor: Editor = await start(
            "vscode", encoding=encoding, python=recorded_python, compile_on_save=False
        )
        editor.open("saxpy.cu", LINES)
        assert editor.encoding == encoding
        results = await editor.until(lambda e=editor: specs(e))
        assert [item[1] for item in results if "'m'" in item[3]] == [column]
        hover = await editor.hover(0, column + 4)  # y
        assert "float32 (1048576,), 4 MiB" in hover


async def test_closing_takes_the_faults_away(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python, compile_on_save=False)
    editor.open("saxpy.cu", LINES)
    await editor.until(lambda: specs(editor))
    editor.client.text_document_did_close(
        lsp.DidCloseTextDocumentParams(lsp.TextDocumentIdentifier(editor.uri))
    )
    await editor.until(lambda: not editor.diagnostics())


async def test_completion_and_hover_stay_within_specs(start, recorded_python) -> None:
    editor: Editor = await start("neovim-0.12", python=recorded_python, compile_on_save=False)
    editor.open("saxpy.cu", LINES)
    first, second = LINES.splitlines()[:2]
    at = units(editor, first, first.index("randn(m)") + 2)
    results = await editor.complete(0, at)
    randn = next(item for item in results if item.label == "randn")
    assert randn.detail == "randn(*size, dtype=None)"
    assert isinstance(randn.text_edit, lsp.TextEdit)
    assert (randn.text_edit.range.start.character, randn.text_edit.range.end.character) == (at - 2, at)
    assert [item.label for item in await editor.complete(1, second.index("launch ") + 7)] == ["saxpy"]
    assert await editor.complete(2, 12) == []
    assert "of a kernel" in await editor.hover(1, second.index("launch"))
    assert "is used" not in await editor.hover(2, 0)
    assert [action.command for action in await editor.actions(0)] == [
        action.command for action in await editor.actions(2)
    ]
    assert "orbit.run" in [action.command for action in await editor.actions(0)]


@pytest.mark.parametrize("name", EDITORS)
@pytest.mark.parametrize("language", ["cuda", "triton"])
async def test_a_draft_is_applied_and_has_no_fault(start, recorded_python, name: str, language: str) -> None:
    editor: Editor = await start(name, python=recorded_python, compile_on_save=False)
    kernel = (
        "/* é🚀 */\n\n__global__ void scale(int n, const float* x, float* y) { y[0] = x[0]; }\n"
        if language == "cuda"
        else 'import triton\nimport triton.language as tl\n"é🚀"\n@triton.jit\ndef scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):\n'
        "    at = tl.arange(0, BLOCK)\n    tl.store(y_ptr + at, tl.load(x_ptr + at))\n"
    )
    editor.open("k.cu" if language == "cuda" else "k.py", kernel)
    line = next(at for at, text in enumerate(kernel.splitlines()) if "scale" in text)
    (action,) = await editor.drafts(line)
    assert action.title == "Write a launch spec from the signature (scale)"
    assert action.edit
    text = applied(editor, action.edit, kernel)
    assert text.count("orbit: ") == 2
    assert await editor.drafts(line + 2) == []
    editor.edit(line - (language == "triton"), 0, 0, "")  # whatever is published next is of this text
    assert await editor.hover(0, 0) == ""
    assert specs(editor) == []
    launch = next(at for at, name in enumerate(text.splitlines()) if "orbit: launch" in name)
    column = text.splitlines()[launch].index("launch")
    assert "its arguments take 8 MiB in 2 tensors" in await editor.hover(launch, column)


def applied(editor: Editor, edit: lsp.WorkspaceEdit, text: str) -> str:
    """What an editor does with it: the edit of its own open file, with the version that it knows."""
    if edit.document_changes:
        (change,) = edit.document_changes
        assert isinstance(change, lsp.TextDocumentEdit)
        assert change.text_document.version == editor.version
        (item,) = change.edits
    else:
        assert edit.changes
        (item,) = edit.changes[editor.uri]
    assert isinstance(item, lsp.TextEdit)
    at = item.range.start
    editor.edit(at.line, at.character, at.character, item.new_text)
    lines = text.splitlines(keepends=True)
    column = from_client(lines[at.line], at.character, editor.encoding)
    lines[at.line] = lines[at.line][:column] + item.new_text + lines[at.line][column:]
    return "".join(lines)


async def test_a_click_on_a_faulty_spec_says_the_first_fault_and_runs_nothing(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python, compile_on_save=False)
    editor.open("saxpy.cu", LINES)
    await editor.until(lambda: specs(editor))
    await editor.click()
    messages = await editor.until(editor.messages)
    assert "'m' is not known here" in " ".join(messages)
    assert editor.ended() == []
    assert (await editor.titles())[0][1].startswith("✗ launch spec · ")
