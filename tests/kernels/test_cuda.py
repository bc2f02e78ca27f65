"""What is a kernel definition in CUDA C++, and what only looks like one."""

from __future__ import annotations

import pytest

from orbit_lsp.kernels import language_of
from orbit_lsp.kernels.cuda.cuda_kernels import scan
from orbit_remote.common import limits
from tests.kernels.cuda_check import check, described, text_at

SPELLINGS = {
    "__global__ void k(int* a) {}": "0 k",
    "void __global__ k(int* a) {}": "0 k",
    "static __global__ void k(int* a) {}": "0 k",
    "__global__ static inline void k(int* a) {}": "0 k",
    '__declspec(dllexport) extern "C" __global__ void k() {}': "0 k",
    "DLLEXPORT __global__ FORCE_INLINE void k() {}": "0 k",
    "__global__ void __launch_bounds__(256) k() {}": "0 k bounds(256)",
    "__global__ __launch_bounds__(256, 2) void k() {}": "0 k bounds(256, 2)",
    "__launch_bounds__(T * 2 , max(1,2)) __global__ void k() {}": "0 k bounds(T * 2, max(1,2))",
    "C10_LAUNCH_BOUNDS_1(512) __global__ void k() {}": "0 k bounds(512)",
    "__global__ void C10_LAUNCH_BOUNDS_2(512, 4) k() {}": "0 k bounds(512, 4)",
    "__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128) k() {}": "0 k bounds(128)",
    "__global__ void __maxnreg__(64) k() {}": "0 k",
    "__global__ void __block_size__((256, 1, 1)) k() {}": "0 k",
    "__attribute__((noinline)) __global__ void k() {}": "0 k",
    "__global__ __attribute__((amdgpu_flat_work_group_size(1, 256))) void k() {}": "0 k",
    "[[maybe_unused]] __global__ void k() {}": "0 k",
    "__attribute__((global)) void k() {}": "0 k",
    "static void __attribute__(( __global__ )) k() {}": "0 k",
    "#define GLOBAL __attribute__((global))\nGLOBAL void k() {}": "1 k",
    '__global__ [[maybe_unused, deprecated("no")]] void k() {}': "0 k",
    "__global__ UNKNOWN_ATTRIBUTE(3) void k() {}": "0 k",
    "__global__ void k() UNKNOWN_ATTRIBUTE(3) {}": "0 k",
    'extern "C" __global__ void k() {}': "0 k",
    'extern "C" { __global__ void k() {} }': "0 k",
    "template <typename T> __global__ void k(T* a) {}": "0 k template",
    "template <class... T> __global__ void k(T... a) {}": "0 k template",
    "template <typename T, std::enable_if_t<sizeof(T) == 4, int> = 0> __global__ void k() {}": "0 k template",
    "template <int N = int{3}> __global__ void k() {}": "0 k template",
    "template <> __global__ void k<float, 3>(float* a) {}": "0 k",
    "template <class T> requires (sizeof(T) > 4) __global__ void k(T a) {}": "0 k template",
    "template <class T> requires requires(T t) { t.f(); } __global__ void k(T a) {}": "0 k template",
    "template <class T> __global__ void k(T a) requires std::integral<T> {}": "0 k template",
    "template <class T> __global__ void k(T a) requires requires { a.f(); } { a.g(); }": "0 k template",
    "template <class T> __global__ std::enable_if_t<(sizeof(T) > 2), void> k(T a) {}": "0 k template",
    "__global__ auto k(int* a) -> void {}": "0 k",
    "__global__ void k(int n = (1 < 2 ? 3 : 4), dim3 d = dim3{1, 2, 3}) {}": "0 k",
    "__global__ void k(float (*f)(float), int* a) {}": "0 k",
    "__global__ void k(const __grid_constant__ int n) { auto f = [=] __device__(int a) { return a + n; }; }": "0 k",
    "__global__ void (k)(int* a) {}": "0 k",
    "__global__ void k() noexcept(true) {}": "0 k",
    "__global__ void ünïcode() {}": "0 ünïcode",
    "__global__ void a() {} __global__ void b() {}": "0 a\n0 b",
    "namespace a::b { namespace { inline namespace v1 { template <int I> __global__ void k() {} } } }": "0 a::b::v1::k template",
    'namespace __attribute__((visibility("hidden"))) a { __global__ void k() {} }': "0 a::k",
    "template <class T> struct S { static __global__ void k(T* a) {} };": "0 S::k",
    "struct S final : Base<int> { public: __global__ static void k() {} };": "0 S::k",
    "class alignas(16) S { friend __global__ void k(S* s) {} };": "0 S::k",
    "template <class T> __global__ void S<T>::k() {}": "0 k template",
    "__global__\\\nvoid\\\nk() {}": "0 k",
    '__global__ void k() { asm volatile("{\\n\\t.reg .pred p;\\n\\t}" ::: "memory"); }': "0 k",
    "__global__ void k() { x = '{'; y = '\"'; z = '\\''; n = 1'000'000 + 0xAB'CD; c = u8'{'; }\n"
    "__global__ void l() {}": "0 k\n1 l",
    "__global__ void k() { switch (c) { case'a': f(); } }\n__global__ void l() {}": "0 k\n1 l",
}


