"""Errors at each keystroke, and files and compilers that are hard to tell the truth about: in an editor, with the real nvcc."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp

from orbit_remote.toolchain import nvcc
from tests.e2e.conftest import Editor
from tests.e2e.test_compile import WaitingCompiler, compiler
from tests.remote.nvcc_check import COMPILER, needs_nvcc
from tests.remote.test_front_end import linux

__all__ = ["compiler"]  # a fixture
pytestmark = needs_nvcc

KERNEL = "__global__ void scale(float* x) { x[threadIdx.x] *= 2; }\n"
NEVER = {
    "orbit_lsp.features.idle_compile._SHORTEST_S": 1e6,
    "orbit_lsp.features.idle_compile._LONGEST_S": 1e6,
}
"""Pauses in typing that nothing is compiled in: what is shown before a save is the waiting front end's."""
AGAIN_S = 0.2


class Published(dict[str, Any]):
    """The diagnostics of each file, and the messages of all that were ever published."""

    def __init__(self) -> None:
        self.ever: list[str] = []

    def __setitem__(self, uri: str, diagnostics: Any) -> None:
        self.ever += [each.message for each in diagnostics]
        super().__setitem__(uri, diagnostics)


async def typed(editor: Editor, word: str) -> list[tuple[str, int, int, int, str]]:
    """Type a line with another name of this beginning until the front end waits, and has its say of one."""
    number = 0

    async def another() -> list[tuple[str, int, int, int, str]]:
        nonlocal number
        number += 1
        editor.edit(1, 0, 100, f"  x[0] = {word}{number % 10};")
        await editor.hover(1)
        return editor.diagnostics()

    return await editor.asked_until(another, lambda shown: any(word in each[4] for each in shown), AGAIN_S)


@linux
async def test_an_error_comes_at_a_keystroke_without_a_save_and_goes_with_it(start) -> None:
    editor: Editor = await start("vscode", compile_on_idle=True, constants=NEVER)
    editor.open("k.cu", "__global__ void k(float* x) {\n  \n}\n")
    ((source, line, begin, end, message),) = await typed(editor, "wrong")
    assert (source, line, begin, end) == ("nvcc", 1, 9, 15)
    assert "is undefined" in message
    editor.edit(1, 9, 15, "1")
    await editor.until(lambda: not editor.diagnostics())


@linux
@pytest.mark.parametrize(
    "text", ['#include "missing.h"\n\n', "#error no\n\n"], ids=["a missing header", "#error"]
)
async def test_while_a_file_cannot_be_compiled_typing_shows_no_error_of_it(start, text: str) -> None:
    editor: Editor = await start("vscode", compile_on_idle=True, constants=NEVER)
    editor.client.diagnostics = published = Published()
    editor.open("k.cu", text + "__global__ void k(float* x) { x[0] = 1; }\n")
    ((_, line, *_, first),) = await editor.until(editor.diagnostics)
    assert line == 0
    editor.edit(1, 0, 100, "__device__ float f() { return wrong; }")
    for _ in range(2):  # whoever speaks before a compile is done is not nvcc
        before = len(editor.messages())
        await editor.command("orbit.compile", {"uri": editor.uri})
        await editor.until(lambda before=before: len(editor.messages()) > before)
        editor.edit(1, 30, 35, "wrong")
    assert set(published.ever) == {first}


@pytest.mark.slow
async def test_two_compilers_of_different_versions_are_each_asked_about_their_own_text(
    start, tmp_path: Path
) -> None:
    """An answer of one compiler does not stand for the other's, though the file is the same."""
    assert isinstance(COMPILER, nvcc.Nvcc)
    older = tmp_path / "older" / "nvcc"
    older.parent.mkdir()
    older.write_text(f'#!/bin/sh\nexec "{COMPILER.path}" -D__OLDER__=1 "$@"\n')
    older.chmod(0o755)
    text = KERNEL + "#ifdef __OLDER__\nint only_newer = ;\n#endif\n"
    for path, errors in ((COMPILER.path, 0), (str(older), 1), (COMPILER.path, 0)):
        editor: Editor = await start("vscode", nvcc=path)
        editor.open("k.cu", text)
        if errors:
            ((_, line, *_, message),) = await editor.until(editor.diagnostics)
            assert (line, message) == (2, "expected an expression")
        else:
            await editor.asked_until(editor.hints, bool)
            assert not editor.diagnostics()


@pytest.mark.parametrize("place", ["a read-only folder", "outside any folder"])
@pytest.mark.slow
async def test_where_the_file_lies_does_not_matter(start, tmp_path: Path, place: str) -> None:
    editor: Editor = await start("vscode")
    folder = editor.folder / "locked" if place == "a read-only folder" else tmp_path / "elsewhere"
    folder.mkdir()
    path = folder / "k.cu"
    path.write_text(KERNEL.replace("2", "wrong"))
    folder.chmod(0o555)
    try:
        editor.uri, editor.version = path.as_uri(), 1
        item = lsp.TextDocumentItem(editor.uri, "cuda", 1, path.read_text())
        editor.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        ((_, _, begin, end, message),) = await editor.until(editor.diagnostics)
        assert (begin, end, message) == (52, 57, 'identifier "wrong" is undefined')
        assert [file.name for file in folder.iterdir()] == ["k.cu"]
    finally:
        folder.chmod(0o755)


