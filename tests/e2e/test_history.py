"""A whole server keeps results over restarts, and shows a regression on the lens. recorded_worker.py stands in for the
GPU: it gives the answers of an H100.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lsprotocol import types as lsp

from orbit_lsp.history.history_store import HistoryStore
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
    assert (await editor.hints())[0] == (5, STALE.replace("⏱", mark))
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
    messages = await editor.until(lambda: [message for message in editor.messages() if "damaged" in message])
    assert "it is now" in messages[0]
    await click(editor)
    await editor.close()
    assert len(HistoryStore(lambda: state).entries(str(editor.folder / "saxpy.cu"))) == 1


async def test_nothing_is_kept_where_the_settings_say_so(start, recorded_python, state: Path) -> None:
    editor = await opened(start, recorded_python, history={"keep": False})
    await click(editor)
    await editor.close()
    assert HistoryStore(lambda: state).kernels(str(editor.folder / "saxpy.cu")) == []


# -- names follow files -----------------------------------------------------------------------------


def move(editor: Editor, name: str) -> str:
    """On the disk and in the editor, which says nothing of it; the file's old URI."""
    old, path = editor.uri, editor.folder / editor.uri.rpartition("/")[2]
    path.rename(editor.folder / name)
    close(editor)
    return old


def close(editor: Editor) -> None:
    about = lsp.TextDocumentIdentifier(editor.uri)
    editor.client.text_document_did_close(lsp.DidCloseTextDocumentParams(about))


def tell(editor: Editor, old: str, new: str) -> None:
    renamed = [lsp.FileRename(old, new)]
    editor.client.workspace_did_rename_files(lsp.RenameFilesParams(renamed))


async def versions_of(editor: Editor, name: str) -> list[int]:
    """How many runs are kept of each file, once all is written."""
    await editor.close()
    state = Path(os.environ["XDG_STATE_HOME"]) / "orbit-lsp" / "history.sqlite"
    return [
        len(HistoryStore(lambda: state).entries(str(editor.folder / file))) for file in ("saxpy.cu", name)
    ]


@pytest.mark.parametrize("said_first", [True, False], ids=["said, then opened", "opened, then said"])
async def test_a_renamed_file_keeps_its_numbers_and_history(start, recorded_python, said_first: bool) -> None:
    editor = await opened(start, recorded_python)
    await click(editor)
    old = move(editor, "y.cu")
    new = (editor.folder / "y.cu").as_uri()
    if said_first:
        tell(editor, old, new)
    editor.open("y.cu", SAXPY)
    if not said_first:
        tell(editor, old, new)
    await shown(editor, MEASURED)
    editor.edit(5, 65, 65, "/*FAST*/ int fast;")
    await click(editor)
    assert await versions_of(editor, "y.cu") == [0, 2]


async def test_a_failed_run_stays_with_its_file_in_a_renamed_folder(start, recorded_python) -> None:
    text = SAXPY + "// CRASH\n"
    editor = await opened(start, recorded_python, text)
    await click(editor)
    await editor.asked_until(editor.titles, lambda titles: titles[0][1].startswith("⚠ could not run"))
    before, after = editor.folder, editor.folder.with_name("elsewhere")
    close(editor)
    before.rename(after)
    editor.folder = after
    tell(editor, before.as_uri(), after.as_uri())
    editor.open("saxpy.cu", text)
    await editor.asked_until(editor.titles, lambda titles: titles[0][1].startswith("⚠ could not run"))


@pytest.mark.parametrize("restarted", [False, True], ids=["same server", "after a restart"])
async def test_a_moved_file_is_known_by_its_kernel_where_the_editor_says_nothing(
    start, recorded_python, restarted: bool
) -> None:
    editor = await opened(start, recorded_python, name="neovim-0.12")
    await click(editor)
    move(editor, "y.cu")
    if restarted:
        await editor.close()
        editor = await start("neovim-0.12", python=recorded_python, compile_on_save=False)
    editor.open("y.cu", "// with a comment of its own\n" + SAXPY)
    await shown(editor, MEASURED)
    assert await versions_of(editor, "y.cu") == [0, 1]


async def test_a_copied_file_starts_with_its_own(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    await click(editor)
    editor.open("y.cu", SAXPY)
    await named_gpu(editor)
    assert [text for _, text in await editor.hints()] == []
    await click(editor)
    assert await versions_of(editor, "y.cu") == [1, 1]


async def test_a_run_goes_on_under_the_new_name_of_its_file(start, recorded_python) -> None:
    text = SAXPY + "// SLOW\n"
    editor = await opened(start, recorded_python, text)
    await editor.click()
    await editor.asked_until(editor.titles, lambda titles: titles[0][1].startswith("⏳ running"))
    old = move(editor, "y.cu")
    tell(editor, old, (editor.folder / "y.cu").as_uri())
    editor.open("y.cu", text)
    await editor.asked_until(editor.titles, lambda titles: titles[0][1].startswith("⏳ running"))
    await click(editor)
    await editor.asked_until(editor.titles, lambda titles: titles[0][1].startswith("▶ Run"))
    assert "cancelled" in editor.ended()[0]
