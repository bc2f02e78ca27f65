"""Compile errors and static figures in an editor, with the real compilers and no GPU."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from lsprotocol import types as lsp

from orbit_lsp.views import labels
from orbit_lsp.views.compiler import gpu_occupancy
from orbit_remote.common import limits
from orbit_remote.common import messages as c
from orbit_remote.toolchain import disassembly, nvcc
from tests.e2e.conftest import Editor, own_cache
from tests.e2e.forks import LIMIT_S
from tests.first_cases import first_of
from tests.remote.nvcc_check import COMPILER

KERNEL = "__global__ void scale(float* x) { x[threadIdx.x] *= 2; }\n"


async def test_static_figures_stand_on_the_kernels_line(start) -> None:
    editor: Editor = await start("vscode")
    editor.open("k.cu", KERNEL + "int main() { scale<<<1, 128>>>(nullptr); }\n")
    await editor.until(lambda: lsp.WORKSPACE_INLAY_HINT_REFRESH in editor.refreshed)
    ((line, label),) = await _hints(editor)
    assert line == 0
    occupancy, registers, architecture = label.split(" · ")
    assert 0 < int(registers.removesuffix(" regs")) < 40
    assert (occupancy, architecture) == ("occ 100%", "sm_90a")
    assert "| registers per thread |" in await editor.hover(0)
    editor.edit(0, 45, 46, "x")
    stale = [(0, label.replace("sm_90a", "edited since"))]  # once the compiler has ended: figures come before
    assert await editor.asked_until(editor.hints, lambda hints: hints == stale)


async def test_a_hover_has_what_the_kernel_needs_on_every_gpu_and_the_curve_over_block_sizes(start) -> None:
    editor: Editor = await start("vscode", every_gpu="hover")
    editor.open("k.cu", KERNEL + "int main() { scale<<<1, 128>>>(nullptr); }\n")
    await _hints(editor)
    assert "soon: hover again" in await editor.hover(0)
    text = await editor.asked_until(lambda: editor.hover(0), lambda shown: "RTX PRO" in shown)
    rows = [re.split(r" *\| *", line)[1:-1] for line in text.splitlines() if line.startswith("| ")]
    result = {row[0]: row[1:] for row in rows}
    assert result["T4"][0] == "sm\\_75"
    assert result["B200"][3:5] == ["16 of 128 threads", "100%"]
    assert result["L40S"][3:5] == ["12 of 128 threads", "100%"]
    assert all(0 < int(result[gpu][1]) < 40 for gpu in gpu_occupancy.GPUS)
    assert "^ 128 now: 100%" in text


async def test_errors_come_while_typing_and_go_with_the_mistake(start) -> None:
    editor: Editor = await start("vscode", compile_on_idle=True)
    editor.open("k.cu", KERNEL)
    await _hints(editor)
    editor.edit(0, 34, 35, "wrong")
    ((source, line, begin, end, text),) = await editor.until(editor.diagnostics)
    assert (source, line, begin, end, text) == ("nvcc", 0, 34, 39, 'identifier "wrong" is undefined')
    editor.edit(0, 34, 39, "x")
    await editor.until(lambda: not editor.diagnostics())
    assert "edited since" not in (await editor.hints())[0][1]


@pytest.mark.parametrize("name", first_of(["helix", "emacs"]))
async def test_where_hints_cannot_be_refreshed_figures_are_a_hint_diagnostic_too(start, name: str) -> None:
    editor: Editor = await start(name)
    editor.open("k.cu", "// scale\n" + KERNEL)

    def compiled() -> list[tuple[str, int, int, int, str]]:
        return [each for each in editor.diagnostics() if not each[4].endswith(labels.COMPILING)]

    ((source, line, begin, end, before),) = await editor.until(compiled)
    assert (source, line, begin, end) == ("orbit", 0, 0, 8)  # above the kernel, where there is room
    assert editor.client.diagnostics[editor.uri][0].severity == lsp.DiagnosticSeverity.Hint
    assert await editor.hints() == [(0, before)]
    editor.edit(1, 22, 28, "double*")
    editor.edit(0, 0, 0, "// y *= 2\n")
    editor.save("// y *= 2\n// scale\n" + KERNEL.replace("float*", "double*"))
    ((_, _, begin, end, after),) = await editor.until(
        lambda: [
            diagnostic
            for diagnostic in compiled()
            if diagnostic[1] == 1 and "before your" not in diagnostic[4]
        ]
    )
    assert (begin, end) == (0, 8)
    assert await editor.hints() == [(1, after)]


async def test_an_error_at_its_column_under_macros_tabs_and_other_alphabets(start) -> None:
    editor: Editor = await start("neovim-0.12")  # counts in bytes
    text = "#define N 4\n\t/* é 日本 𝄞 */ __global__ void k(float* x) { x[N] = undefined_name; }\n"
    editor.open("k.cu", text)
    ((source, line, start_column, end_column, message),) = await editor.until(editor.diagnostics)
    in_bytes = text.split("\n")[1].encode()
    assert (source, line, message) == ("nvcc", 1, 'identifier "undefined_name" is undefined')
    assert in_bytes[start_column:end_column] == b"undefined_name"


async def test_the_chain_of_instantiations_is_related_information(start) -> None:
    editor: Editor = await start("vscode")
    editor.open(
        "k.cu",
        'template <class T> __device__ T half_of(T v) { static_assert(sizeof(T) > 2, "too small"); return v / 2; }\n'
        "__global__ void k(short* x) { x[0] = half_of(x[0]); }\n",
    )
    await editor.until(editor.diagnostics)
    (result,) = editor.client.diagnostics[editor.uri]
    assert result.message == 'static assertion failed with "too small"'
    assert result.related_information
    (step,) = result.related_information
    assert (step.location.uri, step.location.range.start.line) == (editor.uri, 1)
    assert step.message.startswith("detected during")


async def test_an_error_in_a_header_stands_in_the_header_and_goes_with_its_fix(start) -> None:
    editor: Editor = await start("vscode")
    header = editor.folder / "half.cuh"
    header.write_text("__device__ float half_of(float v) { return v / two; }\n")
    editor.open("k.cu", '#include "half.cuh"\n__global__ void k(float* x) { x[0] = half_of(x[0]); }\n')
    await editor.until(lambda: editor.client.diagnostics.get(header.as_uri()))
    (result,) = editor.client.diagnostics[header.as_uri()]
    await editor.until(editor.diagnostics)
    ((_, line, *_, message),) = editor.diagnostics()  # and at the line that leads there
    assert (line, 'identifier "two" is undefined' in message) == (0, True)
    assert result.message == 'identifier "two" is undefined'
    header.write_text("__device__ float half_of(float v) { return v / 2; }\n")
    change = lsp.FileEvent(header.as_uri(), lsp.FileChangeType.Changed)
    editor.client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams([change]))
    await editor.until(lambda: not editor.client.diagnostics[header.as_uri()])
    await editor.until(lambda: not editor.diagnostics())


@pytest.mark.parametrize("grows", [False, True])
async def test_a_file_that_is_too_long_is_left_alone_until_it_is_opened_again(start, grows: bool) -> None:
    kernel, long = "__global__ void k() {}\n", " " * limits.OPENED.most
    editor: Editor = await start("vscode")
    editor.open("k.cu", kernel if grows else kernel + long)
    if grows:
        assert await editor.lenses()
        editor.edit(1, 0, 0, long)
    assert await editor.lenses() == []
    assert editor.messages() == [
        f"k.cu is left alone: {limits.OPENED.exceeded}. Make it shorter and open it again."
    ]
    editor.edit(0, 0, 0, "// what is sent of it now means nothing\n")
    assert await editor.lenses() == []
    editor.client.text_document_did_close(
        lsp.DidCloseTextDocumentParams(lsp.TextDocumentIdentifier(editor.uri))
    )
    editor.open("k.cu", kernel)
    assert await editor.lenses()


async def test_a_header_has_lenses_and_figures_through_its_source_and_a_kernel_may_be_typed_later(
    start,
) -> None:
    editor: Editor = await start("vscode")
    (editor.folder / "src").mkdir()
    (editor.folder / "src/main.cu").write_text('using Real = float;\n#include "../scale.hpp"\n')
    ordinary = "// see kernels\nvoid scale(Real* x) { x[0] *= 2; }\n"
    editor.open("scale.hpp", ordinary)
    assert (await editor.lenses(), await editor.hints(), editor.messages()) == ([], [], [])
    editor.edit(1, 0, 0, "__global__ ")
    ((line, title),) = await editor.asked_until(editor.titles, bool)
    assert (line, title) == (1, "✎ Draft a launch spec: this file has no main")
    editor.save(ordinary.replace("void", "__global__ void"))
    ((line, label),) = await _hints(editor)
    assert (line, " regs" in label) == (1, True)
    assert not editor.diagnostics()


async def test_cuda_in_a_string_of_python_has_figures_and_what_a_program_makes_says_why_it_has_none(
    start,
) -> None:
    editor: Editor = await start("vscode")
    text = "import cupy\nk = cupy.RawKernel('''\nextern \"C\" __global__ void k(float* x) { x[0] = 1; }\n''', 'k')\n"
    editor.open("k.py", text)
    ((line, label),) = await _hints(editor)
    assert (line, " regs" in label, "edited since" in label) == (2, True, False)
    editor.open("made.py", text.replace("'k'", "NAME").replace("RawKernel(", "RawKernel(HEAD + "))
    assert "compiled only while the program runs" in await editor.hover(2)


async def test_a_macro_of_the_projects_own_headers_names_kernels(start) -> None:
    editor: Editor = await start("vscode")
    for name in ("include/lib/detail", "src"):
        (editor.folder / name).mkdir(parents=True)
    (editor.folder / "include/lib/detail/kernel.h").write_text("#define LIB_ENTRY __global__ void\n")
    (editor.folder / "include/lib/all.h").write_text('#include "detail/kernel.h"\n')
    editor.open("src/k.cu", "#include <lib/all.h>\nLIB_ENTRY k(float* x) { x[0] = 1; }\n")
    assert await editor.asked_until(editor.titles, bool) == [
        (1, "✎ Draft a launch spec: this file has no main")
    ]
    assert " regs" in (await _hints(editor))[0][1]


async def test_a_warning_has_its_number_as_code_and_a_tag(start) -> None:
    editor: Editor = await start("vscode")
    editor.open("k.cu", "__global__ void k(float* x) { int unused; x[0] = 1; }\n")
    await editor.until(editor.diagnostics)
    (result,) = [
        diagnostic for diagnostic in editor.client.diagnostics[editor.uri] if diagnostic.source == "nvcc"
    ]
    assert (result.severity, result.code) == (lsp.DiagnosticSeverity.Warning, "#177-D")
    assert list(result.tags or ()) == [lsp.DiagnosticTag.Unnecessary]


async def test_what_is_typed_while_it_compiles_is_not_lost(start) -> None:
    editor: Editor = await start("vscode")
    editor.open("k.cu", KERNEL.replace("2", "wrong"))
    editor.edit(0, 52, 57, "3")  # before the compiler has answered
    editor.save(KERNEL.replace("2", "3"))
    await editor.until(lambda: lsp.WORKSPACE_INLAY_HINT_REFRESH in editor.refreshed)
    await _hints(editor)
    assert editor.diagnostics() == []


@pytest.mark.slow
async def test_line_ends_and_byte_order_marks(start) -> None:
    editor: Editor = await start("vscode")
    for number, (ending, bom) in enumerate(itertools.product(("\n", "\r\n"), ("", "\ufeff"))):
        text = f"{bom}// first{ending}__global__ void k(float* x) {{ x[0] = wrong; }}{ending}"
        editor.open(f"k{number}.cu", text)
        results = await editor.until(editor.diagnostics)
        assert [(line, start) for _, line, start, _, _ in results] == [(1, 37)], (ending, bom)


async def test_no_compiler_is_said_once_with_what_mends_it(start) -> None:
    editor: Editor = await start("vscode", nvcc="/nowhere/nvcc")
    editor.open("k.cu", KERNEL)
    (message,) = await editor.until(lambda: [text for text in editor.messages() if "/nowhere/nvcc" in text])
    assert "nvcc" in message
    editor.save(KERNEL)
    assert await editor.titles() == [(0, "✎ Draft a launch spec: this file has no main")]
    assert len([text for text in editor.messages() if "/nowhere/nvcc" in text]) == 1


async def test_a_broken_compiler_is_said(start, tmp_path: Path) -> None:
    broken = tmp_path / "nvcc"
    broken.write_text("#!/bin/sh\necho 'nvcc: internal catastrophe' >&2\nexit 3\n")
    broken.chmod(0o755)
    editor: Editor = await start("vscode", nvcc=str(broken))
    editor.open("k.cu", KERNEL)
    await editor.until(lambda: any(str(broken) in text for text in editor.messages()))


class WaitingCompiler:
    """The toolkit of these tests with one program in place of another: `cicc`, which waits if `wait` exists when it
    begins, until `go` does.
    """

    def __init__(self, folder: Path) -> None:
        assert isinstance(COMPILER, nvcc.Nvcc)
        root = Path(COMPILER.root)
        self.nvcc = folder / "bin" / "nvcc"
        self.nvcc.parent.mkdir(parents=True)
        for program in (root / "bin").iterdir():
            (folder / "bin" / program.name).symlink_to(program)
        self.wait = folder / "wait"
        self.wait.touch()
        self.go = folder / "go"
        self._begun = folder / "begun"
        os.mkfifo(self._begun)
        self.cicc = folder / "nvvm" / "cicc"
        self.cicc.parent.mkdir()
        self.cicc.write_text(
            f'#!/bin/sh\nif [ -e "{self.wait}" ]; then echo $$ > "{self._begun}"; until [ -e "{self.go}" ]; do sleep 0.1; done; fi\n'
            f'exec "{root}/nvvm/bin/cicc" "$@"\n'
        )
        self.cicc.chmod(0o755)
        profile = (root / "bin" / "nvcc.profile").read_text()
        places = {"TOP": root, "CICC_PATH": self.cicc.parent}
        for name, place in places.items():
            profile, count = re.subn(rf"(?m)^{name}\s*=.*$", f"{name} = {place}", profile)
            assert count == 1, profile
        written = folder / "bin" / "nvcc.profile"
        written.unlink()
        written.write_text(profile)
        self._reader = os.open(self._begun, os.O_RDONLY | os.O_NONBLOCK)

    async def begun(self) -> int:
        """The id of the process, once it waits."""
        await readable(self._reader)
        return int(os.read(self._reader, 100))

    def close(self) -> None:
        os.close(self._reader)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WaitingCompiler]:
    own_cache(monkeypatch, tmp_path)  # nothing in it is built already
    made = WaitingCompiler(tmp_path / "toolkit")
    yield made
    made.close()


async def readable(descriptor: int) -> None:
    """Wait until it can be read; a process's pidfd can when the process has ended."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, event.set)
    try:
        async with asyncio.timeout(LIMIT_S):
            await event.wait()
    finally:
        loop.remove_reader(descriptor)


