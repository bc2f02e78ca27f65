"""One run of code that is somebody else's: a code action beside the lens, in a whole server over stdio."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Editor
from tests.e2e.test_run import SOURCE
from tests.modal.conftest import click_run
from tests.modal_loopback.loopback import Loopback

APART = "▶ Run on H100, restricted: the code is not mine"


@pytest.mark.parametrize("runner", ["modal", pytest.param("auto", marks=pytest.mark.slow)])
async def test_it_gets_a_container_for_it_alone(h100s: Loopback, start, runner: str) -> None:
    editor: Editor = await start("helix", runner=runner, compile_on_save=False)
    editor.open("saxpy.cu", SOURCE)
    assert [title for _, title in await editor.titles()].count(APART) == 0  # the lens stays as short as it is
    (command,) = [action for action in await editor.actions(0) if action.title == APART]
    await editor.command(command.command, *(command.arguments or []))
    await editor.until(lambda: any("288 µs" in item for item in editor.ended()))
    (used,) = [container for container in h100s.world.containers.values() if container.function.gpu]
    made = used.definition
    assert (made.untrusted, made.block_network, made.single_use_containers) == (True, True, True)
    assert used.function.gpu == "H100!"
    h100s.until(lambda world: not world.alive())
    assert [hint for _, hint in await editor.hints() if "288 µs" in hint]
    assert await editor.command("orbit.sessions") == []  # nothing is warm


@pytest.mark.slow
async def test_the_next_plain_run_has_its_own_container(h100s: Loopback, start) -> None:
    editor: Editor = await start("vscode", runner="modal", compile_on_save=False)
    editor.open("saxpy.cu", SOURCE)
    await click_run(editor)
    await editor.until(lambda: len(editor.ended()) == 1)
    (command,) = [action for action in await editor.actions(0) if action.title == APART]
    await editor.command(command.command, *(command.arguments or []))
    await editor.until(lambda: len(editor.ended()) == 2)
    kinds = [
        container.definition.untrusted
        for container in h100s.world.containers.values()
        if container.function.gpu
    ]
    assert kinds == [False, True]


async def test_always_apart_needs_no_second_action(h100s: Loopback, start) -> None:
    editor: Editor = await start("vscode", runner="modal", compile_on_save=False, modal={"restricted": True})
    editor.open("saxpy.cu", SOURCE)
    assert APART not in [action.title for action in await editor.actions(0)]


@pytest.mark.slow
async def test_without_modal_nothing_is_kept_apart_and_that_is_said(start) -> None:
    editor: Editor = await start("vscode", runner="local", compile_on_save=False)
    editor.open("saxpy.cu", SOURCE)
    actions = await editor.actions(0)
    assert "orbit.runRestricted" not in [action.command for action in actions]
    assert await editor.command("orbit.runRestricted", *(actions[0].arguments or [])) is None
    (answer,) = await editor.until(editor.messages)
    assert "runs only on Modal" in answer
