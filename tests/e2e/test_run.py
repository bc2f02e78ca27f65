"""From a lens to a number on the kernel's line, with what real editors can and cannot do.

The GPU side is recorded (recorded_worker.py): these machines have none. The same path with a real
GPU is tests/gpu.
"""

from __future__ import annotations

import asyncio

import pytest
from lsprotocol import types as lsp

from orbit_lsp.server.handlers import SETTINGS_S
from tests.e2e.conftest import EDITORS, Editor

SOURCE = """\
__global__ void saxpy(int n, float a, const float* x, float* y) {
  y[n] = a * x[n];
}
__global__ void other(int n) {}
int main() { saxpy<<<1, 256>>>(0, 1, 0, 0); }
"""
MEASURED = "⏱ 288 µs ±0.2% · n=19 · occ ≤100%"
STALE = "⏱ 288 µs · edited since · occ ≤100%"


@pytest.mark.parametrize("name", EDITORS)
async def test_a_click_puts_the_time_on_the_kernels_line(start, recorded_python, name: str) -> None:
    editor: Editor = await start(name, python=recorded_python)
    editor.open("saxpy.cu", SOURCE)
    assert await named_gpu(editor) == [(0, "▶ Run on H100 80GB HBM3"), (3, "▶ Run on H100 80GB HBM3")]
    await editor.click()
    assert await editor.until(editor.ended) == ["288 µs"]
    # where no lens is drawn, on a line with room for it in a window of 80 columns
    assert await editor.hints() == [(0, MEASURED)]
    assert await editor.titles() == [
        (0, "⏱ 288 µs ±0.2%"),
        (0, "▶ Run on H100 80GB HBM3"),
        (3, "▶ Run on H100 80GB HBM3"),
    ]
    hover = await editor.hover(0, 18)
    for fact in ("NVIDIA H100 80GB HBM3", "288 µs", "20 launches", "1980 MHz", "13.0.88"):
        assert fact in hover
    assert ("|---|" in hover) is (name == "vscode")  # which alone draws tables
    assert ("```" in hover) is (name not in ("vscode", "emacs"))  # Emacs reads plain text only


async def test_a_parser_of_markdown_that_knows_no_tables_gets_a_block_of_text(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python, markdown="kakoune-lsp")
    editor.open("saxpy.cu", SOURCE)
    await named_gpu(editor)
    await editor.click()
    await editor.until(editor.ended)
    assert (await editor.hover(0, 18)).startswith("```text\nsaxpy: ⏱ 288 µs")


@pytest.mark.parametrize("answers", [True, False], ids=["late", "never"])
async def test_a_click_before_the_settings_have_come_waits_for_them(
    start, recorded_python, answers: bool
) -> None:
    settings = {"python": recorded_python, "compile_on_save": False}
    wait_s = 1000 if answers else SETTINGS_S
    constants = {"orbit_lsp.server.handlers.SETTINGS_S": wait_s}
    editor: Editor = await start("vscode", withhold_settings=True, constants=constants, **settings)
    editor.open("saxpy.cu", SOURCE)
    await editor.until(lambda: editor.withheld)
    answer = await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
    if answers:  # before that nothing runs, though the click is answered
        assert (answer, editor.progress()) == (None, [])
        editor.answer_settings()
    assert await editor.until(editor.ended) == ["288 µs"]


@pytest.mark.parametrize("name", ["helix", "emacs"])
async def test_where_hints_cannot_be_refreshed_the_result_is_a_hint_diagnostic_too(
    start, recorded_python, name: str
) -> None:
    editor: Editor = await start(name, python=recorded_python)
    editor.open("saxpy.cu", SOURCE)
    await named_gpu(editor)
    action = (await editor.actions(0))[0]
    assert action.title == "▶ Run on H100 80GB HBM3"
    await editor.command(action.command, *action.arguments)
    await editor.until(editor.ended)
    assert await editor.until(editor.diagnostics) == [("orbit", 0, 16, 21, MEASURED)]


