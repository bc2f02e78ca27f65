"""A kernel of a module that cannot run by itself: its lens runs it through a test of the project. The GPU side is recorded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp

from orbit_remote.common import messages as c
from tests.e2e.conftest import Editor
from tests.e2e.test_no_dead_buttons import without_gpu
from tests.modal.test_rented_in_editor import answering

KERNELS = """import triton


@triton.jit
def softmax_kernel(x):
    pass


def softmax(x):
    softmax_kernel[(1,)](x)
    other_kernel[(1,)](x)


@triton.jit
def other_kernel(x):
    pass
"""
SOFTMAX, OTHER = 4, 14
TESTS = """from pkg.softmax import softmax


def test_softmax():
    softmax(1)


def test_softmax_of_a_large_row():
    softmax(2)
"""
FIRST, SECOND = "tests/test_softmax.py::test_softmax", "tests/test_softmax.py::test_softmax_of_a_large_row"
TIME = "288 µs ±0.2%"


async def opened(start: Any, python: str, tests: str = TESTS, trusted: bool = True, **more: Any) -> Editor:
    editor: Editor = await start("vscode", python=python, trusted=trusted, **more)
    for name, text in {"pkg/__init__.py": "", "tests/test_softmax.py": tests}.items():
        path = editor.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    editor.open("pkg/softmax.py", KERNELS)
    return editor


async def runs(editor: Editor, line: int = SOFTMAX, holds: str = "Run on") -> list[str]:
    """The titles of the run lenses of the kernel at `line`, once something launches it."""
    titles = await editor.asked_until(
        editor.titles, lambda titles: any(holds in title and ":" in title for _, title in titles)
    )
    return [title for at, title in titles if at == line]


async def result(editor: Editor, line: int = SOFTMAX) -> list[str]:
    """The lenses of a kernel, once a run has ended."""
    await editor.until(editor.ended)
    return [title for at, title in await editor.titles() if at == line]


async def test_a_click_runs_the_nearest_test(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    assert await runs(editor) == ["▶ Run on H100 80GB HBM3: test_softmax?"]
    await editor.click()
    assert await result(editor) == [f"⏱ {TIME}", "▶ Run: test_softmax"]
    hover = await editor.hover(SOFTMAX, 6)
    assert "via tests/test" in hover
    link = rf"\[tests/test\\_softmax.py::test\\_softmax]\({editor.folder.as_uri()}/tests/test_softmax.py\)"
    assert re.search(link, hover), hover


async def test_a_time_of_few_launches_can_be_measured_again(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    await runs(editor)
    await editor.click()
    await result(editor)
    again = [each for each in await editor.actions(SOFTMAX) if "Measure again" in each.title]
    assert [each.title for each in again] == ["▶ Measure again: repeat test_softmax (softmax_kernel)"]
    argument = again[0].arguments[0]
    assert (argument["through"], argument["repeated"]) == (FIRST, True)
    assert (await editor.command(again[0].command, argument))["run"].startswith("r2")


async def test_the_other_kernels_that_it_launched_have_their_times(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    await runs(editor)
    await editor.click()
    assert await result(editor, OTHER) == [f"⏱ {TIME}", "▶ Run: test_softmax"]


async def test_another_test_is_a_code_action(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    await runs(editor)
    offered = [each for each in await editor.actions(SOFTMAX) if each.title.startswith("▶ Run through")]
    way = "softmax_kernel <- softmax <- test_softmax_of_a_large_row"
    assert [each.title for each in offered] == [f"▶ Run through {SECOND}: {way} (softmax_kernel)"]
    await editor.command(offered[0].command, *(offered[0].arguments or []))
    assert "▶ Run: test_softmax_of_a_large_…" in await result(editor)


async def test_a_test_that_does_not_launch_it_is_not_taken_again(start, recorded_python) -> None:
    editor = await opened(start, recorded_python, TESTS + "# NEVER\n")
    assert "test_softmax?" in (await runs(editor))[0]
    await editor.click()
    assert await result(editor) == ["⏱ not launched", "▶ Run: test_softmax_of_a_large…?"]


async def test_a_failed_test_is_a_wrong_answer(start, recorded_python) -> None:
    editor = await opened(start, recorded_python, TESTS + "# FAILS\n")
    await runs(editor)
    await editor.click()
    assert "✗ wrong answer" in (await result(editor))[0]


async def test_an_edit_makes_it_old(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    await runs(editor)
    await editor.click()
    await result(editor)
    editor.edit(5, 4, 8, "return")
    assert "edited since" in (await result(editor))[0]


def agreeing(editor: Editor) -> list[str]:
    """Answer each question of the server with its first answer; return the questions, as they come."""
    asked: list[str] = []

    @editor.client.feature(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    def answer(params: lsp.ShowMessageRequestParams) -> lsp.MessageActionItem:
        asked.append(params.message)
        return (params.actions or [])[0]

    return asked


async def test_an_untrusted_folder_is_asked_about_once(start, recorded_python) -> None:
    editor = await opened(start, recorded_python, trusted=None)
    assert await runs(editor, holds="trust") == ["▶ Run: test_softmax (trust this folder)"]
    asked = agreeing(editor)
    await editor.click()
    assert await result(editor) == [f"⏱ {TIME}", "▶ Run: test_softmax"]
    assert asked == [
        f"orbit: {FIRST} runs code of {editor.folder}, which is not trusted. Do you trust its authors?"
    ]


async def test_its_result_comes_back(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    await runs(editor)
    await editor.click()
    await result(editor)
    await editor.close()
    again: Editor = await start("vscode", python=recorded_python, trusted=True)
    again.open("pkg/softmax.py", KERNELS)
    titles = await again.asked_until(again.titles, lambda titles: any("⏱" in title for _, title in titles))
    assert (SOFTMAX, f"⏱ {TIME}") in titles
    assert (SOFTMAX, "▶ Run: test_softmax") in await again.titles()


async def action(editor: Editor, beginning: str) -> str:
    """Take the code action of the first kernel whose title begins so; the title."""
    offered = [each for each in await editor.actions(SOFTMAX) if each.title.startswith(beginning)]
    await editor.command(offered[0].command, *(offered[0].arguments or []))
    return offered[0].title


async def test_a_pinned_test_is_taken_until_it_is_let_go(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    await runs(editor)
    await action(editor, "▶ Run through")
    await editor.until(editor.ended)
    assert await action(editor, "Always run through") == f"Always run through {SECOND} (softmax_kernel)"
    await editor.click()
    await editor.until(lambda: len(editor.ended()) == 2)
    assert "▶ Run: test_softmax_of_a_large_…" in await result(editor)
    await editor.close()
    again: Editor = await start("vscode", python=recorded_python, trusted=True)
    again.open("pkg/softmax.py", KERNELS)
    await again.asked_until(
        lambda: again.actions(SOFTMAX),
        lambda offered: any("Let clicks choose" in each.title for each in offered),
    )
    assert await action(again, "Let clicks choose") == "Let clicks choose a driver again (softmax_kernel)"
    offered = [each.title for each in await again.actions(SOFTMAX)]
    assert "Let clicks choose a driver again (softmax_kernel)" not in offered


async def test_what_was_learned_can_be_forgotten(start, recorded_python) -> None:
    editor = await opened(start, recorded_python, TESTS + "# NEVER\n")
    await runs(editor)
    await editor.click()
    assert "of_a_large…?" in (await result(editor))[1]
    await action(editor, "Forget which drivers")
    assert (await result(editor))[1] == "▶ Run: test_softmax?"


async def test_a_test_that_is_written_later_is_found(start, recorded_python) -> None:
    editor = await opened(start, recorded_python, tests="")
    await editor.asked_until(editor.titles, lambda titles: any("Draft" in title for _, title in titles))
    (editor.folder / "tests" / "test_softmax.py").write_text(TESTS)
    saved = lsp.FileEvent((editor.folder / "tests" / "test_softmax.py").as_uri(), lsp.FileChangeType.Created)
    editor.client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams([saved]))
    assert await runs(editor) == ["▶ Run on H100 80GB HBM3: test_softmax?"]


async def test_a_kernel_that_is_typed_has_its_driver(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    await runs(editor)
    editor.edit(
        10,
        0,
        0,
        "    third_kernel[(1,)](x)\n\n\n@triton.jit\ndef third_kernel(x):\n    pass\n\n\ndef rest(x):\n",
    )
    titles = await editor.asked_until(
        editor.titles, lambda titles: any("▶ Run" in title for line, title in titles if line == 14)
    )
    assert (14, "▶ Run on H100 80GB HBM3: test_softmax?") in titles


async def test_without_a_gpu_a_click_says_how_to_rent_one_and_runs_nothing(start, recorded_python) -> None:
    editor = await opened(start, without_gpu(Path(recorded_python)))
    assert "▶ Run (choose a GPU): test_softmax?" in await runs(editor, holds="choose a GPU")
    asked = answering(editor, None)
    await editor.click()
    await editor.until(lambda: asked)
    assert asked[0].startswith(
        f"orbit: test_softmax would launch it, and {c.NO_GPU}.\n- Rent one from Modal: "
    )
    assert asked[0].endswith("`orbit-lsp run FILE --through auto` runs it here all the same, without a GPU.")
    assert editor.ended() == []


async def test_without_a_gpu_an_untrusted_folder_is_asked_about_first(start, recorded_python) -> None:
    editor = await opened(start, without_gpu(Path(recorded_python)), trusted=None)
    # once it is known that there is no GPU, *Compile* stands beside it
    assert (await runs(editor, holds="trust"))[0] == "▶ Run: test_softmax (trust this folder)"
    asked = agreeing(editor)
    await editor.click()
    await editor.until(lambda: len(asked) == 2)
    assert asked[0].endswith(f"runs code of {editor.folder}, which is not trusted. Do you trust its authors?")
    assert c.NO_GPU in asked[1]


@pytest.mark.parametrize(
    ("answer", "compiles", "lens"),
    [
        ("Trust this folder and compile", True, "▶ Run (choose a GPU): test_softmax?"),
        ("Compile without trust", True, "▶ Run: test_softmax (trust this folder)"),
        (None, False, "▶ Run: test_softmax (trust this folder)"),
    ],
)
async def test_compile_asks_about_an_untrusted_folder(
    start, recorded_python, answer: str | None, compiles: bool, lens: str
) -> None:
    editor = await opened(start, without_gpu(Path(recorded_python)), trusted=None)
    await runs(editor, holds="trust")
    asked = answering(editor, answer)
    await editor.command("orbit.compile", {"uri": editor.uri})
    await editor.until(lambda: editor.messages() if compiles else asked)
    assert asked == [
        f"orbit: compiling softmax.py imports it, and {editor.folder} is not trusted. Do you trust its authors?"
    ]
    assert (bool(editor.messages()), (await result_lenses(editor))[0]) == (compiles, lens)


async def result_lenses(editor: Editor) -> list[str]:
    return [title for at, title in await editor.titles() if at == SOFTMAX]