@pytest.mark.parametrize(("source", "expected"), SPELLINGS.items())
def test_spellings(source: str, expected: str) -> None:
    check(source, expected)


NO_KERNELS = [
    "",
    "__global__",
    "__global__ void k(int* a);",
    "template <typename T> __global__ void k(T* a);",
    "template __global__ void k<float>(float* a);",
    "extern template __global__ void k<float>(float* a);",
    "friend __global__ void k(int* a);",
    "__global__ void k(int) = delete;",
    "void (*pointer)(int) = nullptr; // __global__ void k() {}",
    "/* __global__ void k() {\n} */",
    "// one \\\n__global__ void k() {}",
    'const char* s = "__global__ void k() {}";',
    'const char* s = "a \\\n__global__ void k() {}";',
    'const char* s = R"(\n__global__ void k() {}\n)";',
    'const char* s = u8R"x( )" __global__ void k() {} )x";',
    "#if 0\n__global__ void k() {}\n#endif",
    "#if 0 // never\n#if 1\n#else\n__global__ void k() {}\n#endif\n#endif",
    "#if false && X\n'\n__global__ void k() {}\n#endif",
    "#if 1\n#else\n__global__ void k() {}\n#endif",
    "#if 1\n#elif X\n__global__ void k() {}\n#endif",
    "#define MAKE(n) __global__ void n() {}",
    "#define MAKE(n) \\\n  __global__ void n() \\\n  {}",
    "__device__ void f(int* a) { a[0] = 1; }",
    "__host__ __device__ void f() {}",
    "int __global__x() { return 0; }",
    "#define __global__\nvoid f() {}",
]


@pytest.mark.parametrize("source", NO_KERNELS)
def test_not_a_definition(source: str) -> None:
    check(source, "")


def test_lines_and_spans() -> None:
    source = (
        "template <typename T,\n          int N>\nstatic\n__global__ void\n__launch_bounds__(THREADS,\n  2)\n"
        "multi_line(\n  const T* a,\n  T* b)\n{ b[0] = a[0]; }  // end\n"
    )
    result = check(source, "3 multi_line template bounds(THREADS, 2)")
    kernel = result.kernels[0]
    assert text_at(source, kernel.name_span) == "multi_line"
    assert text_at(source, kernel.whole) == source.removesuffix("  // end\n")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(end: str) -> None:
    source = "\ufeff#define GLOBAL __global__\n// a\nGLOBAL void k()\n{\n}\n\0\n__global__ void l() {}\n"
    assert [(k.name, k.line) for k in scan(source.replace("\n", end)).kernels] == [("k", 2), ("l", 6)]


def test_both_branches() -> None:
    check(
        """
        #ifdef A
        __global__ void k(int a) {
        #else
        __global__ void k(float a) {
        #endif
          f();
        }
        #ifdef B
        namespace n {
        #endif
        __global__ void l() {
        #if C
          if (x) {
        #else
          {
        #endif
          }
        }
        #ifdef B
        }
        #endif
        __global__ void m() {}
        """,
        """
        1 k
        3 k
        10 n::l
        21 m
        """,
    )


def test_branches_in_a_head() -> None:
    check(
        """
        template <class T>
        __global__ void
        #if X >= 900
        __launch_bounds__(128)
        #else
        __launch_bounds__(256)
        #endif
        k(T* a
        #if Y
          , int b
        #endif
        ) {}
        #if 0
        __global__ void never() {}
        #elif Z
        __global__ void l() {}
        #endif
        """,
        """
        1 k template bounds(128)
        15 l
        """,
    )


