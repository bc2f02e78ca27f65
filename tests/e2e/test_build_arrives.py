"""A project is configured in a terminal while its files are open: what is shown follows by itself, without a save."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lsprotocol import types as lsp

from tests.e2e.conftest import Editor

SOON = {"orbit_lsp.features.build_watch._EVERY_S": 0.05}
INCLUDES = '#include "config.hpp"\n__global__ void fill(float* x) { x[threadIdx.x] = VALUE; }\n'
NEEDS_A_FLAG = "__global__ void fill(float* x) { x[threadIdx.x] = VALUE; }\n"
WATCHES, NEVER_WATCHES = "vscode", "neovim-0.12"


def cmake_project(editor: Editor) -> None:
    (editor.folder / "CMakeLists.txt").write_text("project(p LANGUAGES CUDA)\nadd_library(p src/fill.cu)\n")
    (editor.folder / "src").mkdir()


def database(editor: Editor, value: object) -> Path:
    """As `cmake -B build` writes it."""
    file = editor.folder / "build/compile_commands.json"
    file.parent.mkdir(exist_ok=True)
    source = str(editor.folder / "src/fill.cu")
    entry = {
        "directory": str(editor.folder),
        "file": source,
        "command": f"nvcc -DVALUE={value} -c {source}",
    }
    file.write_text(json.dumps([entry]))
    return file


def tell(editor: Editor, file: Path, change: lsp.FileChangeType) -> None:
    event = lsp.FileEvent(file.as_uri(), change)
    editor.client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams([event]))


@pytest.mark.slow
async def test_a_missing_header_that_a_build_makes_is_found_though_nobody_tells_of_it(start) -> None:
    editor: Editor = await start(WATCHES, constants=SOON)
    cmake_project(editor)
    editor.open("src/fill.cu", INCLUDES)
    ((*_, message),) = await editor.until(editor.diagnostics)
    assert message.startswith("config.hpp is not found")
    made = editor.folder / "build/generated/config.hpp"
    made.parent.mkdir(parents=True)
    made.write_text("#define VALUE 7\n")
    await editor.until(lambda: not editor.diagnostics())
    assert " regs" in (await editor.asked_until(editor.hints, bool))[0][1]


@pytest.mark.slow
async def test_a_submodule_is_checked_out(start) -> None:
    editor: Editor = await start(NEVER_WATCHES, constants=SOON)
    (editor.folder / ".gitmodules").write_text(
        '[submodule "x"]\n\tpath = ext/x\n\turl = https://a.org/x.git\n'
    )
    (editor.folder / "ext/x").mkdir(parents=True)
    editor.open("fill.cu", INCLUDES.replace("config.hpp", "x/config.hpp"))
    ((*_, message),) = await editor.until(editor.diagnostics)
    assert "git submodule update --init ext/x" in message
    (editor.folder / "ext/x/x").mkdir()
    (editor.folder / "ext/x/x/config.hpp").write_text("#define VALUE 7\n")
    await editor.until(lambda: not editor.diagnostics())


async def test_a_database_appears_where_the_client_watches_no_files(start) -> None:
    editor: Editor = await start(NEVER_WATCHES, constants=SOON)
    cmake_project(editor)
    editor.open("src/fill.cu", NEEDS_A_FLAG)
    ((*_, message),) = await editor.until(editor.diagnostics)
    assert message.startswith('identifier "VALUE" is undefined')
    database(editor, 7)
    await editor.until(lambda: not editor.diagnostics())
    assert "as build/compile_commands.json says" in await editor.hover(0)


async def test_a_client_that_watches_files_is_asked_to_watch_the_build_and_tells_of_it(start) -> None:
    editor: Editor = await start(WATCHES)
    cmake_project(editor)
    editor.open("src/fill.cu", NEEDS_A_FLAG)
    await editor.until(editor.diagnostics)
    (watching,) = [
        each for each in editor.registered if each.method == lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES
    ]
    assert "compile_commands.json" in str(watching.register_options)
    tell(editor, database(editor, 7), lsp.FileChangeType.Created)
    await editor.until(lambda: not editor.diagnostics())
    tell(editor, database(editor, "wrong"), lsp.FileChangeType.Changed)
    ((*_, message),) = await editor.until(editor.diagnostics)
    assert message == 'identifier "wrong" is undefined'
