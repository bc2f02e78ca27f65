"""Which kernel what a compiler or a run says is filed under: its name and its line must both agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orbit_lsp.runs import result_filing
from orbit_lsp.state.session import Session, uri_of
from orbit_remote.common import messages as c
from tests.cli_check import orbit
from tests.remote.nvcc_check import needs_nvcc

X_MACRO = """\
#define OPS(X) X(add, +) X(sub, -)
#define DEF(n, op) __global__ void ew_##n(double* a) { a[0] = a[0] op 2; }
"""
PAIR = """\
#define BEGIN(nm, ...) extern "C" __global__ void nm(__VA_ARGS__) {
#define END }
"""


def filed(folder: Path, text: str, *symbols: str, name: str = "k.cu") -> list[str]:
    """For each symbol, `NAME`, `NAME at LINE` or `NAME at FILE:LINE`: the kernel that has what is said of it, or -."""
    path = folder / name
    path.write_text(text)
    session, uri = Session(), uri_of(str(path))
    session.open(uri, 1, text)
    frozen = session.freeze(uri)
    assert frozen
    find = result_filing.kernel_of(session, frozen)
    found: list[str] = []
    for symbol in symbols:
        of, _, at = symbol.partition(" at ")
        file, _, line = at.rpartition(":")
        place = c.Place(str(folder / (file or name)), int(line)) if at else None
        target = find(place, of)
        other = "" if target is None or target.uri == uri else f" of {Path(target.uri).name}"
        found.append(f"{target.key}{other}" if target else "-")
    return found


MINE = "__global__ void mine(float* x) { x[0] = 1; }\n"


@pytest.mark.parametrize(
    ("text", "symbols", "kernels"),
    [
        pytest.param(
            X_MACRO + "OPS(DEF)\n" + MINE, "ew_add at 3, ew_sub at 3, mine at 4", "ew_add, ew_sub, mine", id="X-macro"
        ),
        pytest.param(
            X_MACRO + "OPS(DEF) " + MINE, "ew_add at 3, mine at 3", "ew_add, mine", id="X-macro in the same line"
        ),
        pytest.param(
            "OPS(DEF)\n" + MINE, "ew_add at 1, mine at 2", "-, mine", id="X-macro of a header nobody has"
        ),
        pytest.param(
            "OPS(DEF)\n" + MINE, "mine at 1, mine at 2", "-, mine", id="an overload that a macro makes above"
        ),
        pytest.param(
            PAIR + "BEGIN(axpy, float* x)\nif (x) { x[0] = 1; }\nEND\n" + MINE,
            "axpy at 3, mine at 6", "axpy, mine", id="BEGIN and END",
        ),
        pytest.param(
            PAIR + "BEGIN(axpy, float* x) END " + MINE, "axpy at 3, mine at 3", "axpy, mine",
            id="BEGIN and END in the same line",
        ),
        pytest.param(
            "#define NAME(n) ew_##n\nOPS(DEF)\n__global__ void NAME(add)(float* x) {}\n",
            "ew_add at 3, ew_sub at 2, ew_sub at 3", "ew_add, -, -", id="a name that a macro pastes",
        ),
        pytest.param(
            "__global__ void NAME(add)(float* x) {}\n" + MINE, "ew_add at 1, ew_add at 2", "NAME(add), -",
            id="a name by a macro of a header nobody has",
        ),
        pytest.param(
            "#define scale scale_v2\n__global__ void\nscale(float* x) {\n}\n", "scale_v2 at 3, other at 4", "scale, -",
            id="a name that is a macro",
        ),
        pytest.param(
            "#ifdef HALF\n#define DEF(n) __global__ void n##_f16() {}\n#else\n#define DEF(n) __global__ void n##_f32() {}\n"
            "#endif\nDEF(k)\n" + MINE, "k_f16 at 6, k_f32 at 6, k_f32 at 7", "k_f16, k_f16, -",
            id="a name that depends on a condition",
        ),
        pytest.param(
            "__global__ void k() {}\n__global__ void k_tail() {}\n", "k at 1, k_tail at 2, k_tail at 1", "k, k_tail, -",
            id="names that begin alike",
        ),
        pytest.param(
            "namespace a { __global__ void k() {} }\nnamespace b { __global__ void k() {} }\nnamespace { __global__ void k() {} }\n",
            "b::k at 2, (anonymous namespace)::k at 3, a::k, b::k, c::k, c::k at 9", "b::k, k, a::k, b::k, -, -", id="namespaces",
        ),
        pytest.param(
            "namespace a { __global__ void k() {} } namespace b { __global__ void k() {} }\n", "b::k at 1, c::k at 1", "b::k, -",
            id="namespaces in one line",
        ),
        pytest.param(
            "__global__ void k(int) {}\n__global__ void k(float) {}\n", "k at 2, k", "k#2, -", id="overloads"
        ),
        pytest.param(
            "__global__ void k(int) {} __global__ void k(float) {}\n", "k at 1", "-", id="overloads in one line"
        ),
        pytest.param(
            'namespace a { extern "C" __global__ void k() {} }\n', "k at 1, k, z::k", "a::k, a::k, -", id="extern C"
        ),
        pytest.param(
            "template <class T>\n__global__ void k(T) {}\n" + MINE + "template __global__ void k<int>(int);\n",
            "k<int> at 2, k<float> at 4, mine at 3", "k, -, mine", id="instantiations",
        ),
        pytest.param(
            "void sort() {\n  thrust::sort(x, y);\n}\n" + MINE,
            "cub::DeviceRadixSortKernel<int> at 2, thrust::k at 4, void mine<{lambda()#1}>() at 2", "-, -, -", id="library kernels",
        ),
        pytest.param(
            '#include "scale.inc"\n' + MINE, "scale at scale.inc:1, mine at scale.inc:9, mine at 2",
            "scale of scale.inc, -, mine", id="an included file",
        ),
        pytest.param(
            '#line 70 "k.y"\n' + MINE, "mine at k.y:70, other at k.y:70", "mine, -", id="#line"
        ),
    ],
)  # fmt: skip
def test_a_cuda_kernel_has_what_is_said_of_its_name_at_its_line(
    tmp_path: Path, text: str, symbols: str, kernels: str
) -> None:
    (tmp_path / "scale.inc").write_text("__global__ void scale(float* x) {}\n")
    assert ", ".join(filed(tmp_path, text, *symbols.split(", "))) == kernels


JIT = "@triton.jit\ndef {0}(x):\n    pass\n\n"


@pytest.mark.parametrize(
    ("text", "symbols", "kernels"),
    [
        pytest.param(
            JIT.format("k"), "k at other.py:6, k at other.py:2, k at 3, k", "k of other.py, -, k, k", id="one name in two files"
        ),
        pytest.param(
            "class A:\n    @triton.jit\n    def k(x): pass\nclass B:\n    @triton.jit\n    def k(x): pass\n",
            "k at 4, k at 7, k", "A.k, B.k, -", id="methods",
        ),
        pytest.param(
            "def make(n):\n    @triton.jit\n    def k(x): pass\n    return k\n", "k at 4, k", "make.k, make.k", id="a factory"
        ),
        pytest.param(
            JIT.format("k") + "def raw(x):\n    pass\nwrapped = triton.jit(raw)\n", "k at 6, raw at 6", "-, -",
            id="a function without a kernel of its line",
        ),
    ],
)  # fmt: skip
def test_a_triton_kernel_has_what_is_said_of_its_own_file_and_line(
    tmp_path: Path, text: str, symbols: str, kernels: str
) -> None:
    (tmp_path / "other.py").write_text("import triton\n\n\n\n" + JIT.format("k"))
    assert ", ".join(filed(tmp_path, f"import triton\n{text}", *symbols.split(", "), name="k.py")) == kernels


@needs_nvcc
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            X_MACRO + "OPS(DEF)\n" + MINE,
            "3 ew_add: occ 100% from 64 threads · 8 regs, ew_sub: occ 100% from 64 threads · 8 regs\n4 occ 100% from 64 threads · 8 regs",
            id="X-macro",
        ),
        pytest.param(
            X_MACRO + "OPS(DEF);\n" + MINE,
            "3 ew_add: occ 100% from 64 threads · 8 regs, ew_sub: occ 100% from 64 threads · 8 regs\n4 occ 100% from 64 threads · 8 regs",
            id="X-macro with a semicolon",
        ),
        pytest.param(
            PAIR + "BEGIN(axpy, float* x)\n  x[0] = x[1] / x[2];\nEND\n" + MINE,
            "3 occ 100% from 64 threads · 15 regs\n6 occ 100% from 64 threads · 8 regs",
            id="BEGIN and END",
        ),
    ],
)
def test_compiled_kernels_of_macros_stand_on_the_macro_with_their_names(
    tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "k.cu").write_text(text)
    shown = orbit(tmp_path, "show", "--gpu", "H100", "k.cu")[1]
    hints = re.findall(r"^ *(\d+) .*?   ((?:\w+: )?occ .*)$", shown, re.MULTILINE)
    assert "\n".join(f"{line} {text.replace('   ', ', ')}" for line, text in hints) == expected
    message = orbit(tmp_path, "compile", "--gpu", "H100", "k.cu")[2].splitlines()[-1]
    assert message == f"ok: {expected.count('regs')} kernels compiled for sm_90a"


LINE_NAMES = """#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define KERNEL(type) __global__ void JOIN(fill_, __LINE__)(type* x) { x[0] = 1; }
KERNEL(float)
KERNEL(double) __global__ void plain(int* x) { x[0] = 1; }
__global__ void JOIN(odd_, __LINE__)(int* x) { x[0] = 2; }
"""


@needs_nvcc
def test_a_kernel_that_has_its_line_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(LINE_NAMES)
    shown = orbit(tmp_path, "show", "--gpu", "H100", "k.cu")[1]
    assert re.findall(r"^ *(\d+) .*?   (?:.*?: )?occ .*?\d+ regs", shown, re.MULTILINE) == ["4", "5", "6"]


OVERLAPPING = """#line 1 "k.y"
__global__ void first(float* x) {
  x[threadIdx.x] = 1;
}
#line 2 "k.y"
__global__ void second(float* x) {
  x[threadIdx.x] = 1;
}
#line 2
__global__ void third(float* x) {
  x[threadIdx.x] = 1;
}
"""


@needs_nvcc
def test_kernels_whose_lines_another_file_numbers_twice(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(OVERLAPPING)
    shown = orbit(tmp_path, "show", "--gpu", "H100", "k.cu")[1]
    assert re.findall(r"^ *(\d+) .*   occ .*?\d+ regs", shown, re.MULTILINE) == ["2", "6", "10"]


@needs_nvcc
def test_kernels_that_a_file_of_macros_makes_are_shown(tmp_path: Path) -> None:
    (tmp_path / "list.inc").write_text("KERNEL(add, +)\nKERNEL(sub, -)\n")
    (tmp_path / "body.inc").write_text("__global__ void NAME(float* x) { x[0] *= 2; }\n")
    (tmp_path / "k.cu").write_text(
        "#define KERNEL(n, op) __global__ void n(float* a) { a[0] = a[0] op a[1]; }\n"
        '#include "list.inc"\n#define NAME scale\n#include "body.inc"\n'
    )
    notes = re.findall(
        r"^note: with it, (.*)   \d+ regs$", orbit(tmp_path, "show", "--gpu", "H100", "k.cu")[2], re.MULTILINE
    )
    assert notes == [
        "body.inc:1 is compiled: scale",
        "list.inc:1 is compiled: add",
        "list.inc:2 is compiled: sub",
    ]
    out, message = orbit(tmp_path, "compile", "--gpu", "H100", "k.cu")[1:]
    assert "no kernel in this file" not in out
    assert message.splitlines()[-1].startswith("ok: 3 kernels compiled for sm_90a, 3 of them")
