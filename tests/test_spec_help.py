"""Help while a launch spec is written: `|` marks the cursor."""

from __future__ import annotations

from textwrap import dedent

import pytest
from lsprotocol import types as lsp

from orbit_lsp.state.documents import to_client
from orbit_lsp.state.session import ClientAbilities, Session
from orbit_lsp.views.spec import spec_completion, spec_hover
from orbit_remote.common.nvcc_flags import allowed_flags

CUDA = """
#include <cuda_fp16.h>
__constant__ float weights[64];
__global__ void other(int n) {{}}
// orbit: n = 1 << 20; x = randn(n, dtype=half); y = empty(1024, 1024).T
{line}
template <typename T, int BLOCK, bool FAST>
__global__ void saxpy(int n, float alpha, const T* x, T* y) {{}}
"""
TRITON = """
import torch, triton
import triton.language as tl
def plain(x, y):
    return x + y
# orbit: n = 1000; x = randn(n); out = empty_like(x)
{line}
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    pass
"""


def at_cursor(line: str, language: str, encoding: str = "utf-16") -> tuple[Session, str, int, int]:
    mark = "//" if language == "cuda" else "#"
    text = (CUDA if language == "cuda" else TRITON).format(line=f"{mark} orbit: {line}")
    before = text[: text.index("|")]
    uri = "file:///src/k.cu" if language == "cuda" else "file:///src/k.py"
    session = Session(client=ClientAbilities(encoding=encoding))
    assert session.open(uri, 1, text.replace("|", "", 1))
    row = before.count("\n")
    return session, uri, row, to_client(before.rpartition("\n")[2], 10**6, encoding)


def offered(line: str, language: str = "cuda") -> list[lsp.CompletionItem]:
    completion_items = spec_completion.completions(*at_cursor(line, language))
    return sorted(completion_items or [], key=lambda completion_item: completion_item.sort_text or "")


def labels(line: str, language: str = "cuda") -> list[str]:
    return [completion_item.label for completion_item in offered(line, language)]


def first(line: str, count: int, language: str = "cuda") -> str:
    return " ".join(labels(line, language)[:count])


# -- completion -------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["cuda", "triton"])
def test_a_statement_begins_with_a_word_or_a_parameter(language: str) -> None:
    for line in ("|", "la|", "m = 3; |"):
        results = labels(line, language)
        assert {"launch", "expect", "sweep", "timeout", "symbol"} <= set(results)
        assert results[0] == ("alpha" if language == "cuda" else "y")
        assert "randn" not in results
    alpha = offered("|", language)[0]
    assert alpha.text_edit
    assert alpha.text_edit.new_text == ("alpha = " if language == "cuda" else "y = ")


@pytest.mark.parametrize(
    ("line", "language", "some"),
    [
        ("launch |", "cuda", "saxpy other"),
        ("launch sa|", "cuda", "saxpy other"),
        ("launch |", "triton", "add"),
        ("launch saxpy<|", "cuda", "__nv_bfloat16 __nv_fp8_e4m3"),
        ("launch saxpy<half, |", "cuda", "128 16 256 32 64 n x y"),
        ("launch saxpy<half, 256, |", "cuda", "false n true x y"),
        ("launch saxpy<half, 256, true><<<|", "cuda", "n x y dim3"),
        ("launch saxpy<half, 256, true><<<n / 256, 256>>>(|", "cuda", "n x y"),
        ("launch saxpy<half, 256, true><<<1, 1>>>(n, 1.0f, x, y) |", "cuda", "cluster cooperative"),
        ("launch add[(4,)](|", "triton", "BLOCK= n= out= x= y= n out x"),
        ("launch add[(4,)](x, x, |", "triton", "BLOCK= n= out="),
        ("launch add[(4,)](x, y=x, |", "triton", "BLOCK= n= out= n out x"),
        ("launch add[(4,)](x, y=x, num_|", "triton", "BLOCK= n= out= n out x enable_fp_fusion="),
        ("launch add[lambda META: (cdiv(n, META['|", "triton", "BLOCK"),
        ("gpu |", "cuda", "A10 A100-40GB"),
        ("gpu H|", "triton", "A10 A100-40GB"),
        ("flags -|", "cuda", "--expt-extended-lambda"),
        ("case tail: |", "cuda", "n x y"),
        ("symbol |", "cuda", "weights"),
        ("sweep |", "cuda", "alpha"),
        ("reference |", "triton", "n out x plain"),
        ("reference out == |", "triton", "n out x plain"),
        ("reference y == |", "cuda", "n x y other"),
        ("expect y == |", "cuda", "n x y"),
        ("expect y == x |", "cuda", "within"),
        ("expect y == x wi|", "triton", "within"),
        ("expect y == x within |", "cuda", "n x y"),
        ("z = n if |", "triton", "n out x"),
        ("z = n + |", "cuda", "n x y"),
        ("z = |", "cuda", "n x y dim3 abs amax"),
        ("z = ran|", "triton", "n out x abs"),
        ("z = x.|", "cuda", "dtype itemsize mT ndim shape T abs"),
        ("z = x.su|", "triton", "dtype itemsize"),
        ("z = torch.|", "triton", "bfloat16 bool float16"),
        ("z = randn(n, |", "cuda", "dtype= n x y"),
        ("z = randn(n, dtype=|", "triton", "bfloat16 bool"),
        ("z = x.sum(0, |", "triton", "dim= keepdim= n out x"),
    ],
)
def test_what_may_stand_there(line: str, language: str, some: str) -> None:
    assert first(line, len(some.split()), language) == some