linux = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the end of a process that is no child")


@pytest.mark.slow
async def test_the_compiler_is_killed_and_the_next_save_works(start, compiler: WaitingCompiler) -> None:
    editor: Editor = await start("vscode", nvcc=str(compiler.nvcc))
    editor.open("k.cu", KERNEL)
    os.kill(await compiler.begun(), signal.SIGKILL)
    await editor.until(lambda: any("was killed" in text for text in editor.messages()))
    compiler.wait.unlink()
    editor.save(KERNEL)
    await _hints(editor)


@pytest.mark.parametrize("name", first_of(["vscode", "helix", "emacs", "neovim-0.12"]))
@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
async def test_a_kernel_says_that_it_is_compiled_until_that_ends(
    start, compiler: WaitingCompiler, name: str, end: str
) -> None:
    """In a hint, in Helix in a diagnostic too; beside the editor's own progress."""
    editor: Editor = await start(name, nvcc=str(compiler.nvcc))
    editor.open("k.cu", KERNEL)
    waiting = await compiler.begun()
    assert await editor.asked_until(editor.all_hints, bool) == [(0, "compiling…")]
    if name == "helix":
        shown = editor.client.diagnostics
        await editor.until(lambda: [each.message for each in shown.get(editor.uri, [])] == ["compiling…"])
    await editor.until(lambda: editor.client.progress_reports)
    if end == "done":
        compiler.go.touch()
    elif end == "failed":
        os.kill(waiting, signal.SIGKILL)
    else:
        await editor.cancel_bar()
    hints = await editor.asked_until(editor.all_hints, lambda hints: (0, "compiling…") not in hints)
    assert bool(hints) == (end == "done")
    await editor.until(lambda: editor.ended(compilations=True))


