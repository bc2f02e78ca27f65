"""Quick fixes: a file with a mistake in, nvcc's error, the title of its fix; the file with the edit compiles."""

from __future__ import annotations

import pytest
from lsprotocol import types as lsp

from orbit_lsp.state.documents import TextChange
from orbit_lsp.state.session import path_of, uri_of
from orbit_lsp.views.compiler import quick_fixes
from orbit_remote.common import messages as c
from tests.remote.nvcc_check import built, needs_nvcc
from tests.test_views import Bench


def offered(bench: Bench) -> list[lsp.CodeAction]:
    lines = len(bench.session.files[bench.uri].document.lines)
    return quick_fixes.actions(bench.session, bench.uri, 0, lines, versioned=False)


def applied(bench: Bench, action: lsp.CodeAction) -> str:
    """The text after the edit."""
    assert action.edit
    assert action.edit.changes
    document = bench.session.files[bench.uri].document
    for edit in action.edit.changes[bench.uri]:
        start, end = edit.range.start, edit.range.end
        change = TextChange((start.line, start.character), (end.line, end.character), edit.new_text)
        document.apply(document.version + 1, [change], "utf-16")
    return document.text


@needs_nvcc
@pytest.mark.parametrize(
    ("text", "title"),
    [
        pytest.param(
            "#include <cstdio>\n__global__ void k(float* x) { half h = __float2half(x[0]); x[1] = h; }\n",
            "Add #include <cuda_fp16.h>",
            id="half",
        ),
        pytest.param(
            "__global__ void k(int* x) { auto g = cg::this_thread_block(); x[0] = g.thread_rank(); }\n",
            "Add #include <cooperative_groups.h>",
            id="cg",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            '#include "k.h"\nint main() { std::vector<int> sizes(4); return int(sizes.size()); }\n',
            "Add #include <vector>",
            id="std",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "/* é */ __global__ void k(float* out) {\n  float total = 0; /* 日本 */ out[0] = totl;\n}\n"
            "__global__ void l(float* out) { float tots = 1; out[0] = tots; }\n",
            "Change totl to total",
            id="a name of the function around",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "__global__ void k(float* x) { x[threadIdx.x] = 1; __synchthreads(); x[0] = x[1]; }\n",
            "Change __synchthreads to __syncthreads",
            id="a name of CUDA",
        ),
        pytest.param(
            "__global__ void k(float* x) {\n  x[0] = 1  // one\n\n  x[1] = 2;\n}\n",
            "Add the missing ;",
            id="a semicolon",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "__global__ void k(float* x) { x[0] = 1 }\n",
            "Add the missing ;",
            id="before a brace",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_a_fix_mends_the_file(tmp_path, text: str, title: str) -> None:
    (tmp_path / "k.h").write_text("")
    result = await built(tmp_path, text)
    bench = Bench(text, uri_of(str(tmp_path / "k.cu"))).built(*result.built.problems)
    first = offered(bench)[0]
    assert first.title == title
    assert first.kind == lsp.CodeActionKind.QuickFix
    fixed = applied(bench, first)
    again = await built(tmp_path, fixed)
    assert [problem for problem in again.built.problems if problem.severity == "error"] == [], fixed


@pytest.mark.parametrize(
    ("text", "message", "word"),
    [
        ("__global__ void k(float* x) { x[0] = qqq; }\n", 'identifier "qqq" is undefined', "qqq"),
        ("__global__ void k() { cub::X t; }\n", 'expected a ";"', "t"),
        (
            "#include <cuda_fp16.h>\n__global__ void k() { half q; }\n",
            'identifier "half" is undefined',
            "half",
        ),
    ],
    ids=["no name is near", "a semicolon within a line", "the include is there"],
)
def test_nothing_is_offered_where_nothing_is_certain(text: str, message: str, word: str) -> None:
    line = next(number for number, name in enumerate(text.split("\n")) if word in name)
    column = text.split("\n")[line].rindex(word) + 1
    bench = Bench(text)
    place = c.Place(path_of(bench.uri), line + 1, column, column + len(word))
    bench.built(c.Problem("error", message, "nvcc", place))
    assert offered(bench) == []
