"""From a lens to a GPU on Modal and back to the kernel's line, in a whole server over stdio."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Editor
from tests.e2e.test_run import MEASURED, SOURCE
from tests.first_cases import first_of
from tests.modal.conftest import click_run, gpus
from tests.modal_loopback.loopback import Loopback


def timeless(text: str) -> str:
    """What is rented takes as long as it takes: clock times, seconds and dollars as `#`."""
    return re.sub(r"\d\d:\d\d(:\d\d)?|\$[\d.,]+|[\d.]+ s\b", "#", text)


RAN = "288 µs · # of H100, # at rates of 2026-09-20"


@pytest.mark.parametrize("name", first_of(["vscode", "neovim-0.12", "helix"]))
async def test_a_click_rents_a_gpu_and_puts_the_time_on_the_line(h100s: Loopback, start, name: str) -> None:
    editor: Editor = await start(name, runner="modal", compile_on_save=False)
    editor.open("saxpy.cu", SOURCE)
    titles = await editor.asked_until(editor.titles, lambda titles: (0, "▶ Run on H100") in titles)
    assert [title for title in titles if "▶" in title[1]] == [(0, "▶ Run on H100"), (3, "▶ Run on H100")]
    await click_run(editor)
    assert [timeless(item) for item in await editor.until(editor.ended)] == [RAN]
    assert await editor.hints() == [(0, MEASURED)]
    hover = await editor.hover(0, 18)
    assert "NVIDIA H100 80GB HBM3" in hover
    assert "cost of waiting" in hover
    (title,) = [title for _, title in await editor.titles() if "Modal GPU" in title]
    assert timeless(title) == ("Modal GPU: H100, warm until #, # if it idles, rates of 2026-09-20 (change)")
    (rented,) = await editor.command("orbit.sessions")
    assert (rented["gpu"], rented["runs"], rented["price"]["rates"]) == ("H100", 1, "rates of 2026-09-20")
    assert timeless(editor.messages()[-1]) == (
        "H100: warm until #, 1 run, # of work; # so far, # more if it idles to its end, at rates of 2026-09-20"
    )


@pytest.mark.slow
async def test_cancel_by_the_lens_frees_the_gpu_for_the_next_run(h100s: Loopback, start) -> None:
    h100s.forget_kept()
    editor: Editor = await start("vscode", runner="modal", compile_on_save=False)
    editor.open("saxpy.cu", SOURCE + "// SLOW\n")
    await click_run(editor)
    await editor.until(
        lambda: any("running" in str(step.message) for bar in editor.progress() for step in bar)
    )
    messages = [str(step.message) for bar in editor.progress() for step in bar]
    assert any("building the image on Modal, once" in name for name in messages)
    (lens,) = [lens.command for lens in await editor.lenses() if "(cancel)" in lens.command.title]
    await editor.command(lens.command, *lens.arguments)
    assert await editor.until(editor.ended) == ["cancelled"]
    assert gpus(h100s) == ["H100!"]


@pytest.mark.slow
async def test_release_ends_the_container_and_the_next_click_gets_another(h100s: Loopback, start) -> None:
    editor: Editor = await start("vscode", runner="modal", compile_on_save=False)
    editor.open("saxpy.cu", SOURCE)
    await click_run(editor)
    await editor.until(editor.ended)
    await editor.command("orbit.release")
    await editor.until(lambda: "orbit: released H100" in editor.messages())
    h100s.until(lambda world: not [container for container in world.alive() if container.function.gpu])
    assert (await editor.titles())[1:3] == [(0, "⏱ 288 µs ±0.2%"), (0, "▶ Run on H100")]
    editor.edit(1, 2, 3, "z")
    await click_run(editor)
    await editor.until(lambda: len(editor.ended()) == 2)
    assert gpus(h100s) == ["H100!"]
    messages = [str(step.message) for step in editor.progress()[1]]
    assert not any("building the image" in name for name in messages)


@pytest.fixture
def nothing_rented(h100s: Loopback) -> Iterator[None]:
    """Holds once the server, which is started after this, has been shut down."""
    yield
    h100s.until(lambda world: not world.alive())


@pytest.mark.slow
async def test_a_clean_exit_leaves_nothing_rented(h100s: Loopback, nothing_rented, start) -> None:
    editor: Editor = await start("vscode", runner="modal", compile_on_save=False)
    editor.open("saxpy.cu", SOURCE)
    await click_run(editor)
    await editor.until(editor.ended)
    assert gpus(h100s) == ["H100!"]


async def test_a_machine_without_gpu_uses_modal_where_there_is_a_token(h100s: Loopback, start) -> None:
    editor: Editor = await start("vscode", compile_on_save=False)
    editor.open("saxpy.cu", SOURCE)
    await click_run(editor)
    assert [timeless(item) for item in await editor.until(editor.ended)] == [RAN]