async def test_an_edit_marks_the_result_and_undoing_it_unmarks(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("saxpy.cu", SOURCE)
    await named_gpu(editor)
    await editor.click()
    await editor.until(editor.ended)
    editor.edit(1, 9, 10, "b")
    assert await editor.hints() == [(0, STALE)]
    editor.edit(1, 9, 10, "a")
    assert await editor.hints() == [(0, MEASURED)]
    editor.edit(0, 0, 0, "// a comment does not count\n\n")
    assert await editor.hints() == [(2, MEASURED)]
    editor.edit(5, 30, 30, "return;")  # in the body of the other kernel
    assert await editor.hints() == [(2, MEASURED)]


async def test_a_kernel_that_the_program_never_launches(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("saxpy.cu", SOURCE + "// NEVER\n")
    await named_gpu(editor)
    await editor.click()
    await editor.until(editor.ended)
    assert await editor.hints() == [(0, "⏱ the program did not launch it")]


async def test_a_compile_error_stands_at_its_column_and_goes_when_it_is_fixed(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("saxpy.cu", SOURCE.replace("a * x", "BUG * x"))
    error = ("nvcc", 1, 9, 12, 'identifier "BUG" is undefined')
    assert await editor.until(editor.diagnostics) == [error]
    editor.edit(1, 9, 12, "a")
    editor.save(SOURCE)
    await editor.until(lambda: not editor.diagnostics())


async def test_diagnostics_are_never_older_than_the_text(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("saxpy.cu", SOURCE.replace("a * x", "BUG * x"))
    await editor.until(editor.diagnostics)
    await named_gpu(editor)
    editor.edit(0, 0, 0, "\n\n")
    await editor.click()  # the run meets the error two lines further down
    await editor.until(lambda: [diagnostic[1] for diagnostic in editor.diagnostics()] == [3])


@pytest.mark.parametrize("how", ["lens", "progress", "command"])
async def test_cancel(start, recorded_python, how: str) -> None:
    editor: Editor = await start("vscode", python=recorded_python, compile_on_save=False)
    editor.open("saxpy.cu", SOURCE + "// SLOW\n")
    await named_gpu(editor)
    await editor.click()
    await editor.until(
        lambda: any("running" in str(step.message) for bar in editor.progress() for step in bar)
    )
    (lens,) = [lens.command for lens in await editor.lenses() if "(cancel)" in lens.command.title]
    assert lens.title.startswith("⏳ running ")
    if how == "lens":
        await editor.command(lens.command, *lens.arguments)
    elif how == "command":
        await editor.command("orbit.cancel")
    else:
        (token,) = editor.tokens()
        editor.client.window_work_done_progress_cancel(lsp.WorkDoneProgressCancelParams(token))
    await editor.until(lambda: "cancelled" in editor.ended())
    assert (0, "▶ Run on H100 80GB HBM3") in await editor.titles()


async def test_a_second_click_joins_and_a_changed_text_waits(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("saxpy.cu", SOURCE + "// SLOW\n")
    await named_gpu(editor)
    target = {"uri": editor.uri, "kernel": "saxpy"}
    first = await editor.command("orbit.run", target)
    assert await editor.command("orbit.run", target) == first
    assert await editor.command("orbit.run", target | {"kernel": "other"}) == first
    editor.edit(1, 9, 10, "b")
    second = await editor.command("orbit.run", target)
    assert second != first
    await editor.command("orbit.cancel", target)
    await editor.until(lambda: len(editor.ended()) == 1)


async def test_the_worker_dies_and_the_next_run_works(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("saxpy.cu", SOURCE + "// CRASH\n")
    await named_gpu(editor)
    await editor.click()
    assert await editor.until(editor.ended) == [None]  # one message an event, and it has a remedy
    (message,) = await editor.until(editor.messages)
    assert message.startswith(
        "the worker process ended unexpectedly (exit code 9); its log is in the server's log"
    )
    editor.edit(5, 0, 8, "")
    await editor.click()
    await editor.until(lambda: len(editor.ended()) == 2)
    assert await editor.hints() == [(0, MEASURED)]


async def test_a_python_that_cannot_be_started(start) -> None:
    editor: Editor = await start("vscode", python="/nowhere/python")
    editor.open("saxpy.cu", SOURCE)
    await editor.click()
    await editor.until(editor.ended)
    (message,) = set(await editor.until(editor.messages))  # the file's own compile may say it too
    assert "/nowhere/python" in message
    assert "orbit.python" in message


async def test_a_command_without_arguments_acts_on_the_kernel_last_looked_at(start, recorded_python) -> None:
    editor: Editor = await start("helix", python=recorded_python)
    editor.open("saxpy.cu", SOURCE)
    await named_gpu(editor)
    assert await editor.command("orbit.run") is None
    await editor.until(lambda: any("which kernel?" in text for text in editor.messages()))
    await editor.hover(1)
    assert (await editor.command("orbit.run"))["run"].startswith("r")
    await editor.until(editor.ended)


async def test_shutdown_while_a_kernel_runs_ends_it(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("saxpy.cu", SOURCE + "// SLOW\n")
    await named_gpu(editor)
    await editor.click()
    await editor.until(
        lambda: any("running" in str(step.message) for bar in editor.progress() for step in bar)
    )
    # the fixture's shutdown_session fails where the server answers with an error


async def test_info_says_what_a_report_of_a_fault_needs(start, recorded_python) -> None:
    editor: Editor = await start("neovim-0.12", python=recorded_python)
    editor.open("saxpy.cu", SOURCE)
    await named_gpu(editor)
    result = await editor.command("orbit.info")
    shown = result if isinstance(result, dict) else vars(result)
    text = str(shown)
    for fact in ("orbit-lsp", "utf-8", "NVIDIA H100 80GB HBM3", "codeLens.refresh"):
        assert fact in text


async def named_gpu(editor: Editor) -> list[tuple[int, str]]:
    """The lenses once the server knows the machine's GPU."""
    return await editor.asked_until(
        editor.titles,
        lambda titles: (
            titles
            and any(message in title for message in ("HBM3", "BUG", " µs", " ms ") for _, title in titles)
        ),
    )


async def test_a_failure_is_said_although_the_client_never_makes_the_progress_bar(start) -> None:
    constants = {"orbit_lsp.server.notifier.BAR_S": 0.1}
    editor: Editor = await start("vscode", python="/nowhere/python", constants=constants)
    left = asyncio.Event()
    del editor.client.protocol.fm.features[lsp.WINDOW_WORK_DONE_PROGRESS_CREATE]

    @editor.client.feature(lsp.WINDOW_WORK_DONE_PROGRESS_CREATE)
    async def _(params: lsp.WorkDoneProgressCreateParams) -> None:
        await left.wait()

    editor.open("saxpy.cu", SOURCE)
    await editor.command("orbit.run", {"uri": editor.uri, "kernel": "saxpy"})
    await editor.until(lambda: any("/nowhere/python" in text for text in editor.messages()))
    assert editor.tokens() == []
    left.set()
