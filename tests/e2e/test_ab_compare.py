"""*Compare with…*, in a whole server. The GPU side is recorded (recorded_worker.py): these machines have none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from lsprotocol import types as lsp

from orbit_lsp.history.history_store import HistoryEntry, HistoryStore, StoredResult
from orbit_lsp.state.session import Session
from orbit_remote.common import messages as c
from tests.e2e import recorded_worker as recorded
from tests.e2e.conftest import Editor, own_cache
from tests.e2e.test_history import FASTER, SAXPY, click, opened, state
from tests.e2e.test_run import named_gpu
from tests.e2e.test_spec_runs import MEASURED
from tests.modal.test_rented_in_editor import answering
from tests.recorded_profiles import profile
from tests.test_harness_view import KERNELBENCH

__all__ = ["state"]  # a fixture
SLOWER = "orbit: saxpy takes 7.5% more time than {} (7.5% to 7.5% more, 7 pairs of runs)"


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def committed(folder: Path, **files: str) -> str:
    """The short hash."""
    if not (folder / ".git").exists():
        git(folder, "init", "-q", "-b", "main")
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")
    return git(folder, "rev-parse", "--short=7", "HEAD")


def target(editor: Editor, **more: str) -> dict[str, str]:
    return {"uri": editor.uri, "kernel": "saxpy"} | more


async def said(editor: Editor, begins: str) -> str:
    results = await editor.until(
        lambda: [message for message in editor.messages() if message.startswith(begins)]
    )
    return results[-1]


async def test_with_the_version_before(start, recorded_python) -> None:
    editor = await opened(start, recorded_python, FASTER)
    await click(editor)
    editor.edit(5, 65, 83, "")
    asked = answering(editor, "the version before")
    action = next(action for action in await editor.actions(5) if action.title == "Compare with… (saxpy)")
    await editor.command(action.command, *action.arguments)
    text = await said(editor, "orbit: saxpy takes")
    assert asked == ["orbit: compare saxpy with what?"]
    assert text.startswith("orbit: saxpy takes 7.5% more time than the version of ")
    assert await editor.hints() == [(5, MEASURED)]  # what ran is a run like any other
    hover = await editor.hover(5, 18)
    for fact in ("268 µs", "288 µs", "+7.5% (+7.5% to +7.5%): slower", "350 (cold L2, 7 runs)"):
        assert fact in hover.replace("\\", "")
    titles = [step.message for step in editor.progress()[-1] if step.message]
    assert any(title.startswith("running: pair 7 of 7 to 12: now ") for title in titles)


async def offered(editor: Editor) -> list[str]:
    """What *Compare with…* asks to choose from; nothing is chosen."""
    asked: list[lsp.ShowMessageRequestParams] = []

    @editor.client.feature(lsp.WINDOW_SHOW_MESSAGE_REQUEST)
    def _(params: lsp.ShowMessageRequestParams) -> None:
        asked.append(params)

    await editor.command("orbit.compareWith", target(editor))
    await editor.until(lambda: asked)
    return [action.title for action in asked[0].actions or []]


async def test_head_is_not_offered_for_a_file_that_was_never_committed(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python, compile_on_save=False)
    committed(editor.folder, beside_cu=SAXPY)
    editor.open("saxpy.cu", SAXPY)
    await named_gpu(editor)
    assert await offered(editor) == ["beside.cu"]


async def test_the_list_has_versions_commits_and_files(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python, compile_on_save=False)
    short = committed(editor.folder, saxpy_cu=SAXPY, beside_cu=SAXPY)
    editor.open("saxpy.cu", FASTER)
    await named_gpu(editor)
    for edit in ("int a;", "int b;", "int c;"):
        await click(editor)
        editor.edit(5, 65, 65, edit)
    last, head, *versions, commit, file = await offered(editor)
    assert (last, head, file) == ("the version before", "HEAD", "beside.cu")
    numbers = [(version[:14], version[-9:]) for version in versions]
    assert numbers == [("version 2, of ", " · 268 µs"), ("version 1, of ", " · 268 µs")]
    assert commit.startswith(f"{short} · ")
    assert commit.endswith(" ago · x")


async def test_with_a_git_revision_whatever_the_text_says_now(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    short = committed(editor.folder, saxpy_cu=FASTER)
    await editor.command("orbit.compareWith", target(editor, **{"with": "revision:HEAD"}))
    await said(editor, SLOWER.format(f"HEAD ({short})"))
    editor.edit(5, 65, 65, "/*FAST*/ int fast;")
    await editor.command("orbit.compareWith", target(editor, **{"with": "revision:main"}))
    await said(editor, f"saxpy is the same in main ({short}): nothing has changed since")
    assert editor.client.messages[-1].type is lsp.MessageType.Info


async def test_the_headers_of_a_revision_are_its_own(start, recorded_python, tmp_path: Path) -> None:
    """The recorded worker looks for its words in the text alone: that the header is there is seen in what it was sent."""
    editor = await opened(start, recorded_python, '#include "a.cuh"\n' + SAXPY)
    short = committed(editor.folder, saxpy_cu='#include "a.cuh"\n' + FASTER, a_cuh="// then\n")
    header(editor.folder)
    await editor.command("orbit.compareWith", target(editor, **{"with": "revision:HEAD"}))
    await said(editor, SLOWER.format(f"HEAD ({short})"))
    hover = (await editor.hover(6, 18)).replace("\\", "")
    assert "a.cuh is taken from HEAD too, so that version runs in a folder without data files" in hover


def header(folder: Path) -> None:
    (folder / "a.cuh").write_text("// now\n")


async def test_a_revision_without_a_launch_spec_is_run_by_the_one_of_now(start, recorded_python) -> None:
    editor = await opened(start, recorded_python)
    committed(editor.folder, saxpy_cu=FASTER.rpartition("// orbit")[2].partition("\n")[2])
    await editor.command("orbit.compareWith", target(editor, **{"with": "revision:HEAD"}))
    await said(editor, "orbit: saxpy takes 7.5% more time than HEAD (")
    assert "has no launch spec: the present one is used" in await editor.hover(5, 18)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("last", "the history has no run of another version of saxpy to compare with"),
        ("revision:nowhere", "git knows no revision nowhere of "),
        ("revision:HEAD~1", "git knows no revision HEAD~1 of "),
        ("revision:HEAD", "HEAD ("),
        ("kernel:absent", "there is no kernel absent in saxpy.cu; it has: saxpy"),
        ("gpu:L4", "another GPU must be rented from Modal: "),
        ("file:absent.cu", "absent.cu cannot be read: No such file or directory"),
        ("whatever", "orbit: cannot compare with 'whatever'; use `last`, "),
    ],
)
async def test_what_cannot_be_compared_is_a_sentence(start, recorded_python, word: str, text: str) -> None:
    editor = await opened(start, recorded_python)
    committed(editor.folder, saxpy_cu=SAXPY.replace("{", "{BUG"))
    await editor.command("orbit.compareWith", target(editor, **{"with": word}))
    result = await said(editor, text)
    if word == "revision:HEAD":
        assert result.endswith('does not compile: 1 error: identifier "BUG" is undefined')
    assert not [title for _, title in await editor.titles() if "cancel" in title]


async def test_a_contract_is_compared_and_its_result_comes_back(start, recorded_python) -> None:
    async def model() -> Editor:
        editor: Editor = await start("vscode", python=recorded_python)
        committed(editor.folder, model_py=KERNELBENCH + "\nTHEN = 1\n")
        editor.open("model.py", KERNELBENCH)
        await named_gpu(editor)
        return editor

    editor = await model()
    short = git(editor.folder, "rev-parse", "--short=7", "HEAD")
    await editor.asked_until(  # that it lies in git is found beside the loop
        lambda: editor.actions(5),
        lambda all_: "Compare with… (ModelNew)" in [action.title for action in all_],
    )
    contract = {"uri": editor.uri, "kernel": "contract ModelNew", "with": "revision:HEAD"}
    await editor.command("orbit.compareWith", contract)
    await said(editor, f"orbit: no measurable difference between ModelNew and HEAD ({short})")
    hints = await editor.hints()
    await editor.close()
    editor = await model()
    await editor.asked_until(editor.hints, lambda again: again == hints)


@pytest.mark.parametrize("how", ["lens", "progress", "command"])
async def test_cancelling_in_the_middle(start, recorded_python, how: str) -> None:
    editor = await opened(start, recorded_python, SAXPY)
    committed(editor.folder, saxpy_cu=SAXPY.replace("{", "{/*SLOW*/ int slow;"))
    await editor.command("orbit.compareWith", target(editor, **{"with": "revision:HEAD"}))
    await editor.until(lambda: "HEAD (" in str([step.message for bar in editor.progress() for step in bar]))
    lens = next(
        lens.command for lens in await editor.lenses() if lens.command and "(cancel)" in lens.command.title
    )
    if how == "lens":
        await editor.command(lens.command, *(lens.arguments or []))
    elif how == "command":
        await editor.command("orbit.cancel")
    else:
        (token,) = editor.tokens()
        editor.client.window_work_done_progress_cancel(lsp.WorkDoneProgressCancelParams(token))
    await editor.until(lambda: editor.ended() == ["cancelled"])
    assert not [title for _, title in await editor.titles() if "cancel" in title]
    assert editor.messages() == []


async def test_an_editor_that_cannot_ask_has_a_code_action_for_each(start, recorded_python) -> None:
    second = "__global__ void other(int n, float a, const float* x, float* y) {}\n"
    editor = await opened(start, recorded_python, SAXPY + SAXPY.partition("__global__")[0] + second, "emacs")
    await editor.command("orbit.run", target(editor))
    await editor.until(editor.ended)
    titles = [action.title for action in await editor.actions(5) if "Compare" in action.title]
    assert titles == ["Compare with other (saxpy)"]  # there is no version before
    editor.edit(5, 65, 65, "int edited;")
    titles = [action.title for action in await editor.actions(5) if "Compare" in action.title]
    assert titles == ["Compare with the version before (saxpy)", "Compare with other (saxpy)"]
    await editor.command("orbit.compareWith", target(editor))
    assert "this editor cannot show a choice" in await said(editor, "orbit: this")


async def test_the_history_and_a_comparison_open_as_pages(
    start, recorded_python, tmp_path, monkeypatch
) -> None:
    own_cache(monkeypatch, tmp_path)
    editor = await opened(start, recorded_python, FASTER)
    await editor.command("orbit.history", target(editor))
    await said(editor, "orbit: the history has no run of saxpy: run or profile it first")
    await click(editor)
    editor.edit(5, 65, 83, "")
    await editor.command("orbit.compareWith", target(editor, **{"with": "last"}))
    await said(editor, "orbit: saxpy takes 7.5% more")
    for title in ("Open the history (saxpy)", "Open the comparison with the version of"):
        action = next(action for action in await editor.actions(5) if action.title.startswith(title))
        await editor.command(action.command, *action.arguments)
    await editor.until(lambda: len(editor.client.shown_documents) == 2)
    pages = sorted(
        (read(shown_document.uri) for shown_document in editor.client.shown_documents),
        key=lambda name: "2 runs" not in name,
    )
    assert "2 versions, 2 runs · +7.5% since 1 edit" in pages[0]
    assert pages[0].count("<svg") == 1
    assert "saxpy takes 7.5% more time than the version of" in pages[1]


def read(uri: str) -> str:
    return Path(unquote(urlsplit(uri).path)).read_text(encoding="utf-8")


def profiled(state: Path, path: Path, text: str, name: str) -> None:
    """The history has a profile of saxpy as this text has it, with the counters of a recording from an H100."""
    session = Session()
    session.open(path.as_uri(), 0, text)
    ((_, _, digest),) = session.kernels(path.as_uri())
    finished = c.Finished("r1", "ok", device=recorded.DEVICE, profiles=(profile(name),))
    entry = HistoryEntry(1_000.0, str(path), "saxpy", "profile", digest, "", StoredResult(finished))
    HistoryStore(lambda: state).keep(entry, text)


@pytest.mark.slow
async def test_where_both_sides_were_profiled_the_counters_that_differ_stand_beside(
    start, recorded_python, state: Path
) -> None:
    editor = await opened(start, recorded_python)
    committed(editor.folder, saxpy_cu=FASTER)
    profiled(state, editor.folder / "saxpy.cu", FASTER, "uncoalesced")
    await editor.command("orbit.compareWith", target(editor, **{"with": "revision:HEAD"}))
    await said(editor, "orbit: saxpy takes")
    assert "DRAM read" not in await editor.hover(5, 18)
    profiled(state, editor.folder / "saxpy.cu", SAXPY, "memory_bound")
    await editor.command("orbit.compareWith", target(editor, **{"with": "revision:HEAD"}))
    await editor.until(lambda: len(editor.ended()) == 2)
    hover = (await editor.hover(5, 18)).replace("\\", "")
    assert "| DRAM read | 256 MiB | 128 MiB | -50% |" in hover
    assert "| stall: long scoreboard | 265 | 73.9 | -72% |" in hover