@pytest.mark.parametrize(
    "line", ["args |", "z = n |", "z = (n |", "expect y |", 'stdin "|', "n2 = 3 // and |", 'z = "|', "case |"]
)
def test_where_nothing_can_be_offered(line: str) -> None:
    assert labels(line) == []


def test_nothing_is_offered_outside_of_specs() -> None:
    session, uri, row, column = at_cursor("n2 = |", "cuda")
    lines = session.files[uri].document.lines
    for line, text in enumerate(lines):
        for character in range(len(text)):
            if (line == row or "orbit:" in text) and character >= text.index("orbit:") + 6:
                continue
            assert spec_completion.completions(session, uri, line, character) is None
    assert spec_completion.completions(session, uri, row, column)
    assert spec_completion.completions(session, "file:///nowhere.cu", 0, 0) is None


def test_a_spec_above_no_kernel_is_helped_with_words_and_functions() -> None:
    session = Session()
    session.open("file:///src/k.cu", 1, "// orbit: \n// orbit: x = \nint main() {}\n")
    words = spec_completion.completions(session, "file:///src/k.cu", 0, 10)
    assert words
    assert "launch" in [word.label for word in words]
    values = spec_completion.completions(session, "file:///src/k.cu", 1, 14)
    assert values
    assert "randn" in [value.label for value in values]


def test_functions_come_with_their_use_and_their_line() -> None:
    completion_items = {completion_item.label: completion_item for completion_item in offered("z = r|")}
    assert completion_items["randn"].detail == "randn(*size, dtype=None)"
    assert completion_items["randn"].documentation == "normally distributed values"
    assert completion_items["x"].detail == "float16 (1048576,), 2 MiB"
    assert completion_items["__nv_bfloat16"].detail == "bfloat16, 2 bytes"


@pytest.mark.parametrize(("encoding", "column"), [("utf-8", 34), ("utf-16", 31), ("utf-32", 30)])
def test_what_is_replaced_is_in_the_clients_units(encoding: str, column: int) -> None:
    session, uri, row, character = at_cursor('s = "é🚀"; z = randn(3) + ra|', "cuda", encoding)
    completion_items = spec_completion.completions(session, uri, row, character)
    assert completion_items
    edit = next(
        completion_item.text_edit for completion_item in completion_items if completion_item.label == "rand"
    )
    assert isinstance(edit, lsp.TextEdit)
    assert character == edit.range.end.character == edit.range.start.character + 2
    assert edit.range.start.character == column + 5


def test_every_flag_that_is_offered_may_be_set() -> None:
    for flag in spec_completion.FLAGS:
        if not flag.startswith("-l"):
            assert allowed_flags(flag.split(), trusted=False)[1] == (), flag


def test_every_type_that_is_offered_is_known() -> None:
    for language in ("cuda", "triton"):
        for completion_item in offered("z = randn(1, dtype=|", language):
            assert completion_item.detail, completion_item.label


# -- hover ------------------------------------------------------------------------------------------


def hovered(line: str, language: str = "cuda", *, markdown: bool = False) -> str:
    session, uri, row, column = at_cursor(line, language)
    hover = spec_hover.hover(session, uri, row, column, markdown=markdown)
    return hover.contents.value if hover and isinstance(hover.contents, lsp.MarkupContent) else ""


LAUNCH = "launch saxpy<half, 256, true><<<n / 256, 256>>>(n, a, x, y)"


