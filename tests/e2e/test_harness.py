"""A KernelBench file from its lens to its line, and a kernel without a spec to a draft of one.

The GPU side is recorded (recorded_worker.py): these machines have none.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lsprotocol import types as lsp

from tests.e2e.conftest import Editor
from tests.e2e.test_run import named_gpu
from tests.e2e.test_spec_runs import KERNEL, orbit
from tests.test_harness_view import KERNELBENCH


async def test_a_click_on_check_puts_the_speedup_on_the_line(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("model.py", KERNELBENCH)
    assert await named_gpu(editor) == [(5, "✓ Test on H100 80GB HBM3")]
    await editor.click()
    await editor.until(editor.ended)
    assert await editor.hints() == [(5, "✓ 1.42x · 3.10 ms vs 4.41 ms")]
    assert [bar[0].title for bar in editor.progress()] == ["Test ModelNew"]
    assert "1.42x, 1.41x to 1.43x at 99 %" in await editor.hover(5, 8)


async def test_check_without_a_contract_says_so(start, recorded_python) -> None:
    editor: Editor = await start("helix", python=recorded_python)
    editor.open("saxpy.cu", KERNEL)
    assert await editor.command("orbit.test") is None
    await editor.until(lambda: any("neither a class ModelNew" in text for text in editor.messages()))


def test_a_contract_on_the_command_line(tmp_path: Path, recorded_python: str) -> None:
    (tmp_path / "model.py").write_text(KERNELBENCH)
    code, out, message = orbit(tmp_path, recorded_python, "run", "model.py")
    assert code == 0
    assert out.startswith("ModelNew: ✓ 1.42x · 3.10 ms vs 4.41 ms\n")
    assert message.endswith("ok: ModelNew 3.10 ms, Model 4.41 ms, 1 check passed\n")


@pytest.mark.parametrize("takes", [True, False])
async def test_the_lens_of_a_kernel_that_nothing_runs_drafts_a_spec(
    start, recorded_python, takes: bool
) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    edits: list[lsp.ApplyWorkspaceEditParams] = []

    @editor.client.feature(lsp.WORKSPACE_APPLY_EDIT)
    def apply(params: lsp.ApplyWorkspaceEditParams) -> lsp.ApplyWorkspaceEditResult:
        edits.append(params)
        return lsp.ApplyWorkspaceEditResult(takes, None if takes else "the file is read-only")

    editor.open("saxpy.cu", KERNEL)
    assert await editor.titles() == [(0, "✎ Draft a launch spec: this file has no main")]
    await editor.click()
    await editor.until(lambda: edits)
    assert "// orbit: launch saxpy<<<" in str(edits[0].edit)
    if not takes:
        await editor.until(lambda: any("the file is read-only" in text for text in editor.messages()))