def test_branches_that_each_open_the_parameter_list() -> None:
    check(
        """
        __global__ void k
        #ifdef A
        (int a,
        #elif B
        (double a,
        #else
        (float a,
        #endif
         int b) {
        }
        __global__ void
        #ifdef A
        with_int(int a,
        #else
        with_float(float a,
        #endif
         int b) {}
        __global__ void l() {}
        """,
        """
        0 k
        10 with_int
        10 with_float
        17 l
        """,
    )


def test_macros_that_stand_for_the_keyword() -> None:
    check(
        """
        #ifdef __CUDACC__
        #define GLOBAL __global__
        #else
        #define GLOBAL
        #endif
        #define KERNEL GLOBAL void
        #define BOUNDED(n) __launch_bounds__(n) __global__ static void
        GLOBAL void a() {}
        KERNEL b() {}
        BOUNDED(N * 2) c() {}
        template <class T> KERNEL d(T x);
        #undef GLOBAL
        GLOBAL void e() {}
        """,
        """
        7 a
        8 b
        9 c bounds(N * 2)
        """,
    )


def test_macros_that_define_kernels() -> None:
    check(
        """
        #define PASTE(a, b) a ## b
        #define SIGNATURE(name) __global__ void name(float* x)
        #define DEFINE(name, op)                     \\
          template <typename T>                      \\
          __global__ void PASTE(name, _kernel)(T* x) \\
          { x[0] = op(x[0]); /* { */ }
        #define BOTH(n, ...) SIGNATURE(n##_f) { __VA_ARGS__; } SIGNATURE(n##_d) {}
        #define INSTANTIATE(T) template __global__ void k<T>(T*);
        SIGNATURE(a) { x[0] = 1; }
        namespace n {
        DEFINE(sin, sinf)
        DEFINE(cos, cosf);
        }
        INSTANTIATE(float)
        BOTH(both, int i = 1, j = 2)
        #undef DEFINE
        #define DEFINE(name) SIGNATURE(name##_2) {}
        DEFINE(sin)
        __global__ void PASTE(last, _one)(int* a) {}
        __global__ void UNKNOWN(last, two)(int* a) {}
        """,
        """
        8 a
        10 n::sin_kernel at DEFINE(sin, sinf) template
        11 n::cos_kernel at DEFINE(cos, cosf) template
        14 both_f at BOTH(both, int i = 1, j = 2)
        14 both_d at BOTH(both, int i = 1, j = 2)
        17 sin_2 at DEFINE(sin)
        18 last_one at PASTE(last, _one)
        19 UNKNOWN(last, two) at UNKNOWN
        """,
    )


def test_kernels_in_arguments_that_macros_do_not_keep() -> None:
    check(
        """
        #define STR(...) #__VA_ARGS__
        #define XSTR(...) STR(__VA_ARGS__)
        #define UNUSED(...)
        #define ID(...) __VA_ARGS__
        #define SECOND(a, b) b
        #define BOTH(text) const char* source = #text; text
        #if X
        #define MAYBE(...) #__VA_ARGS__
        #else
        #define MAYBE(...) __VA_ARGS__
        #endif
        static const char* source = STR(
        template <typename T> __global__ void in_string(T* x) { if (x) { x[0] = 1; } }
        extern "C" __global__ void in_string_too(float* x) { x[0] = 1; }
        __device__ int f(int a, int b) { return a; }
        __global__ void the_third(float* x) { x[0] = 1; }
        );
        const char* two() { return XSTR(__global__ void by_two_macros(int* y) { y[0] = 2; }); }
        UNUSED(__global__ void dropped(float* x) { x[0] = 1; })
        ID(__global__ void kept(float* x) { x[0] = 1; })
        SECOND(__global__ void left(int* x) {}, __global__ void right(int* x) {})
        BOTH(__global__ void both(int* x) {})
        MAYBE(__global__ void maybe(int* x) {})
        UNKNOWN(__global__ void unknown(int* x) {})
        std::string more = STR(__global__ void four(int* x) {}) STR(__global__ void five(int* x) {});
        __global__ void real(float* x) { x[0] = 1; }
        """,
        """
        19 kept
        20 right
        21 both
        22 maybe
        23 unknown
        25 real
        """,
    )


def test_a_requires_expression_below_a_comment() -> None:
    source = """
        // orbit: launch k<<<1, 1>>>(x)
        template <typename T> requires (sizeof(T) == 4) && requires(T t) { t + t; }
        __global__ void k(T* x) {}
        """
    (kernel,) = check(source, "2 k template").kernels
    assert kernel.whole.line == 1