@pytest.mark.parametrize(
    ("line", "language", "text"),
    [
        ("z = |x", "cuda", "x: float16 (1048576,), 2 MiB"),
        ("z = x|", "cuda", "x: float16 (1048576,), 2 MiB"),
        ("z = |n", "cuda", "n: int32 1048576"),
        ("z = y|", "cuda", "y: float32 (1024, 1024), 4 MiB\nstrides (1, 1024), in elements\nits contents are not set before the launch"),
        ("z| = 2.5f", "cuda", "z: float32 2.5"),
        ("z = ran|d(3)", "cuda", "rand(*size, dtype=None)\nvalues evenly distributed over [0, 1)"),
        ("z = x.su|m()", "cuda", "sum(x, dim=None, keepdim=False)\nthe sum, over all elements or some dimensions"),
        ("z = x.sha|pe[0]", "triton", ".shape: the extents"),
        ("z = torch.ran|dn(3)", "triton", "randn(*size, dtype=None)\nnormally distributed values"),
        ("z = x.to(hal|f)", "cuda", "half(x)\nconverted to float16"),
        ("z = x.to(torch.float1|6)", "triton", "float16: 2 bytes an element\nexpect allows rtol 0.001, atol 1e-05"),
        ("z = sweep(1, 2); |z", "cuda", "z: int32 1\nthis is the first of 2 values that are run"),
        ("|z = sweep(1, 2)", "triton", "z: int 1\nthis is the first of 2 values that are run"),
        ("exp|ect y == x within 1e-3", "cuda", "expect: what an output must equal after the spec's launches have run once; computed from the original inputs"),
        ("expect y == x wit|hin 1e-3", "cuda", "within: the tolerance: |actual - expected| <= atol + rtol * |expected|, as in 'within rtol, atol'"),
        ("flag|s -O3", "cuda", "flags: compiler flags and libraries"),
        ("flags -O|3", "cuda", ""),
        ("launch ad|d[(4,)](x, x, out, n, BLOCK=256, num_warps=4)", "triton", "add(x, y, out, n, BLOCK: tl.constexpr)"),
        ("launch add[(4,)](x, x, out, n, BLO|CK=256, num_warps=4)", "triton", "BLOCK: a constexpr parameter of add"),
        ("launch add[(4,)](x, x, out, n, BLOCK=256, num_w|arps=4)", "triton", "num_warps: warps of a block"),
        ("z = 1|23", "cuda", ""),
        ("z = n +| n", "cuda", ""),
        ("z = (|", "cuda", ""),
    ],
)  # fmt: skip
def test_what_is_under_the_cursor(line: str, language: str, text: str) -> None:
    # a bar in the text is no cursor: only the first counts
    assert hovered(line, language) == text


def test_a_launch_says_what_its_arguments_take() -> None:
    line = "a = 2.0f; z = randn(n, dtype=half); la|unch saxpy<half, 256, true><<<n / 256, 256>>>(n, a, x, z)"
    assert hovered(line) == dedent("""\
        launch: one launch of a kernel of this file; several launches run in order
        its arguments take 4 MiB in 2 tensors
        4096 blocks of 256 threads""")
    assert "4 MiB in 2" in hovered(line.replace("x, z)", "x, z[1:])"))  # a view is no memory of its own
    assert "2 MiB in 1 tensor" in hovered(line.replace("x, z)", "x, x)"))
    triton = "y = randn(n); lau|nch add[(4,)](x, y, out, n, BLOCK=256)"
    assert "11.7 KiB in 3 tensors" in hovered(triton, "triton")


def test_a_value_says_where_it_is_passed() -> None:
    line = "a = 2.0f; z = randn(n); launch saxpy<half, 256, true><<<1, 256>>>(n, |a, x, z)"
    assert hovered(line) == "a: float32 2.0\npassed as float alpha"
    assert "passed as const T* x" in hovered(line.replace("|a, x", "a, |x"))
    swept = "a = sweep(1.0f, 2.0f); launch saxpy<half, 256, true><<<1, 256>>>(n, |a, x, y)"
    assert hovered(swept).endswith("this is the first of 2 values that are run")


def test_markdown_marks_code() -> None:
    assert hovered("z = ran|d(3)", markdown=True) == "`rand(*size, dtype=None)`\n\n- values evenly distributed over [0, 1)"  # fmt: skip


def test_hovering_code_is_left_to_others() -> None:
    session, uri, _, _ = at_cursor("|", "cuda")
    for line in range(4):
        assert spec_hover.hover(session, uri, line, 12, markdown=True) is None


def test_the_range_is_that_of_the_word() -> None:
    session, uri, row, column = at_cursor('s = "🚀"; z = |randn(3)', "cuda")
    hover = spec_hover.hover(session, uri, row, column, markdown=True)
    assert hover
    assert hover.range == lsp.Range(lsp.Position(row, column), lsp.Position(row, column + 5))
