"""What a client asks for that cannot be done is answered with a sentence, and nothing is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from tests.e2e import conftest
from tests.e2e.conftest import Editor
from tests.e2e.test_spec_runs import KERNEL, SPEC

OBJECT = "takes one JSON object, as {uri, kernel}, or no argument"


@pytest.mark.parametrize(
    ("command", "arguments", "answer"),
    [
        ("run", ["x", 3], f"orbit.run {OBJECT}"),
        ("run", ["saxpy"], f"orbit.run {OBJECT}"),
        ("run", [{}, {}], f"orbit.run {OBJECT}"),
        ("compile", [["x"]], f"orbit.compile {OBJECT}"),
        ("run", [{"uri": "URI", "kernel": 3}], "orbit.run takes a text as `kernel`"),
        ("run", [{"kernel": "saxpy"}], "orbit.run takes the `uri` of its file with a `kernel`"),
        ("run", [{"uri": "file:///other.cu"}], "which kernel? Put the cursor on one, hover or open its code actions, then try again"),
        ("run", [{"uri": "URI", "kernel": "nobody"}], "nobody is no longer in saxpy.cu"),
        ("run", [{"uri": "URI", "kernel": "saxpy", "through": "x.py"}], "x.py is not known to launch saxpy"),
        ("runOnAll", [{"uri": "URI", "kernel": "saxpy", "gpus": "H100"}], "orbit.runOnAll takes a list of texts as `gpus`"),
        ("keepWarm", [{"gpu": "H100", "keep": "yes"}], "orbit.keepWarm takes true or false as `keep`"),
        ("disassemble", [{"uri": "URI", "kernel": "saxpy", "kind": "x86"}], "what the compiler made is ttir, ttgir, llir, ptx, sass; there is no 'x86'"),
        ("openReport", [{"uri": "URI", "kernel": "saxpy"}], "there is no run of saxpy to report on; run it first"),
        ("compareWith", [{"uri": "URI", "kernel": "saxpy", "with": "moon"}], "cannot compare with 'moon'"),
    ],
)  # fmt: skip
async def test_a_command(
    start: Callable[..., Any], recorded_python: str, command: str, arguments: list[Any], answer: str
) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("saxpy.cu", SPEC + KERNEL)
    await editor.hover(5, 18)  # the kernel that was looked at, which is not to run
    for each in arguments:
        if isinstance(each, dict) and each.get("uri") == "URI":
            each["uri"] = editor.uri
    assert await editor.command(f"orbit.{command}", *arguments) is None
    await editor.until(lambda: any(answer in text for text in editor.messages()))
    assert editor.tokens() == []


async def test_a_draft_in_an_editor_that_takes_no_edits(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = conftest.capabilities("vscode")
    assert offered.workspace
    without = attrs.evolve(offered, workspace=attrs.evolve(offered.workspace, apply_edit=None))
    monkeypatch.setattr(conftest, "capabilities", lambda name: without)
    editor: Editor = await start("vscode")
    editor.open("saxpy.cu", KERNEL)
    await editor.command("orbit.draft", {"uri": editor.uri, "kernel": "saxpy"})
    await editor.until(
        lambda: any("does not support edits from a server" in text for text in editor.messages())
    )