@pytest.mark.slow
async def test_a_compilation_that_a_newer_text_ends_says_nothing(start, compiler: WaitingCompiler) -> None:
    editor: Editor = await start("vscode", nvcc=str(compiler.nvcc))
    editor.open("k.cu", KERNEL)
    await compiler.begun()
    await editor.until(lambda: editor.client.progress_reports)
    compiler.wait.unlink()
    editor.edit(0, 52, 53, "3")
    editor.save(KERNEL.replace("2", "3"))
    await _hints(editor)
    assert editor.ended(compilations=True)[0] is None


@linux
async def test_the_worker_is_killed_in_a_compile_and_nothing_is_left(
    start, compiler: WaitingCompiler
) -> None:
    editor: Editor = await start("vscode", nvcc=str(compiler.nvcc))
    editor.open("k.cu", KERNEL)
    waiting = os.pidfd_open(await compiler.begun())
    server = psutil.Process(editor.client._server.pid)
    (worker,) = [child for child in server.children() if "worker" in child.cmdline()]
    worker.kill()
    await editor.until(lambda: any("ended unexpectedly" in text for text in editor.messages()))
    try:
        await readable(waiting)
    finally:
        os.close(waiting)
    compiler.wait.unlink()
    editor.save(KERNEL)
    await _hints(editor)