ONE_OF_THREE = """\
#define KERNELS(T) \\
  __global__ void a_##T(T* x) { x[0] = x[1]; } \\
  __global__ void b_##T(T* x) { x[0] = WORD; } \\
  __global__ void c_##T(T* x) { x[0] = x[2]; }
KERNELS(float)
"""


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("k.cu", ONE_OF_THREE, [(4, 0, 7, 'identifier "WORD" is undefined')]),
        (
            "k.cu",
            '#line 100 "generator.in"\n__global__ void k(int* x) { x[0] = wrong; }\n',
            [(1, 35, 40, 'identifier "wrong" is undefined')],
        ),
        pytest.param(
            "k.cu",
            "".join(f"__device__ int v{at};\n" for at in range(50_000))
            + "__global__ void k() { v1 = wrong; }\n",
            [(50_000, 0, 35, 'identifier "wrong" is undefined')],
            marks=pytest.mark.slow,
        ),
        (
            "k.cuh",
            '#include "broken.h"\n__global__ void k(int* x) { x[0] = wrong; }\n',
            [
                (1, 35, 40, 'identifier "wrong" is undefined'),
                (0, 9, 19, 'identifier "nowhere" is undefined'),  # at the line that leads to it
            ],
        ),
    ],
    ids=["a macro of three kernels", "#line", "50,000 lines", "a .cuh that nothing includes"],
)
async def test_texts_that_are_hard_to_point_into(start, name: str, text: str, expected: list[Any]) -> None:
    editor: Editor = await start("vscode")
    (editor.folder / "broken.h").write_text("inline int f() { return nowhere; }\n")
    editor.open(name, text)
    await editor.until(editor.diagnostics)
    assert [diagnostic[1:] for diagnostic in editor.diagnostics()] == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("printf 'k.cu(1): error: b\\377d \\200\\n' >&2; exit 1", "b\ufffdd \ufffd"),
        ("kill -SEGV $$", "crashed (signal 11)"),
        ("kill -ABRT $$", "crashed (signal 6)"),
        pytest.param("exec sleep 100000", "build_timeout_s", marks=pytest.mark.slow),
    ],
    ids=["bytes that are no UTF-8", "a crash", "an abort", "a compile that takes long"],
)
async def test_a_compiler_that_gives_no_answer_is_a_message_and_no_squiggle(
    start, compiler: WaitingCompiler, script: str, expected: str
) -> None:
    compiler.cicc.write_text(f"#!/bin/bash\n{script}\n")
    limits = {"build_timeout_s": 3} if "timeout" in expected else {}
    editor: Editor = await start("vscode", nvcc=str(compiler.nvcc), **limits)
    editor.open("k.cu", KERNEL)
    await editor.until(lambda: editor.messages() or editor.diagnostics())
    shown = [message for _, line, _, _, message in editor.diagnostics() if line == 0]
    (text,) = [*editor.messages(), *shown]
    assert expected in text
    assert bool(shown) == ("\ufffd" in text)


async def test_costs_stand_on_the_kernel_with_an_action_that_mends_them(start) -> None:
    editor: Editor = await start("vscode")
    text = (
        "__global__ void gather(float* x, int n) {\n  float kept[48] = {};\n"
        "  for (int i = 0; i < 48; ++i) kept[i * n % 48] += x[i];\n  x[blockIdx.x * blockDim.x + threadIdx.x] = kept[n % 48];\n}\n"
        "int main() { gather<<<(100000 + 31) / 32, 32>>>(nullptr, 1); }\n"
    )
    editor.open("k.cu", text)
    ((source, line, begin, end, message),) = await editor.until(editor.diagnostics)
    assert (source, line, begin, end) == ("orbit", 0, 16, 22)
    assert message.startswith("each thread has 192 B of local memory")
    assert editor.client.diagnostics[editor.uri][0].code == "local-memory"
    (action,) = [action for action in await editor.drafts(0) if "threads a block" in action.title]
    assert action.title.startswith("Launch gather with 64 threads a block: occupancy 100% instead of 50%")


async def test_an_action_writes_the_include_that_a_name_needs_and_one_the_file_for_clangd(start) -> None:
    editor: Editor = await start("vscode")
    editor.open("k.cu", "#include <cstdio>\n__global__ void k(half* x) { x[0] = x[1]; }\n")
    await editor.until(editor.diagnostics)
    (action,) = [action for action in await editor.drafts(1) if "#include" in action.title]
    assert action.title == "Add #include <cuda_fp16.h>"
    editor.edit(0, 0, 0, "#include <cuda_fp16.h>\n")
    editor.save("#include <cuda_fp16.h>\n#include <cstdio>\n__global__ void k(half* x) { x[0] = x[1]; }\n")
    await editor.until(lambda: not editor.diagnostics())
    (action,) = [action for action in await editor.drafts(0) if "clangd" in action.title]
    assert action.edit
    created, _ = action.edit.document_changes or []
    assert isinstance(created, lsp.CreateFile)
    assert created.uri == (editor.folder / ".clangd").as_uri()