def test_kernels_whose_braces_are_in_macros() -> None:
    source = """
        #define BEGIN(nm, ...) extern "C" __global__ void __launch_bounds__(128) nm(__VA_ARGS__) { int i = threadIdx.x;
        #define LOOP(nm, T) template <typename U> __global__ void nm(T* x, U n) { for (int i = 0; i < n; i++) {
        #define END }
        #define END_BOTH }}
        BEGIN(commented, float* x)
          if (x) { x[i] = 1; }  // END
          /* END */ const char* s = "END";
        END
        namespace n {
        BEGIN(short_one, int* y) y[i] = 1; END;
        BEGIN(by_a_brace, int* y)
          y[i] = 2;
        }
        LOOP(two_braces, int)
          x[i] = 3;
        END_BOTH
        BEGIN(of_a_branch, float* x)
        #ifdef FOO
          x[i] = 3;
        #else
          x[i] = 4;
        #endif
        END
        }
        BEGIN(empty, int* y) END
        __global__ void plain(float* x) { x[0] = 1; }
        BEGIN(unfinished, int* y)
          y[i] = 5;
    """
    bounds = "bounds(128)"
    scanned = check(
        source,
        f"""
        4 commented {bounds}
        9 n::short_one {bounds}
        10 n::by_a_brace {bounds}
        13 n::two_braces template
        16 n::of_a_branch {bounds}
        24 empty {bounds}
        25 plain
        26 unfinished {bounds}
        """,
    )
    ends = {kernel.name: kernel.whole.end_line for kernel in scanned.kernels}
    assert ends == {
        "commented": 7, "short_one": 9, "by_a_brace": 12, "two_braces": 15, "of_a_branch": 22, "empty": 24, "plain": 25,
        "unfinished": 28,
    }  # fmt: skip


def test_kernels_of_lists_that_are_given_a_macro() -> None:
    source = """
        #define OPS(X, T) X(add, T, +) X(sub, T, -)
        #define DEF(n, T, op) __global__ void ew_##n##_##T(T* a) { a[0] op= 2; }
        #define BEGIN(nm, ...) __global__ void nm(__VA_ARGS__) {
        #define END }
        #define PAIR(n, T, op) BEGIN(pair_##n, T* a) a[0] op= 2; END
        OPS(DEF, float)
        OPS(DEF, int);
        OPS(PAIR, int) __global__ void mine(float* x) { x[0] = 1; }
        OPS(UNKNOWN, int)
    """
    check(
        source,
        """
        5 ew_add_float at OPS(DEF, float)
        5 ew_sub_float at OPS(DEF, float)
        6 ew_add_int at OPS(DEF, int)
        6 ew_sub_int at OPS(DEF, int)
        7 pair_add at OPS(PAIR, int)
        7 pair_sub at OPS(PAIR, int)
        7 mine
        """,
    )


def test_macros_that_never_end() -> None:
    check("#define A B\n#define B A __global__\nA void k() {}", "2 k")
    doubled = (
        "".join(f"#define M{i} M{i + 1} M{i + 1}\n" for i in range(60))
        + "#define M60 __global__ void k() {}\n"
    )
    assert len(scan(doubled + "M0\n").kernels) < 20_000


def test_macros_from_elsewhere() -> None:
    headers = {
        "a.cuh": '#include "b.cuh"\n#if 0\n#define NO __global__\n#endif\n',
        "b.cuh": '#include "a.cuh"\n#define KERNEL(name) __global__ void name##_kernel()\n',
    }
    source = '#include "a.cuh"\n#include <c.h>\nKERNEL(a) {}\nNO void b() {}\nMINE void c() {}\nCUTLASS_GLOBAL void d() {}\n'
    check(source, "5 d")
    result = check(source, "2 a_kernel at KERNEL(a)\n4 c\n5 d", macros=["MINE"], headers=headers.get)
    assert result.includes == ("a.cuh", "c.h")
    check("#define RAFT_KERNEL static inline void\nRAFT_KERNEL a(int n) {}\n__global__ void b() {}", "2 b")
    check("RAFT_KERNEL a(int n) {}\nMINE(b) {}\nMINE(c)(int n) {}\n", "0 a\n1 b\n2 c", macros=["MINE"])