async def test_flags_of_a_workspace_that_is_not_trusted(start) -> None:
    editor: Editor = await start("vscode")
    commands = editor.folder / "compile_commands.json"
    source = editor.folder / "k.cu"
    commands.write_text(
        f'[{{"directory": "{editor.folder}", "file": "{source}", "arguments": '
        '["nvcc", "-DVALUE=7", "-ccbin", "./evil.sh", "k.cu"]}]'
    )
    editor.open("k.cu", "__global__ void k(int* x) { x[0] = VALUE; }\n")
    await editor.until(lambda: any("-ccbin" in text for text in editor.messages()))
    await _hints(editor)
    assert editor.diagnostics() == []  # and VALUE is known


async def test_triton_is_compiled_on_command_and_then_while_its_kernels_are_typed(
    start, tmp_path: Path
) -> None:
    editor: Editor = await start("vscode", compile_on_idle=True, trusted=True)
    ran = tmp_path / "imported"
    editor.open(
        "k.py",
        f"""\
import pathlib
pathlib.Path({str(ran)!r}).touch()
import triton
import triton.language as tl

if True:
    @triton.jit
    def k(x, N: tl.constexpr = 8):
        tl.store(x + tl.arange(0, N), 日本 := missing)
""".replace("日本 := ", ""),
    )
    assert await editor.titles() == [
        (7, "✎ Draft a launch spec: no main, benchmark or test here"),
        (7, "Compile (imports this file): no registers yet"),
    ]
    editor.save((editor.folder / "k.py").read_text())
    await editor.hover(7)
    assert not ran.exists()
    await editor.command("orbit.compile", {"uri": editor.uri})
    ((source, line, start_column, end_column, message),) = await editor.until(editor.diagnostics)
    assert ran.exists()
    assert (source, line, start_column, end_column) == ("triton", 8, 38, 45)
    assert "missing is not defined" in message
    ran.unlink()
    editor.edit(8, 38, 45, "N")
    await editor.until(lambda: not editor.diagnostics() and ran.exists())
    ran.unlink()
    editor.edit(3, 0, 0, "print()\n")
    editor.save((editor.folder / "k.py").read_text())
    editor.edit(3, 0, 7, "")
    editor.edit(9, 38, 39, "wrong")
    ((*_, message),) = await editor.until(editor.diagnostics)
    assert "wrong is not defined" in message
    assert ran.exists()


