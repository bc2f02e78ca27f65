"""A tracker gives what a fresh scan of the same text gives, and reads again what an edit touches."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit_lsp.kernels.cuda import cuda_kernels
from orbit_lsp.kernels.cuda.cuda_kernels import CudaTracker, scan
from orbit_lsp.kernels.cuda.reading import RegionReader
from orbit_lsp.kernels.cuda.regions import CudaRegion
from orbit_lsp.kernels.cuda.scopes import CudaScope, OpenConditional
from tests.random_cases import ENCODABLE, random_cases

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

MACROS = """\
#define BEGIN(nm, ...) extern "C" __global__ void nm(__VA_ARGS__) {
#define LOOP(nm, T) __global__ void nm(T* x, int n) { for (int i = 0; i < n; i++) {
#define END }
#define END_BOTH }}
#define OPS(X) X(add, +) X(sub, -)
#define EW(n, op) __global__ void ew_##n(int* a) { a[0] op= 2; }
BEGIN(first, float* x)
  if (x) { x[0] = 1; }  // END
END
namespace n {
BEGIN(second, float* x) x[0] = 2; }
LOOP(third, int)
  x[i] = 3;
END_BOTH
OPS(EW)
OPS(EW);
}
BEGIN(last, int* y) END
int main() { first<<<1, 2>>>(p); }
"""

FRAGMENTS = """\
{ } ( ) ; " ' /* */ // # #if~0~ #if~X~ #else~ #endif~ \\~ ~ __global__ x 1 < > <<< >>> GLOBAL DEFINE(k) R"( )" \
namespace_n_{ struct_T_{ template_<class_T> #define_GLOBAL~ #define_DEFINE(n)_GLOBAL_void_n()_{}~ #undef_GLOBAL~ \
#include_"b.cuh"~ constexpr_int_N_=_64; dim3_block(3); __global___void_k(int_a)_{_a;_}~ //_orbit:_n_=_2~ int_main()_{ \
BEGIN(q,_int*_z) LOOP(r,_int) END END_BOTH OPS(EW) EW(m,_+) #define_END_}~ #undef_END~ #define_BEGIN(n)_GLOBAL_void_n()_{~\
"""
EXAMPLES = Path(__file__).parents[2] / "examples"
TEXTS = [
    SOURCE,
    SOURCE * 8,
    MACROS,
    MACROS * 4,
    *(path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.cu"))),
]
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


def edited(text: str, steps: list[tuple[float, int, str]]) -> str:
    for place, removed, typed in steps:
        start = round(place * len(text))
        text = text[:start] + typed + text[start + removed :]
    return text


@random_cases(300)
@given(st.sampled_from(TEXTS), st.lists(edits(), min_size=1, max_size=4))
def test_following_edits_equals_scanning_again(text: str, rounds: list[list[tuple[float, int, str]]]) -> None:
    tracker = CudaTracker(headers=HEADERS.get)
    for steps in [[], *rounds]:
        text = edited(text, steps)
        assert tracker.scan(text) == scan(text, headers=HEADERS.get)


@random_cases(100)
@given(st.lists(st.sampled_from([*TYPED, SOURCE]), max_size=30).map("".join), st.text(ENCODABLE, max_size=20))
def test_any_text_is_scanned(text: str, more: str) -> None:
    result = scan(text + more)
    assert len(result.kernels) == len(result.digests)


@pytest.mark.slow
def test_undone_edits_lead_back() -> None:
    tracker = CudaTracker()
    before = tracker.scan(SOURCE)
    for position in range(0, len(SOURCE), 7):
        for typed in ('"', "/*", "{", "}", "#if 0\n"):
            text = SOURCE[:position] + typed + SOURCE[position:]
            assert tracker.scan(text) == scan(text)
            assert tracker.scan(SOURCE) == before


KERNEL = "// kernel\n__global__ void k%d(float* x)\n{\n  x[0] += %d;\n}\n"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the regions that are read from now on."""
    lengths: list[int] = []

    class Watched(RegionReader):
        def read(self, start: int, scope: CudaScope, conditional: OpenConditional | None) -> CudaRegion:
            region = super().read(start, scope, conditional)
            lengths.append(region.length)
            return region

    monkeypatch.setattr(cuda_kernels, "RegionReader", Watched)
    return lengths


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x[0] += 150;", "x[0] -= 150;"),
        ("x[0] += 150;", "x[0] += 150;\n\n\n"),
        ("x[0] += 150;", "x[0] += (150;"),
        ("x[0] += 150;", 'x[0] += "150;'),
        ("x[0] += 150;", "x[0] += 150; }"),
        ("x[0] += 150;", "if (x) { x[0] += 150;"),
        ("k150", "k_150"),
        ("// kernel\n__global__ void k150", "int shared;\n__global__ void k150"),
        ("// kernel\n__global__ void k150", "#define UNUSED 1\n__global__ void k150"),
    ],
)
def test_an_edit_rescans_its_neighbourhood(read: list[int], old: str, new: str) -> None:
    before = "#define N 1\n" + "".join(KERNEL % (i, i) for i in range(300))
    after = before.replace(old, new)
    tracker = CudaTracker()
    tracker.scan(before)
    read.clear()
    result = tracker.scan(after)
    assert 0 < sum(read) < 400
    assert result == scan(after)


def test_edits_far_apart_rescan_their_neighbourhoods(read: list[int]) -> None:
    text = "".join(KERNEL % (i, i) for i in range(1_000))
    tracker = CudaTracker()
    tracker.scan(text)
    read.clear()
    after = text.replace("k100", "first").replace("k900", "last_one")
    result = tracker.scan(after)
    assert 0 < sum(read) < 400
    assert result == scan(after)


def test_a_macro_that_kernels_use_rescans_them() -> None:
    text = "#define K __global__ void\nK a() {}\nvoid b() {}\n"
    tracker = CudaTracker()
    assert [kernel.name for kernel in tracker.scan(text).kernels] == ["a"]
    assert not tracker.scan(text.replace("__global__ void", "static void")).kernels


def test_headers_are_read_again_when_others_are_included() -> None:
    text = '#include "c.cuh"\nHEADER_KERNEL void a() {}\n'
    tracker = CudaTracker(headers=HEADERS.get)
    assert not tracker.scan(text).kernels
    assert [kernel.name for kernel in tracker.scan(text.replace("c.cuh", "a.cuh")).kernels] == ["a"]


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
    tracker = CudaTracker()
    before = tracker.scan(text)
    assert [kernel.qualified for kernel in before.kernels] == ["a", "n::b", "n::c"]
    at = text.rindex(data) + len(data) - 1
    changed = f"{text[:at]}7{text[at:]}"
    after = tracker.scan(changed)
    assert after == scan(changed)
    assert all(old != new for old, new in zip(before.digests, after.digests, strict=True))


def test_kernels_at_the_end_of_a_line_of_data() -> None:
    text = "int x[] = {" + "{}," * 4_500 + "}; __global__ void k() {}"
    assert [kernel.name for kernel in scan(text).kernels] == ["k"]


def test_a_kernel_whose_last_brace_is_missing_stays() -> None:
    text = "__global__ void a() {}\n__global__ void b() { if (x) {\n}\n"
    assert [kernel.name for kernel in scan(text).kernels] == ["a", "b"]