def test_missing_braces_do_not_swallow_what_follows() -> None:
    check(
        """
        namespace n {
        __global__ void a() { if (x) {
        }
        __global__ void b() {}
        __global__ void c(int n {}
        __global__ void d() {}
        """,
        """
        1 n::a
        3 n::b
        5 n::d
        """,
    )


def test_launches() -> None:
    result = check(
        """
        #define BLOCK 128
        constexpr int kThreads = BLOCK * 2;
        __global__ void k(int n) { k<<<1, 1>>>(n); }
        int main() {
          dim3 grid(4, 4), block(16, 1 << 4);
          const int local{kThreads / 4};
          k<<<grid, block>>>(1);
          n::k<float, (3 > 2)> <<< (n + 255) / 256, kThreads, 4 * sizeof(int), s >>>(1);
          // k<<<1, 1>>>(1);
          (k<int>)<<<dim3(1, 2), dim3{local, 2, 2}>>>(1);
          k<<<1, n>>>(1);
          k<<<1, 0x20>>>(x << 3);
          k<<<1, dim3(n)>>>(1);
        }
        """,
        "2 k",
    )
    assert result.entries == ("main",)
    assert [(x.kernel, x.line, x.arguments, x.block) for x in result.launches] == [
        ("k", 6, ("grid", "block"), (16, 16, 1)),
        ("k", 7, ("(n + 255) / 256", "kThreads", "4 * sizeof(int)", "s"), (256, 1, 1)),
        ("k", 9, ("dim3(1, 2)", "dim3{local, 2, 2}"), (64, 2, 2)),
        ("k", 10, ("1", "n"), None),
        ("k", 11, ("1", "0x20"), (32, 1, 1)),
        ("k", 12, ("1", "dim3(n)"), None),
    ]


@pytest.mark.parametrize(
    ("source", "entries"),
    [
        ("int main() { return 0; }", ("main",)),
        ("auto main(int argc, char** argv) -> int\n{\n}", ("main",)),
        ("int main();", ()),
        ("// int main() {}", ()),
        ("int main_loop() {}", ()),
        ("void f() { app.main(); { } }", ()),
    ],
)
def test_entries(source: str, entries: tuple[str, ...]) -> None:
    assert scan(source).entries == entries


BASE = """
#define N 4
__device__ int twice(int a) { return a + a; }
// orbit: n = 1
__global__ void a(int* x) { x[0] = twice(x[1]); }
__global__ void b(int* x) { x[0] = N; }
"""


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("a + a", "a+a", ""),
        ("a + a", "a /* same */ +  // still\n a", ""),
        ("int twice", "int\ttwice", ""),
        ("int twice(int a)", "inttwice(int a)", "ab"),
        ("a + a", "a ++ a", "ab"),
        ("a + a", "a + + a", "ab"),
        ("#define N 4", "#define N 5", "ab"),
        ("#define N 4", "#  define  N  4 // four", ""),
        ("#define N 4", "#define N(4)", "ab"),
        ("x[0] = N", "x[1] = N", "b"),
        ("b(int* x)", "b(float* x)", "ab"),
        ("twice(x[1])", "twice(x[2])", "a"),
        ("// orbit: n = 1", "// orbit: n = 2", "a"),
        ("// orbit: n = 1", "// orbit: n = 1\n// more\n", ""),
        ("// orbit: n = 1", "// other", "a"),
        ("__device__", "#if 0\nint x;\n#endif\n__device__", "ab"),
    ],
)
def test_digests(old: str, new: str, changed: str) -> None:
    assert old in BASE
    before, after = scan(BASE), scan(BASE.replace(old, new))
    names = [k.name for k in before.kernels]
    assert [k.name for k in after.kernels] == names
    differ = [n for n, x, y in zip(names, before.digests, after.digests, strict=True) if x != y]
    assert differ == list(changed)


def test_white_space_in_literals_counts() -> None:
    item = scan("__global__ void k() { f(\"a b\", ' '); }\n")
    assert item.digests != scan("__global__ void k() { f(\"a  b\", ' '); }\n").digests
    assert item.digests == scan("__global__ void k() { f( \"a b\" , ' ' ); }\n").digests