@pytest.mark.slow
async def test_a_syntax_error_of_a_triton_file_is_shown_while_typing_and_once(start) -> None:
    editor: Editor = await start("vscode", compile_on_idle=True, trusted=True)
    editor.open("k.py", "import triton\n\n@triton.jit\ndef k(x, n):\n    pass\n")
    await editor.titles()
    editor.edit(4, 4, 8, "f(x))")
    (error,) = await editor.until(editor.diagnostics)
    assert error == ("python", 4, 8, 9, "SyntaxError: unmatched ')'")
    await editor.command("orbit.compile", {"uri": editor.uri})
    await editor.until(lambda: editor.ended(compilations=True))
    await editor.titles()
    assert editor.diagnostics() == [error]
    editor.edit(4, 8, 9, "")
    await editor.until(lambda: not editor.diagnostics())


@pytest.mark.slow
async def test_a_triton_kernel_on_every_gpu_and_over_num_warps_after_a_compile_that_was_asked_for(
    start,
) -> None:
    """With the types of its launch spec. Floats of e4m3 are there from compute capability 8.9 on."""
    pytest.importorskip("triton")
    editor: Editor = await start("vscode")
    text = """\
import triton
import triton.language as tl

# orbit: x = randn(36864); y = empty(36864)
# orbit: launch square[(9,)](x, y, N=4096, num_warps=1)
@triton.jit
def square(x, y, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    value = tl.load(x + at)
    tl.store(y + at, (value * value).to(tl.float8e4nv).to(tl.float32))
"""
    editor.open("k.py", text)
    assert "every GPU" not in (await editor.hover(6) or "")
    await editor.command("orbit.compile", {"uri": editor.uri})
    await _hints(editor)
    assert "in the background, once the machine is idle after a Compile" in await editor.hover(6)
    shown = await editor.asked_until(lambda: editor.hover(6), lambda shown: "RTX PRO" in shown)
    rows = [re.split(r" *\| *", line)[1:-1] for line in shown.splitlines() if line.startswith("| ")]
    result = {row[0]: row[1:] for row in rows}
    assert re.search(r"compiled by Triton for each with N 4096, .*x \\\*fp32, 16-byte aligned", shown)
    assert result["A100"][:2] == ["sm\\_80", "does not compile"]
    assert "fp8e4nv" in result["A100"][-1]
    assert all(result[gpu][1].isdigit() for gpu in gpu_occupancy.GPUS if gpu not in ("T4", "A10", "A100"))
    assert [name for name in result if name.removesuffix(" now").isdigit()] == [
        "1 now",
        "2",
        "4",
        "8",
        "16",
    ]
    (action,) = [action for action in await editor.drafts(6) if "num_warps" in action.title]
    assert action.title.startswith("Launch square with num_warps=")
    assert "instead of 31.2% (28 registers" in action.title
    assert action.edit
    [document] = action.edit.document_changes or []
    assert isinstance(document, lsp.TextDocumentEdit)
    assert [
        (edit.range.start.line, text.split("\n")[4][: edit.range.start.character]) for edit in document.edits
    ] == [(4, "# orbit: launch square[(9,)](x, y, N=4096, num_warps=")]
    editor.edit(9, 4, 4, "9 * ")
    assert "on every GPU" not in await editor.hover(6)


