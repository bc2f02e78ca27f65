"""Lens, Modal, hint, cancel: the whole way in every editor whose capabilities were recorded, and in two at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import EDITORS, Editor
from tests.e2e.test_run import MEASURED, SOURCE
from tests.first_cases import first_of
from tests.modal.conftest import gpus
from tests.modal_loopback.loopback import Loopback

WITHOUT_LENSES = ("helix", "emacs")
NUMBER = "288 µs"


async def use(editor: Editor, words: str) -> None:
    """Send the command with these words on the kernel's line: a lens, or a code action where there are none."""

    async def offered() -> list[Any]:
        if editor.name in WITHOUT_LENSES:
            commands = await editor.actions(0)
        else:
            commands = [lens.command for lens in await editor.lenses()]
        return [command for command in commands if words in command.title]

    chosen, *_ = await editor.asked_until(offered, bool)
    await editor.command(chosen.command, *(chosen.arguments or []))


def said(editor: Editor) -> str:
    return "\n".join(str(step.message) for bar in editor.progress() for step in bar)


@pytest.mark.slow
@pytest.mark.parametrize("name", first_of(EDITORS))
async def test_lens_modal_hint_cancel(h100s: Loopback, start, name: str) -> None:
    editor: Editor = await start(name, runner="modal", compile_on_save=False)
    editor.open("saxpy.cu", SOURCE)
    await use(editor, "▶ Run on H100")
    (first,) = await editor.until(editor.ended)
    assert first.startswith(NUMBER)
    # nor can their hints be refreshed: until hints are asked for, a diagnostic stands for them
    if name in WITHOUT_LENSES:
        assert [results[-1] for results in await editor.until(editor.diagnostics)] == [MEASURED]
    assert await editor.hints() == [(0, MEASURED)]

    editor.edit(5, 0, 0, "// SLOW\n")
    await use(editor, "▶ Run on H100")
    await editor.until(lambda: "running" in said(editor).partition(first)[2])
    await use(editor, "cancel")
    assert await editor.until(lambda: editor.ended()[1:]) == ["cancelled"]
    assert gpus(h100s) == ["H100!"]  # one container, still warm
    assert "waiting for" not in said(editor).partition(first)[2]


@pytest.mark.slow
async def test_two_editors_on_one_workspace_do_not_hear_each_other(h100s: Loopback, start) -> None:
    h100s.forget_kept()
    mine: Editor = await start("vscode", runner="modal", compile_on_save=False)
    other: Editor = await start("neovim-0.12", runner="modal", compile_on_save=False)
    mine.open("saxpy.cu", SOURCE)
    other.open("saxpy.cu", SOURCE + "// SLOW\n")
    await use(mine, "▶ Run on H100")
    await use(other, "▶ Run on H100")
    assert (await mine.until(mine.ended))[0].startswith(NUMBER)
    await other.until(lambda: "running" in said(other))
    assert other.ended() == []
    await use(mine, "▶ Run on H100")  # beside the other's, or after it: they share an account and an app
    assert (await mine.until(lambda: mine.ended()[1:]))[0].startswith(NUMBER)
    assert other.ended() == []
    await use(other, "cancel")
    assert await other.until(other.ended) == ["cancelled"]
    assert mine.messages() == other.messages() == []