HOSTILE = {
    "one line of braces": "{" * 300_000 + "}" * 300_000,
    "parentheses": "(" * 500_000 + "__global__ void k() {}",
    "keywords": "__global__ " * 60_000,
    "heads": "__global__ void k(int a = {" * 4_000,
    "templates": "template <" * 60_000 + "__global__ void k() {}",
    "launch brackets": "k<<<" * 60_000,
    "quotes": "\"'" * 300_000,
    "digit separators": "1'" * 300_000 + "1",
    "open comments": "/*" * 300_000,
    "raw strings": 'R"(' * 100_000,
    "directives": "#if X\n" * 15_000 + "#else\n" * 15_000,
    "dead branches": "#if 0\n" * 60_000,
    "namespaces": "namespace a {" * 20_000 + "__global__ void k() {}",
    "continuations": "#define A \\\n" * 100_000,
    "macro chain": "".join(f"#define A{i} A{i + 1}\n" for i in range(3_000))
    + "#define A3000 __global__\nA0 void k() {}",
    "many redefinitions": "#undef A\n#define A __global__ void\n" * 5_000,
    "stray hashes": "x # " * 100_000,
    "surrogates": "__global__ void k() { \ud800 }" * 2_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_takes_linear_time(name: str) -> None:
    """Quadratic time would be hours for the longest and is ended by the suite's limit."""
    result = scan(HOSTILE[name])
    assert len(result.kernels) == len(result.digests)


@pytest.mark.slow
def test_one_line_of_five_megabytes() -> None:
    source = "__global__ void k(int* a) { a[0] = 1; } " * 60_000 + "x" * 2_600_001
    assert len(source) > 5_000_000
    kernels = scan(source).kernels
    assert len(kernels) == limits.KERNEL_LINE.most // 40 + 1
    assert kernels[-1].name_span.end_column <= limits.KERNEL_LINE.most


@pytest.mark.parametrize(("beyond", "kernels"), [(0, ["k"]), (1, [])])
def test_a_kernel_begins_within_a_lines_limit(beyond: int, kernels: list[str]) -> None:
    source = "__global__ void k() {}".rjust(limits.KERNEL_LINE.most + len("() {}") + beyond)
    assert [kernel.name for kernel in scan(source).kernels] == kernels


def test_described_places_names() -> None:
    source = "__global__ void k() {}"
    assert described(source, scan(source)) == ["0 k"]


def test_a_header_whose_kernels_carry_a_macro_of_the_project_is_cuda() -> None:
    kernel = "LIB_KERNEL static void scale(float* x) { x[threadIdx.x] *= 2; }\n"
    assert language_of("a.hpp", kernel) == "cuda"
    assert language_of("a.hpp", kernel.replace("threadIdx.x", "0")) is None
    assert language_of("a.hpp", "#define AT blockIdx(0)\ninline int at() { return threadIdx.x; }\n") is None


@pytest.mark.parametrize(
    ("text", "kernels"),
    [
        ("ID(__global__ void kept(float* x) { x[0] = 1; })\n__global__ void real(float* x) {}\n", {"kept": 1, "real": 2}),
        ("ID(int a;)\n// orbit: launch real<<<1, 1>>>(x)\n__global__ void real(float* x) {}\n", {"real": 3}),
        ("ID(ID(int a;));\ntemplate <int N>\n__global__ void real(float* x) {}\n", {"real": 2}),
        ('extern "C" __global__ void name$dollar(float* x) {}\n__global__ void $(int n) {}\n', {"name$dollar": 1, "$": 2}),
    ],
)  # fmt: skip
def test_a_kernel_begins_behind_a_macro_that_holds_declarations(text: str, kernels: dict[str, int]) -> None:
    found = scan("#define ID(...) __VA_ARGS__\n" + text)
    assert {kernel.name: kernel.whole.line for kernel in found.kernels} == kernels


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("__global__ void k(float* x) { x[threadIdx.x] = 1; }\n", "cuda"),
        ("#ifdef __CUDACC__\n__global__ void k(float* x) {}\n#endif\n", "cuda"),
        ("#include <hip/hip_runtime.h>\n__global__ void k(float* x) {}\n", None),
        ('const char* s = R"(__global__ void k(float* x) {})";\n', None),
        ("#ifndef __CUDACC__\n#define __global__\n#endif\nint f();\n", None),
        ("// __global__ void k() {}\n", None),
        ("", None),
    ],
)
def test_a_cpp_source_is_cuda_where_it_defines_a_kernel(text: str, language: str | None) -> None:
    assert {language_of(f"a{suffix}", text) for suffix in (".cc", ".cpp", ".cxx", ".C++")} == {language}
