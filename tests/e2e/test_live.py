"""Live and reports, in a whole server. The GPU side is recorded (recorded_worker.py): these machines have none."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from lsprotocol import types as lsp

from tests.e2e.conftest import Editor, own_cache
from tests.e2e.test_run import named_gpu
from tests.e2e.test_spec_runs import KERNEL, MEASURED, RUN, SPEC, STALE, SWEPT

SAXPY = SPEC + KERNEL
LIVE = {"uri": "", "kernel": "saxpy"}


async def turned_on(start, python: str, editor_name: str = "vscode", **live: object) -> Editor:
    """An editor with saxpy open, Live on, and its first numbers there."""
    editor: Editor = await start(editor_name, python=python, live=live)
    editor.open("saxpy.cu", SAXPY)
    await named_gpu(editor)
    assert "○ Live: run at every save (saxpy)" in [action.title for action in await editor.actions(5)]
    assert await editor.command("orbit.live", LIVE | {"uri": editor.uri}) is True
    await editor.until(editor.ended)
    assert await editor.hints() == [(5, MEASURED)]
    return editor


def typed(editor: Editor, word: str, old: str = "") -> str:
    """Write `word` behind the kernel's brace, in place of `old`. Return the new text."""
    editor.edit(5, 65, 65 + len(old), word)
    return SAXPY.replace("{", "{" + word)


async def test_every_save_runs_it_and_the_line_says_how_it_differs(start, recorded_python) -> None:
    editor = await turned_on(start, recorded_python)
    assert await editor.titles() == [(5, "✓ 288 µs ±0.2%"), (5, RUN), (5, "◉ Live")]
    editor.save(typed(editor, "/*FAST*/ int fast;"))
    await editor.until(lambda: len(editor.ended()) == 2)
    faster = "⏱ 268 µs · 3.01 TB/s (90%) · -7.0%"
    assert await editor.hints() == [(5, faster)]
    assert "against the version before" in await editor.hover(5, 18)
    editor.save(SAXPY.replace("{", "{/*FAST*/ int fast;"))
    await editor.until(lambda: len(editor.ended()) == 3)
    assert await editor.hints() == [(5, faster)]  # the same text again is no new version
    editor.save(typed(editor, "", "/*FAST*/ int fast;"))
    await editor.until(lambda: len(editor.ended()) == 4)
    assert "· +7.5%" in (await editor.hints())[0][1]


async def test_a_difference_within_the_noise_is_not_claimed(start, recorded_python) -> None:
    editor = await turned_on(start, recorded_python)
    editor.save(typed(editor, "/*NOISE*/ int noise;"))
    await editor.until(lambda: len(editor.ended()) == 2)
    assert "⏱ 287 µs ±0.2% · 2.81 TB/s (84%) · ±" in (await editor.hints())[0][1]


async def test_a_broken_text_keeps_the_last_numbers(start, recorded_python) -> None:
    editor = await turned_on(start, recorded_python)
    editor.save(typed(editor, "BUG"))
    assert await editor.until(editor.diagnostics) == [("nvcc", 5, 65, 68, 'identifier "BUG" is undefined')]
    await editor.until(lambda: len(editor.ended()) == 2)
    assert await editor.hints() == [(5, STALE)]
    assert editor.messages() == []
    editor.save(typed(editor, "", "BUG"))
    await editor.until(lambda: len(editor.ended()) == 3 and not editor.diagnostics())
    assert await editor.hints() == [(5, MEASURED)]


async def test_a_pause_in_typing_is_enough_where_the_settings_say_so(start, recorded_python) -> None:
    editor = await turned_on(start, recorded_python, on="pause", pause_ms=50)
    typed(editor, "/*FAST*/ int fast;")
    await editor.until(lambda: len(editor.ended()) == 2)
    assert "· -7.0%" in (await editor.hints())[0][1]


async def test_one_in_flight_and_the_newest_text_waits(start, recorded_python) -> None:
    editor = await turned_on(start, recorded_python)
    editor.save(typed(editor, "int a;/*SLOW*/"))
    await editor.until(lambda: len(editor.progress()) == 2)
    editor.save(typed(editor, "int b;/*SLOW*/", "int a;/*SLOW*/"))
    editor.save(typed(editor, "int c;/*FAST*/", "int b;/*SLOW*/"))
    await editor.until(lambda: any("running" in str(step.message) for step in editor.progress()[1]))
    token = editor.tokens()[1]
    editor.client.window_work_done_progress_cancel(lsp.WorkDoneProgressCancelParams(token))
    await editor.until(lambda: any("268 µs" in name for name in editor.ended()))
    assert len(editor.progress()) == 3  # the text in between was never run


async def test_it_ends_when_idle(start, recorded_python) -> None:
    editor = await turned_on(start, recorded_python, idle_s=1)
    ended = "orbit: Live of saxpy ended, nothing was run for 1.00 s"
    await editor.until(lambda: ended in editor.messages())
    assert (5, "◉ Live") not in await editor.titles()


async def test_it_ends_by_its_lens(start, recorded_python) -> None:
    editor = await turned_on(start, recorded_python)
    lens = next(lens.command for lens in await editor.lenses() if lens.command.title == "◉ Live")
    assert await editor.command(lens.command, *lens.arguments) is False
    editor.save(typed(editor, "int a;"))
    assert (5, "◉ Live") not in await editor.titles()


async def test_a_gpu_that_cannot_be_reached_ends_it(start, recorded_python) -> None:
    editor = await turned_on(start, recorded_python)
    editor.save(typed(editor, "/*CRASH*/ int crash;"))
    await editor.until(lambda: "orbit: Live of saxpy was turned off" in editor.messages())
    assert (5, "◉ Live") not in await editor.titles()


@pytest.mark.parametrize("opens", [True, False])
async def test_a_report_is_opened_or_its_place_is_said(
    start, recorded_python, tmp_path, monkeypatch, opens: bool
) -> None:
    own_cache(monkeypatch, tmp_path)
    editor: Editor = await start("vscode", python=recorded_python)
    if not opens:  # as where there is no browser
        features = editor.client.protocol.fm.features
        features[lsp.WINDOW_SHOW_DOCUMENT] = lambda params: lsp.ShowDocumentResult(False)
    editor.open("saxpy.cu", SWEPT + KERNEL)
    await named_gpu(editor)
    target = {"uri": editor.uri, "kernel": "saxpy"}
    await editor.command("orbit.openReport", target)
    await editor.until(lambda: any("to report on; run it first" in text for text in editor.messages()))
    await editor.click()
    await editor.until(editor.ended)
    action = next(action for action in await editor.actions(5) if action.title == "Open the report (saxpy)")
    await editor.command(action.command, *action.arguments)
    if opens:
        shown = await editor.until(lambda: editor.client.shown_documents)
        assert shown[0].external
        path = Path(unquote(urlsplit(shown[0].uri).path))
    else:
        messages = await editor.until(
            lambda: [message for message in editor.messages() if "the report is" in message]
        )
        path = Path(messages[0].partition("the report is ")[2])
    text = path.read_text(encoding="utf-8")
    assert path.parent == tmp_path / "cache" / "orbit-lsp" / "reports"
    assert "NVIDIA H100 80GB HBM3" in text
    assert text.count("<svg") == 3