@pytest.mark.slow
async def test_every_level_that_triton_makes_is_opened(
    start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    own_cache(monkeypatch, tmp_path)
    editor: Editor = await start("vscode")
    text = "@triton.jit\ndef k(x, N: tl.constexpr = 8):\n    tl.store(x + tl.arange(0, N), 1.0)\n"
    editor.open("k.py", f"import triton\nimport triton.language as tl\n\n{text}")
    levels = {"ttir": "tt.store", "ttgir": "#blocked", "ptx": "st.global", "sass": "STG"}
    for number, (level, word) in enumerate(levels.items(), 1):
        if level == "sass" and isinstance(disassembly.find(), c.Failure):
            continue
        await editor.command("orbit.disassemble", {"uri": editor.uri, "kernel": "k", "kind": level})
        shown = await editor.until(lambda number=number: editor.client.shown_documents[number - 1 :])
        (file,) = (tmp_path / "cache" / "orbit-lsp" / "listings").glob(f"*.{level}")
        assert shown[0].uri == file.as_uri()
        assert word in file.read_text()


@pytest.mark.slow
async def test_files_that_are_hardly_files(start) -> None:
    editor: Editor = await start("vscode")
    for name, text in {
        "empty.cu": "",
        "empty.py": "",
        "nul.cu": "__global__ void k() {}\0\0\n",
        "nul.py": "import triton\n\0\n",
        "line.cu": "int x; " * 200_000,
        "surrogate.cu": "/* 𝄞𝄞 */ __global__ void k(float* x) { x[0] = wrong; }",
    }.items():
        editor.open(name, text)
        await editor.lenses()
    assert await editor.titles() == [(0, "✎ Draft a launch spec: this file has no main")]
    assert [(start, end) for _, _, start, end, _ in await editor.until(editor.diagnostics)] == [(48, 53)]


async def _hints(editor: Editor) -> list[tuple[int, str]]:
    """Ask again after every refresh until there are some."""
    return await editor.asked_until(editor.hints, bool)


@pytest.mark.skipif(isinstance(disassembly.find(), c.Failure), reason="there is no nvdisasm")
@pytest.mark.slow
async def test_sass_follows_the_file(start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opened at the line of the cursor; its instructions in the hover of their line, and how many behind it; made again, and
    marked, at a save.
    """
    own_cache(monkeypatch, tmp_path)
    editor: Editor = await start("vscode", hints={"instructions": True})
    text = "__global__ void scale(float* x) {\n  x[threadIdx.x] *= 3;\n}\n"
    editor.open("k.cu", text)
    (action,) = [action for action in await editor.actions(1) if action.title == "Show SASS (scale)"]
    await editor.command("orbit.disassemble", *(action.arguments or []))
    folder = tmp_path / "cache" / "orbit-lsp" / "listings"
    (file,) = await editor.until(lambda: list(folder.glob("k-scale-*.sass")))
    (shown,) = await editor.until(lambda: editor.client.shown_documents)
    assert shown.uri == file.as_uri()
    assert not file.stat().st_mode & 0o222
    assert shown.selection
    assert shown.take_focus is False
    assert file.read_text().split("\n")[shown.selection.start.line] == "// k.cu:2    x[threadIdx.x] *= 3;"
    hover = await editor.hover(1)
    assert "scale, this line: " in hover
    assert "multiplies fp32" in hover
    labels = await editor.asked_until(editor.hints, lambda hints: any(line == 1 for line, _ in hints))
    assert all(f"scale, this line: {label}" in hover for line, label in labels if line == 1)

    text = text.replace("*= 3", "+= 4")
    editor.edit(1, 17, 21, "+= 4")
    assert "scale, this line" not in (await editor.hover(1) or "")
    editor.save(text)
    async with asyncio.timeout(LIMIT_S):  # no message follows when the file is written, and its hover known
        while "adds fp32" not in (await editor.hover(1) or ""):
            pass
    assert [line for line in file.read_text().splitlines() if line.startswith("+ ") and "FADD" in line]
    assert [line for line in file.read_text().splitlines() if line.startswith("- ") and "FMUL" in line]
