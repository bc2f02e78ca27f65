"""A followed scan equals a fresh one, and costs what the edit touches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit_lsp.kernels.cuda import cuda_kernels
from orbit_lsp.kernels.cuda.cuda_kernels import CudaTracker, scan
from orbit_lsp.kernels.cuda.reading import RegionReader
from orbit_lsp.kernels.model import Edit
from tests.random_cases import random_cases

SOURCE = """\
#include "a.cuh"
#define PASTE(a, b) a##b
#define GLOBAL __global__
#define DEFINE(n) __global__ void PASTE(n, _kernel)(int* a) { a[0] = 1; }
constexpr int N = 128;
namespace outer { namespace {
// orbit: n = 1
template <typename T> __global__ void __launch_bounds__(N, 2) first(T* a) { a[0] = R"x(__global__ void no() {})x"; }
DEFINE(one)
DEFINE(two);
} }
#undef DEFINE
#if A
GLOBAL void branch(int a) {
#else
GLOBAL void branch(float a) {
#endif
  x = 1'000; y = '{'; /* } */ s = "}"; // }
}
#if 0
__global__ void never() {}
#endif
struct S { static __global__ void member(dim3 d = dim3{1, 2}) { } };
int main() {
  dim3 block(N, 2);
  outer::first<float><<<1, block>>>(p);
}
"""

FRAGMENTS = """\
{ } ( ) ; " ' /* */ // # #if~0~ #if~X~ #else~ #endif~ \\~ ~ __global__ x 1 < > <<< >>> GLOBAL DEFINE(k) R"( )" \
namespace_n_{ struct_T_{ template_<class_T> #define_GLOBAL~ #define_DEFINE(n)_GLOBAL_void_n()_{}~ #undef_GLOBAL~ \
#include_"b.cuh"~ constexpr_int_N_=_64; dim3_block(3); __global___void_k(int_a)_{_a;_}~ //_orbit:_n_=_2~ int_main()_{\
"""
TYPED = [
    part.replace("_", " ").replace("  global  ", "__global__").replace("~", "\n")
    for part in FRAGMENTS.split()
]
HEADERS = {"a.cuh": "#define HEADER_KERNEL __global__\n", "b.cuh": "#define x __global__ void x() {}\n"}


@st.composite
def edits(draw: st.DrawFn) -> list[tuple[float, int, str]]:
    """Where (as a part of the text), how many characters go, and what comes."""
    typed = st.sampled_from([*TYPED, "", "\r", "\r\n", "\0", "\ufeff", "\ud800"])
    removed = st.sampled_from([0, 0, 0, 1, 2, 7, 60, 300])
    return draw(st.lists(st.tuples(st.floats(0, 1), removed, typed), min_size=1, max_size=8))


@random_cases(150)
@given(st.lists(edits(), min_size=1, max_size=4))
def test_following_edits_equals_scanning_again(rounds: list[list[tuple[float, int, str]]]) -> None:
    text = SOURCE
    tracker = CudaTracker(text, headers=HEADERS.get)
    for steps in rounds:
        changes: list[Edit] = []
        for place, removed, typed in steps:
            start = round(place * len(text))
            end = min(len(text), start + removed)
            changes.append(Edit(start, end, typed))
            text = text[:start] + typed + text[end:]
        assert tracker.update(changes, text) == scan(text, headers=HEADERS.get)


@random_cases(100)
@given(st.lists(st.sampled_from([*TYPED, SOURCE]), max_size=30).map("".join), st.text(max_size=20))
def test_any_text_is_scanned(text: str, more: str) -> None:
    found = scan(text + more)
    assert len(found.kernels) == len(found.digests)


def test_undone_edits_lead_back() -> None:
    tracker = CudaTracker(SOURCE)
    before = tracker.scan
    for position in range(0, len(SOURCE), 7):
        for typed in ('"', "/*", "{", "}", "#if 0\n"):
            edited = SOURCE[:position] + typed + SOURCE[position:]
            assert tracker.update([Edit(position, position, typed)], edited) == scan(edited)
            assert tracker.update([Edit(position, position + len(typed), "")], SOURCE) == before


def test_edits_that_do_not_lead_to_the_text_are_not_believed() -> None:
    tracker = CudaTracker("__global__ void a() {}\n")
    text = "__global__ void b() {}\n"
    assert tracker.update([Edit(0, 1_000, "x")], text) == scan(text)
    assert tracker.update([Edit(0, 1, "x")], text) == scan(text)


KERNEL = "// kernel\n__global__ void k%d(float* x)\n{\n  x[0] += %d;\n}\n"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the regions that are read from now on."""
    lengths: list[int] = []

    class Watched(RegionReader):
        def regions(self):
            for region in super().regions():
                lengths.append(region.length)
                yield region

    monkeypatch.setattr(cuda_kernels, "RegionReader", Watched)
    return lengths


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x[0] += 500;", "x[0] -= 500;"),
        ("x[0] += 500;", "x[0] += 500;\n\n\n"),
        ("x[0] += 500;", "x[0] += (500;"),
        ("x[0] += 500;", 'x[0] += "500;'),
        ("x[0] += 500;", "x[0] += 500; }"),
        ("x[0] += 500;", "if (x) { x[0] += 500;"),
        ("k500", "k_500"),
        ("// kernel\n__global__ void k500", "int shared;\n__global__ void k500"),
        ("// kernel\n__global__ void k500", "#define UNUSED 1\n__global__ void k500"),
    ],
)
def test_an_edit_rescans_its_neighbourhood(read: list[int], old: str, new: str) -> None:
    text = "#define N 1\n" + "".join(KERNEL % (i, i) for i in range(1_000))
    start = text.index(old)
    tracker = CudaTracker(text)
    read.clear()
    edited = text[:start] + new + text[start + len(old) :]
    found = tracker.update([Edit(start, start + len(old), new)], edited)
    assert 0 < sum(read) < 400
    assert found == scan(edited)


def test_a_macro_that_kernels_use_rescans_them() -> None:
    text = "#define K __global__ void\nK a() {}\nvoid b() {}\n"
    tracker = CudaTracker(text)
    edited = text.replace("__global__ void", "static void")
    start, end = text.index("__global__"), text.index("__global__") + len("__global__")
    assert tracker.update([Edit(start, end, "static")], edited) == scan(edited)
    assert not tracker.scan.kernels


def test_headers_are_read_again_when_others_are_included() -> None:
    text = '#include "c.cuh"\nHEADER_KERNEL void a() {}\n'
    tracker = CudaTracker(text, headers=HEADERS.get)
    assert not tracker.scan.kernels
    edited = text.replace("c.cuh", "a.cuh")
    start = text.index("c.cuh")
    assert [k.name for k in tracker.update([Edit(start, start + 1, "a")], edited).kernels] == ["a"]


@pytest.mark.parametrize(
    "data",
    ["{1, 2}," * 9_000, '"a", "}",' * 9_000, "f(1);" * 20_000, "{{}," * 9_000 + "}," * 9_000, "(" * 20_000],
    ids=["rows", "strings", "calls", "nested", "unclosed"],
)
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_line_of_generated_data_hides_no_kernel(data: str, end: str) -> None:
    text = (
        "__global__ void a() {}\nnamespace n {\n__global__ void b() { int x[] = {@};\n}\n"
        "__global__ void c() {}\n}\nint y[] = {@};"
    ).replace("@", data) + end
    tracker = CudaTracker(text)
    assert [kernel.qualified for kernel in tracker.scan.kernels] == ["a", "n::b", "n::c"]
    before = tracker.scan.digests
    at = text.rindex(data) + len(data) - 1
    changed = f"{text[:at]}7{text[at:]}"
    assert tracker.update([Edit(at, at, "7")], changed) == scan(changed)
    assert all(one != other for one, other in zip(before, tracker.scan.digests, strict=True))


def test_kernels_at_the_end_of_a_line_of_data() -> None:
    text = "int x[] = {" + "{1}," * 20_000 + "}; __global__ void k() {}"
    assert [kernel.name for kernel in scan(text).kernels] == ["k"]
