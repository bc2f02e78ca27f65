"""What the compiler made of a profiled kernel, opened in editors and written by the command line.

The GPU side is recorded (recorded_worker.py): the SASS is that of the code that ran on an H100.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from lsprotocol import types as lsp

from tests.e2e.conftest import EDITORS, Editor
from tests.e2e.test_profile import ended, make_a_file, orbit
from tests.e2e.test_run import named_gpu
from tests.first_cases import first_of

RECORDED = Path(__file__).parents[1] / "recordings" / "profiles"
SOFTMAX = (RECORDED / "softmax.py").read_text().replace("A row", "A COMPILED row")
SAXPY = (RECORDED / "memory_bound.cu").read_text().replace("// DRAM", "// COMPILED DRAM")
LEVELS = ("TTIR", "TTGIR", "LLVM IR", "PTX", "SASS")
KINDS = ("ttir", "ttgir", "llir", "ptx", "sass")
LINE = 8
"""Of softmax, from 0."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where profiles are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "orbit-lsp" / "profiles"


async def profiled(editor: Editor, text: str = SOFTMAX, name: str = "softmax.py") -> dict[str, str]:
    """The kernel, as a command names it."""
    editor.open(name, text)
    await named_gpu(editor)
    kernel = {"uri": editor.uri, "kernel": "softmax" if name.endswith(".py") else "saxpy"}
    await editor.command("orbit.profile", kernel)
    await ended(editor)
    return kernel


def answering(editor: Editor, *titles: str | None) -> list[lsp.ShowMessageRequestParams]:
    """The person at the editor chooses these, question by question; the questions."""
    asked: list[lsp.ShowMessageRequestParams] = []
    answers = list(titles)

    def ask(params: lsp.ShowMessageRequestParams) -> Any:
        asked.append(params)
        title = answers.pop(0)
        return lsp.MessageActionItem(title) if title else None

    editor.client.feature(lsp.WINDOW_SHOW_MESSAGE_REQUEST)(ask)
    return asked


async def opened(editor: Editor) -> tuple[str, str]:
    """The name and the text of the file that the editor was asked to show."""
    (shown,) = await editor.until(lambda: editor.client.shown_documents)
    assert not shown.external
    return content(unquote(urlsplit(shown.uri).path))


def content(path: str) -> tuple[str, str]:
    return Path(path).name, Path(path).read_text()


def remove(folder: Path, name: str) -> None:
    (file,) = folder.glob(f"*.ir/{name}")
    file.unlink()


async def said(editor: Editor, part: str) -> str:
    (text,) = await editor.until(lambda: [message for message in editor.messages() if part in message])
    return text


@pytest.mark.parametrize("name", first_of(EDITORS))
async def test_every_editor_opens_what_the_compiler_made(start, recorded_python, name: str) -> None:
    editor: Editor = await start(name, python=recorded_python)
    kernel = await profiled(editor)
    assert ", ".join(LEVELS) in await editor.hover(LINE, 5)
    actions = {
        action.title: action for action in await editor.actions(LINE) if action.command == "orbit.openIr"
    }
    if name == "emacs":  # which cannot show a choice
        assert list(actions) == [f"Open {level} (softmax)" for level in LEVELS]
        (arguments,) = actions["Open SASS (softmax)"].arguments or []
    else:
        (action,) = actions.values()
        assert action.title == "Open TTIR, TTGIR, LLVM IR, PTX or SASS… (softmax)"
        (arguments,) = action.arguments or []
        asked = answering(editor, "SASS")
    await editor.command("orbit.openIr", arguments)
    file, text = await opened(editor)
    assert file == "softmax.sass"
    assert "// softmax.py:13\n" in text
    if name != "emacs":
        assert [action.title for action in asked[0].actions or []] == list(LEVELS)
    assert arguments.items() >= kernel.items()


