"""Results over restarts, regressions on the lens, in a whole server. The GPU side is recorded (recorded_worker.py):
these machines have none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orbit_lsp.history.history_store import Store
from tests.e2e.conftest import Editor
from tests.e2e.test_run import named_gpu
from tests.e2e.test_spec_runs import KERNEL, MEASURED, SPEC, STALE

SAXPY = SPEC + KERNEL
FASTER = SAXPY.replace("{", "{/*FAST*/ int fast;")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "orbit-lsp" / "history.sqlite"


async def opened(start, python: str, text: str = SAXPY, name: str = "vscode", **settings: object) -> Editor:
    editor: Editor = await start(name, python=python, compile_on_save=False, **settings)
    editor.open("saxpy.cu", text)
    await named_gpu(editor)
    return editor


async def click(editor: Editor) -> None:
    count = len(editor.ended())
    await editor.click()
    await editor.until(lambda: len(editor.ended()) == count + 1)


def damage(state: Path) -> None:
    state.parent.mkdir(parents=True)
    state.write_text("not a database" * 100)


async def shown(editor: Editor, hint: str) -> None:
    """Wait until the hint is there: the history is read beside the loop."""
    await editor.asked_until(editor.hints, lambda hints: [text for _, text in hints] == [hint])


async def titled(editor: Editor, title: str) -> None:
    """Wait until the first lens is this one."""
    await editor.asked_until(editor.titles, lambda titles: titles[0] == (5, title))


@pytest.mark.parametrize("name", ["vscode", "neovim-0.11", "helix"])
async def test_after_a_restart_the_result_is_back_and_belongs_to_its_text(
    start, recorded_python, name: str
) -> None:
    editor = await opened(start, recorded_python, name=name)
    await click(editor)
    await editor.close()
    editor = await opened(start, recorded_python, name=name)
    mark = "✓" if name == "helix" else "⏱"  # the others have it on the lens
    await shown(editor, MEASURED.replace("⏱", mark))
    assert (await editor.titles())[0] == (5, "✓ 288 µs ±0.2%")
    assert "NVIDIA H100 80GB HBM3" in await editor.hover(5, 18)
    editor.edit(5, 65, 65, "int edited;")
    assert (await editor.hints())[0] == (4 if name == "helix" else 5, STALE.replace("⏱", mark))
    await editor.close()
    editor = await opened(start, recorded_python, SAXPY.replace("{", "{int other;"), name=name)
    await shown(editor, STALE.replace("⏱", mark))


async def test_the_result_of_the_text_as_it_is_comes_before_a_later_one(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    await click(editor)
    editor.edit(5, 65, 65, "/*FAST*/ int fast;")
    await click(editor)
    await editor.close()
    editor = await opened(start, recorded_python)
    await shown(editor, MEASURED)


async def test_a_version_slower_than_one_before_says_so_on_its_lens(start, recorded_python) -> None:
    editor = await opened(start, recorded_python, FASTER)
    await click(editor)
    slower = "✓ 288 µs ±0.2% · +7.5% since 1 edit"
    editor.edit(5, 65, 83, "")
    await click(editor)
    await titled(editor, slower)
    editor.edit(5, 65, 65, "int a;")
    assert (await editor.titles())[0] == (5, "✓ 288 µs ±0.2% · edited since")
    await click(editor)
    await titled(editor, slower.replace("1 edit", "2 edits"))
    await editor.close()
    editor = await opened(start, recorded_python, SAXPY.replace("{", "{int a;"))
    await titled(editor, slower.replace("1 edit", "2 edits"))


async def test_noise_is_no_regression(start, recorded_python) -> None:
    editor = await opened(start, recorded_python, SAXPY.replace("{", "{/*NOISE*/ int noise;"))
    await click(editor)
    editor.edit(5, 65, 85, "")
    await click(editor)
    await editor.close()
    editor = await opened(start, recorded_python)
    await shown(editor, MEASURED)
    assert (await editor.titles())[0] == (5, "✓ 288 µs ±0.2%")


async def test_a_damaged_history_is_said_and_the_next_run_is_kept(
    start, recorded_python, state: Path
) -> None:
    damage(state)
    editor = await opened(start, recorded_python)
    said = await editor.until(lambda: [one for one in editor.messages() if "damaged" in one])
    assert "it is now" in said[0]
    await click(editor)
    await editor.close()
    assert len(Store(lambda: state).entries(str(editor.folder / "saxpy.cu"))) == 1


async def test_nothing_is_kept_where_the_settings_say_so(start, recorded_python, state: Path) -> None:
    editor = await opened(start, recorded_python, history={"keep": False})
    await click(editor)
    await editor.close()
    assert Store(lambda: state).kernels(str(editor.folder / "saxpy.cu")) == []
