"""*Capture* in an editor: a driver's launch becomes the launch spec above its kernel, or a sentence. The GPU side is recorded."""

from __future__ import annotations

from typing import Any

import pytest
from lsprotocol import types as lsp

from orbit_remote.spec import stored_tensors
from tests.e2e.conftest import Editor
from tests.e2e.test_driver_lenses import FIRST, KERNELS, SOFTMAX, TESTS, action, opened, runs

SPEC = f"""# captured: launch 3 of 9 of {FIRST}; x is random of the same scale (control flow not checked)
# orbit: x = randn(8)
# orbit: launch softmax_kernel[(1,)](x)
# orbit: expect x == load("softmax.orbit.safetensors", "softmax_kernel.x") as captured
"""


def edits(editor: Editor) -> list[lsp.TextEdit]:
    """What the server asks to be written, from now on."""
    asked: list[lsp.TextEdit] = []

    @editor.client.feature(lsp.WORKSPACE_APPLY_EDIT)
    def _(params: lsp.ApplyWorkspaceEditParams) -> lsp.ApplyWorkspaceEditResult:
        for change in params.edit.document_changes or ():
            assert isinstance(change, lsp.TextDocumentEdit)
            asked.extend(each for each in change.edits if isinstance(each, lsp.TextEdit))
        return lsp.ApplyWorkspaceEditResult(applied=True)

    return asked


async def test_a_launch_is_written_above_its_kernel_once_it_has_replayed(
    start: Any, recorded_python: str
) -> None:
    editor = await opened(start, recorded_python)
    await runs(editor)
    written = edits(editor)
    assert await action(editor, "Capture") == "Capture a launch spec from test_softmax (softmax_kernel)"
    (edit,) = await editor.until(lambda: written)
    line = lsp.Position(SOFTMAX - 1, 0)
    assert (edit.range.start, edit.range.end, edit.new_text) == (line, line, SPEC)
    stored = editor.folder / "pkg" / "softmax.orbit.safetensors"
    assert stored_tensors.of_bytes(stored.read_bytes()).tensor("softmax_kernel.x").data == b"\7"
    assert KERNELS.splitlines()[SOFTMAX - 1] == "@triton.jit"


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ("# GRAPH\n", "softmax_kernel was not captured: it is launched inside a CUDA graph"),
        ("# UNLIKE\n", "does not replay what was captured: y[7] is 0.5 and not 2.5"),
        ("# NEVER\n", f"softmax_kernel was not launched by {FIRST}, so there is nothing to capture"),
    ],
)
async def test_what_does_not_replay_is_not_written(
    start: Any, recorded_python: str, tests: str, why: str
) -> None:
    editor = await opened(start, recorded_python, TESTS + tests)
    await runs(editor)
    written = edits(editor)
    await action(editor, "Capture")
    await editor.until(lambda: any(why in message for message in editor.messages()))
    assert not written
    assert not list((editor.folder / "pkg").glob("*.safetensors"))
