"""A laptop without a CUDA compiler: the setting `modal.compile` has a container without a GPU compile."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from orbit_remote.common import messages as c
from tests.e2e.conftest import Editor
from tests.e2e.test_compile import KERNEL
from tests.first_cases import first_of
from tests.modal.conftest import Author, script
from tests.modal_loopback.loopback import Loopback

WITHOUT = Path(__file__).with_name("worker_without_nvcc.py")
WRONG = KERNEL.replace("2", "wrong")


@pytest.fixture
def laptop(start, tmp_path: Path) -> Any:
    python = script(tmp_path / "python-without-nvcc", f'exec "{sys.executable}" "{WITHOUT}" "$@"')

    async def begin(name: str, *, asked: bool = True) -> Editor:
        return await start(name, runner="modal", python=str(python), modal={"compile": asked})

    return begin


def spawned(loopback: Loopback) -> int:
    return loopback.world.calls_of["FunctionMap"]


def mistakes(editor: Editor) -> list[tuple[int, str]]:
    return [(line, text) for source, line, _, _, text in editor.diagnostics() if source == "nvcc"]


@pytest.mark.parametrize("name", first_of(["vscode", "helix"]))
async def test_opening_and_saving_give_diagnostics_and_static_hints(modal, laptop, name: str) -> None:
    editor: Editor = await laptop(name)
    editor.open("k.cu", WRONG)
    await editor.until(lambda: mistakes(editor))
    assert mistakes(editor) == [(0, 'identifier "wrong" is undefined')]
    editor.edit(0, 52, 57, "3")
    editor.save(KERNEL.replace("2", "3"))
    await editor.until(lambda: not mistakes(editor))
    ((line, label),) = await editor.asked_until(editor.hints, bool)
    assert line == 0
    assert label.partition(" · ")[0] == "occ 100% from 64 threads"
    assert {container.function.gpu for container in modal.world.containers.values()} == {""}
    assert len(modal.world.but_for("hello")) == 1


async def test_not_unless_it_is_asked_for(modal, laptop) -> None:
    editor: Editor = await laptop("vscode", asked=False)
    editor.open("k.cu", WRONG)
    (answer,) = await editor.until(editor.messages)
    assert "no CUDA compiler (nvcc) was found" in answer
    editor.save(WRONG)
    assert await editor.titles()
    assert not modal.world.calls_of


@pytest.mark.slow
async def test_typing_asks_nothing_and_of_many_saves_the_last_is_answered(modal, laptop) -> None:
    editor: Editor = await laptop("vscode")
    editor.open("k.cu", WRONG)
    await editor.until(lambda: mistakes(editor))
    before = spawned(modal)
    text = "wrong"
    for number in range(30):  # as fast as the server reads
        editor.edit(0, 52, 52 + len(text), text := f"wrong_{number}")
    assert await editor.titles()
    assert spawned(modal) == before
    saved: list[bool] = []
    modal.slow("FunctionMap", lambda _: saved)
    for number in range(30, 50):
        editor.edit(0, 52, 52 + len(text), text := f"wrong_{number}")
        editor.save(KERNEL.replace("2", text))
        if number == 30:
            await asyncio.to_thread(modal.until_slow, "FunctionMap")
    assert await editor.titles()  # the server has read every save
    saved.append(True)
    await editor.until(lambda: mistakes(editor) == [(0, 'identifier "wrong_49" is undefined')])
    assert spawned(modal) - before == 2  # the first, which was cancelled, and the last
    assert len(modal.world.but_for("hello")) <= 2  # the last does not wait for the end of the first


@pytest.mark.slow
async def test_offline_is_said_once_and_over_when_it_is_over(modal, laptop) -> None:
    modal.refuse_connections()
    editor: Editor = await laptop("vscode")
    editor.open("k.cu", WRONG)
    await editor.until(editor.messages)
    editor.save(WRONG)
    await editor.until(lambda: len(editor.ended(compilations=True)) == 2)
    modal.accept_connections()
    editor.save(WRONG)
    await editor.until(lambda: mistakes(editor))
    assert editor.messages() == [
        "Modal did not answer within 5 s. check this machine's network connection, and status.modal.com"
    ]


@pytest.mark.slow
async def test_a_connection_that_was_lost_is_noticed_before_work_is_sent(
    modal, author, monkeypatch: pytest.MonkeyPatch
) -> None:
    item: Author = author()
    assert (await item.finished(item.job("compile"))).outcome == "ok"
    modal.refuse_connections()
    with monkeypatch.context() as impatient:
        impatient.setattr("orbit_lsp.runners.modal.deploy.CONTACT_S", 0.3)  # 5 s
        finished = await item.finished(item.job("compile"))
    assert isinstance(finished.failure, c.Failure)
    assert finished.failure.message == "Modal did not answer within 0.3 s"
    modal.accept_connections()
    assert (await item.finished(item.job("compile"))).outcome == "ok"