async def test_of_several_instances_the_author_chooses(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    kernel = await profiled(editor, SOFTMAX.replace("COMPILED", "COMPILED TWICE"))
    asked = answering(editor, "2: softmax, BLOCK=4096")
    await editor.command("orbit.openIr", kernel | {"kind": "ttgir"})
    assert await opened(editor) == ("softmax-2.ttgir", "// the ttgir of softmax, 1\n")
    assert [action.title for action in asked[0].actions or []] == [
        "1: softmax, BLOCK=2048",
        "2: softmax, BLOCK=4096",
    ]


async def test_a_question_that_is_closed_opens_nothing(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    kernel = await profiled(editor)
    asked = answering(editor, None)
    await editor.command("orbit.openIr", kernel)
    await editor.until(lambda: asked)
    await editor.command("orbit.openIr", kernel | {"kind": "ttir"})
    assert (await opened(editor))[0] == "softmax.ttir"


async def test_an_editor_that_opens_no_files_is_told_where_it_lies(
    start, recorded_python, cache: Path
) -> None:
    editor: Editor = await start("neovim-0.12", python=recorded_python)
    kernel = await profiled(editor, SAXPY, "memory_bound.cu")
    features = editor.client.protocol.fm.features
    features[lsp.WINDOW_SHOW_DOCUMENT] = lambda _: lsp.ShowDocumentResult(success=False)
    await editor.command("orbit.openIr", kernel | {"kind": "ptx"})
    path = (await said(editor, "the PTX of saxpy is ")).partition(" is ")[2]
    assert content(path) == ("saxpy.ptx", "// the ptx of _Z5saxpyifPKfPf, 0\n")
    assert path.startswith(str(cache))


async def test_it_is_there_after_a_restart(start, recorded_python) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    await profiled(editor, SAXPY, "memory_bound.cu")
    await editor.close()
    editor = await start("vscode", python=recorded_python)
    editor.open("memory_bound.cu", SAXPY)
    await editor.asked_until(
        lambda: editor.actions(3),
        lambda all_: "Open PTX or SASS… (saxpy)" in [action.title for action in all_],
    )
    await editor.command("orbit.openIr", {"uri": editor.uri, "kernel": "saxpy", "kind": "sass"})
    file, text = await opened(editor)
    assert file == "saxpy.sass"
    assert "FFMA" in text


async def test_what_is_not_there_is_said(start, recorded_python, cache: Path) -> None:
    editor: Editor = await start("vscode", python=recorded_python)
    editor.open("memory_bound.cu", SAXPY)
    await named_gpu(editor)
    kernel = {"uri": editor.uri, "kernel": "saxpy"}
    await editor.command("orbit.openIr", kernel)
    await said(editor, "there is no compiler output of saxpy: profile it first")
    await editor.command("orbit.profile", kernel)
    await ended(editor)
    await editor.command("orbit.openIr", kernel | {"kind": "ttir"})
    await said(editor, "there is no ttir of saxpy; there is ptx, sass")
    remove(cache, "saxpy.ptx")
    await editor.command("orbit.openIr", kernel | {"kind": "ptx"})
    await said(editor, "what the compiler made of saxpy is no longer kept; profile it again")


async def test_where_nothing_can_be_kept_nothing_is_offered(start, recorded_python, cache: Path) -> None:
    make_a_file(cache)
    editor: Editor = await start("vscode", python=recorded_python)
    await profiled(editor, SAXPY, "memory_bound.cu")
    assert [action for action in await editor.actions(3) if action.command == "orbit.openIr"] == []


# -- the command line -------------------------------------------------------------------------------


def test_dump_writes_them_into_a_folder(recorded_python, tmp_path: Path) -> None:
    (tmp_path / "softmax.py").write_text(SOFTMAX)
    local = ("--python", recorded_python, "--runner", "local")
    ran = orbit(tmp_path, "profile", "softmax.py", "--dump", "made/ir", *local)
    assert ran.returncode == 0, ran.stderr
    names = [f"softmax.{kind}" for kind in KINDS]
    assert f"in made/ir: {', '.join(names)}\n" in ran.stderr
    assert sorted(path.name for path in (tmp_path / "made" / "ir").iterdir()) == sorted(names)
    assert (tmp_path / "made" / "ir" / "softmax.ttir").read_text() == "// the ttir of softmax, 0\n"
    assert "what the compiler made of it" in ran.stdout


@pytest.mark.parametrize(
    ("text", "folder", "status", "says"),
    [
        (SAXPY.replace("COMPILED ", ""), "made", 0, "nothing to dump: the profile contains no compiled code"),
        (SAXPY, "memory_bound.cu", 64, "memory_bound.cu is not a folder, so nothing can be dumped there"),
        (SAXPY, "memory_bound.cu/made", 5, "memory_bound.cu/made: Not a directory"),
    ],
)  # fmt: skip
def test_a_dump_that_cannot_be(
    recorded_python, tmp_path: Path, text: str, folder: str, status: int, says: str
) -> None:
    (tmp_path / "memory_bound.cu").write_text(text)
    local = ("--python", recorded_python, "--runner", "local")
    ran = orbit(tmp_path, "profile", "memory_bound.cu", "--dump", folder, *local)
    assert says in ran.stderr
    assert ran.returncode == status
