"""A kernel of a library: its lens builds and runs a program of the project that launches it. The GPU side is recorded."""

from __future__ import annotations

from typing import Any

from lsprotocol import types as lsp

from tests.driver_layouts import LAYOUTS, files_of, write
from tests.e2e.conftest import Editor
from tests.e2e.test_driver_lenses import TIME, agreeing, runs

FILES = files_of((LAYOUTS / "program_cmake.txt").read_text())
KERNEL = 2
"""The line of the kernel in src/scale.cu, and in src/shift.cu."""


async def opened(start: Any, python: str, trusted: bool | None = True, **changed: str) -> Editor:
    editor: Editor = await start("vscode", python=python, trusted=trusted)
    write(editor.folder, FILES | changed)
    editor.open("src/scale.cu", FILES["src/scale.cu"])
    return editor


async def result(editor: Editor) -> list[str]:
    await editor.until(editor.ended)
    return [title for at, title in await editor.titles() if at == KERNEL]


async def test_a_click_runs_the_program(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    assert await runs(editor, KERNEL) == ["▶ Run on H100 80GB HBM3: bench?"]
    await editor.click()
    assert await result(editor) == [f"⏱ {TIME}", "▶ Run on H100 80GB HBM3: bench"]
    assert "via app/bench.cu (bench 4096)" in await editor.hover(KERNEL, 18)


async def test_a_kernel_of_another_file_has_its_time_too(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    await runs(editor, KERNEL)
    await editor.click()
    await result(editor)
    editor.open("src/shift.cu", FILES["src/shift.cu"])
    titles = await editor.asked_until(editor.titles, lambda titles: any("⏱" in title for _, title in titles))
    assert (KERNEL, f"⏱ {TIME}") in titles


async def test_a_program_that_does_not_launch_it(start, recorded_python) -> None:
    changed = {"app/bench.cu": FILES["app/bench.cu"] + "// NEVER\n"}
    editor = await opened(start, recorded_python, **changed)
    await runs(editor, KERNEL)
    await editor.click()
    assert await result(editor) == ["✎ Draft a launch spec: this file has no main"]
    assert "⏱ not launched" in await editor.hover(KERNEL, 18)


async def test_an_untrusted_folder_is_asked_about(start, recorded_python) -> None:
    editor = await opened(start, recorded_python, trusted=None)
    assert await runs(editor, KERNEL, holds="trust") == ["▶ Run: bench (trust this folder)"]
    asked = agreeing(editor)
    await editor.click()
    assert await result(editor) == [f"⏱ {TIME}", "▶ Run on H100 80GB HBM3: bench"]
    assert asked == [
        f"orbit: app/bench.cu (bench 4096) runs code of {editor.folder}, which is not trusted. Do you trust its authors?"
    ]


async def test_an_edit_makes_it_old(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    await runs(editor, KERNEL)
    await editor.click()
    await result(editor)
    editor.edit(4, 12, 13, "x")
    assert "edited since" in (await result(editor))[0]


async def test_a_program_that_is_written_later_is_found(start, recorded_python) -> None:
    editor = await opened(start, recorded_python, **{"CMakeLists.txt": "", "app/bench.cu": ""})
    await editor.asked_until(editor.titles, lambda titles: any("Draft" in title for _, title in titles))
    write(editor.folder, FILES)
    saved = [
        lsp.FileEvent((editor.folder / name).as_uri(), lsp.FileChangeType.Changed)
        for name in ("CMakeLists.txt", "app/bench.cu")
    ]
    editor.client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams(saved))
    assert await runs(editor, KERNEL) == ["▶ Run on H100 80GB HBM3: bench?"]
