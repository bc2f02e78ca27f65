"""The less common statements: what each takes, and what is said where it cannot be."""

from __future__ import annotations

import pytest

from orbit_lsp.kernels.cuda import cuda_kernels
from orbit_lsp.kernels.python import triton_kernels
from orbit_lsp.specs.spec_blocks import definition
from orbit_remote.spec import launch_spec
from orbit_remote.spec.rules import LaunchLimits
from tests.spec.spec_check import check, checked, values

SAXPY = "__global__ void saxpy(int n, float a, const float* x, float* y) {}\n"
GOOD = "// orbit: n = 1 << 20; x = randn(n); y = randn(n)\n// orbit: launch saxpy<<<n / 256, 256>>>(n, 2.0f, x, y)\n"


def saxpy(*lines: str, before: str = "", launch: str = GOOD) -> str:
    return before + launch + "".join(f"// orbit: {line}\n" for line in lines) + SAXPY


ADD = """\
import triton
import triton.language as tl

def plain(x, y, *, scale=1):
    return x + y

# orbit: n = 1000; x = randn(n); y = randn(n); out = empty(n)
# orbit: launch add[(4,)](x, y, out, n, BLOCK=256)
{line}@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    pass
"""


def add(line: str) -> str:
    return ADD.replace("{line}", f"# orbit: {line}\n")


# -- reference --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "below"),
    [
        ("reference plain(x, y)", ""),
        ("reference out == plain(x, y, scale=2) within 1e-3, 1e-5", ""),
        ("reference plain", ""),
        ("reference plane(x, y)", "          ^^^^^ There is no function 'plane' in this file; did you mean 'plain'?"),
        ("reference plain(x)", "          ^^^^^ plain lacks 'y': (x, y, *, scale=1)."),
        ("reference plain(x, y, 2)", "                      ^ plain takes 2 arguments, not 3: (x, y, *, scale=1)."),
        ("reference plain(x, y, scales=2)", "                      ^^^^^^^^ plain has no 'scales'; did you mean 'scale'?"),
        ("reference plain(x, z)", "                   ^ 'z' is not known here."),
        ("reference o == plain(x, y)", "          ^ 'o' is not known here."),
        ("reference n == plain(x, y)", "          ^ An output is a tensor, not the int 1000."),
        ("reference add(x, y)", "          ^^^ 'add' is the kernel itself; a reference is something else."),
        ("reference plain(x, y) within -1", "                             ^^ A tolerance is a number from 0 on."),
        ("reference 3", "          ^ A reference is a function of this file, or a launch of another kernel."),
    ],
)  # fmt: skip
def test_a_reference_is_a_function_of_the_file(line: str, below: str) -> None:
    check(add(line), f"# orbit: {line}\n{' ' * 9}{below}" if below else "", "triton")


NAIVE = "__global__ void naive(int n, float* y) {}\n"


@pytest.mark.parametrize(
    ("line", "below"),
    [
        ("reference y == naive<<<1, 32>>>(n, y)", ""),
        ("reference naive", ""),
        ("reference y == naiv<<<1, 32>>>(n, y)", "               ^^^^ There is no kernel 'naiv' in this file."),
        ("reference naive(y)", "          ^^^^^ A reference in a .cu file is a launch of another kernel: 'reference naive<<<…>>>(…)'."),
        ("reference x == naive<<<1, 32>>>(n, y)", "          ^ The kernel cannot write 'x': its parameter is const."),
        ("reference y == naive<<<0, 32>>>(n, y)", "                       ^ This grid is 0 in x; nothing would run."),
    ],
)  # fmt: skip
def test_a_reference_is_another_kernel(line: str, below: str) -> None:
    expected = f"// orbit: {line}\n{' ' * 10}{below}" if below else ""
    check(saxpy(line, before=NAIVE), expected)
    if "There is no" in below:  # which a header may have
        check(saxpy(line, before='#include "kernels.cuh"\n' + NAIVE), "")


# -- symbol -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variable",
    [
        "__constant__ float weights[64];",
        "__device__ float weights[64] = {0};",
        "static __device__ __managed__ float weights;",
    ],
)
def test_a_symbol_is_a_variable_of_the_file(variable: str) -> None:
    check(saxpy("symbol weights = randn(64)", before=variable + "\n"), "")


def test_a_symbol_that_is_none() -> None:
    before = "__constant__ float weights[64];\n__device__ float f(float x);\n// __constant__ float wait;\n"
    check(
        saxpy(
            "symbol weight = randn(64); symbol f = 1; symbol wait = 1",
            "symbol weights = m",
            "symbol weights = 2; symbol 3 = 4",
            before=before,
        ),
        """
        // orbit: symbol weight = randn(64); symbol f = 1; symbol wait = 1
                         ^^^^^^ There is no __constant__ or __device__ variable 'weight' in this file; did you mean 'weights'?
                                                    ^ There is no __constant__ or __device__ variable 'f' in this file.
                                                                  ^^^^ There is no __constant__ or __device__ variable 'wait' in this file.
        // orbit: symbol weights = m
                                   ^ 'm' is not known here.
        // orbit: symbol weights = 2; symbol 3 = 4
                         ^^^^^^^ 'weights' is set twice; the first is on line 7.
                                             ^ '3' is not expected here; a variable's name is expected.
        """,
    )
    check(add("symbol w = 3"), "# orbit: symbol w = 3\n         ^^^^^^ Only CUDA has symbols; assign a global of a Python file in the file.", "triton")  # fmt: skip


# -- launches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("launch", "below"),
    [
        ("saxpy<<<64, 256>>>(n, 2.0f, x, y) cluster(2)", ""),
        ("saxpy<<<dim3(8, 8), 256>>>(n, 2.0f, x, y) cooperative cluster(2, 4, 1)", ""),
        ("saxpy<<<64, 256>>>(n, 2.0f, x, y) cooperative", ""),
        ("saxpy<<<64, 256>>>(n, 2.0f, x, y) cluster(16)", "                                  ^^^^^^^^^^^ This cluster is 16 in x; CUDA takes at most 8."),
        ("saxpy<<<64, 256>>>(n, 2.0f, x, y) cluster(4, 4)", "                                  ^^^^^^^^^^^^^ This cluster has 16 blocks; at most 8 run everywhere."),
        ("saxpy<<<63, 256>>>(n, 2.0f, x, y) cluster(2)", "                                  ^^^^^^^^^^ The grid is 63 in x, which clusters of 2 do not divide."),
        ("saxpy<<<64, 256>>>(n, 2.0f, x, y) cluster(1, 2)", "                                  ^^^^^^^^^^^^^ The grid is 1 in y, which clusters of 2 do not divide."),
        ("saxpy<<<64, 256>>>(n, 2.0f, x, y) cluster(0)", "                                  ^^^^^^^^^^ This cluster is 0 in x; nothing would run."),
        ("saxpy<<<64, 256>>>(n, 2.0f, x, y) cooperativ", "                                  ^^^^^^^^^^ 'cooperativ' is not expected here."),
        ("saxpy<<<64, 256, 232448>>>(n, 2.0f, x, y)", ""),
        ("saxpy<<<64, 256, 232449>>>(n, 2.0f, x, y)", "                 ^^^^^^ This is 232449 bytes of shared memory; a block has at most 232448 on sm_90a."),
        ("saxpy<<<64, 256, -1>>>(n, 2.0f, x, y)", "                 ^^ Shared memory is a number of bytes from 0 on."),
    ],
)  # fmt: skip
def test_launches_against_the_gpu(launch: str, below: str) -> None:
    text = saxpy(launch=f"// orbit: n = 64; x = randn(n); y = randn(n)\n// orbit: launch {launch}\n")
    expected = f"// orbit: launch {launch}\n{' ' * 17}{below}" if below else ""
    check(text, expected, limits=LaunchLimits("sm_90a"))


def test_what_another_gpu_takes() -> None:
    launch = "// orbit: n = 64; x = randn(n); y = randn(n)\n// orbit: launch saxpy<<<64, 256, 100 << 10>>>(n, 2.0f, x, y)"
    text = saxpy(launch=launch + "\n")
    check(text, "", limits=LaunchLimits("sm_90a"))
    below = "                                    ^^^^^^^^^ This is 102400 bytes of shared memory; a block has at most 101376 on sm_89."
    at = "// orbit: launch saxpy<<<64, 256, 100 << 10>>>(n, 2.0f, x, y)\n" + below[2:]
    check(text, at, limits=LaunchLimits("sm_89"))
    check(saxpy("gpu L4", launch=launch + "\n"), at, limits=LaunchLimits("sm_90a"))
    check(saxpy("gpu H100", launch=launch + "\n"), "", limits=LaunchLimits("sm_89"))
    check(saxpy(launch=launch + "\n"), "")  # nothing is known of the GPU
    check(
        saxpy(launch=launch.replace(">>>(n", ">>>(n") + " cluster(2)\n"),
        "// orbit: launch saxpy<<<64, 256, 100 << 10>>>(n, 2.0f, x, y) cluster(2)\n"
        "                                                              ^^^^^^^^^^ sm_80 has no clusters; they begin with sm_90.",
        limits=LaunchLimits("sm_80"),
    )


def test_static_shared_memory_counts() -> None:
    check(
        saxpy(launch=GOOD.replace("256>>>", "256, 220 << 10>>>")),
        """
        // orbit: launch saxpy<<<n / 256, 256, 220 << 10>>>(n, 2.0f, x, y)
                                               ^^^^^^^^^ This is 225280 bytes of shared memory, 8192 beside it are static; a block has at most 232448 on sm_90a.
        """,
        limits=LaunchLimits("sm_90a", 8192),
    )


@pytest.mark.parametrize(
    ("header", "launch", "message"),
    [
        ("template <typename T, int N> __global__ void k(T* x) {}", "k<float, 4>", ""),
        ("template <typename T, int N> __global__ void k(T* x) {}", "k<float>", "k lacks its template argument 'N', which no argument decides."),
        ("template <typename T, int N> __global__ void k(T* x) {}", "k", "k lacks its template argument 'N', which no argument decides."),
        ("template <typename T> __global__ void k(T* x) {}", "k", ""),
        ("template <typename T, int N = 4> __global__ void k(T* x) {}", "k", ""),
        ("template <int... N> __global__ void k(float* x) {}", "k", ""),
        ("template <typename... T> __global__ void k(T*... x) {}", "k", ""),
        ("template <typename... T> __global__ void k(float* x, T*... y) {}", "k", ""),
        ("template <typename... T> __global__ void k(float* x, int n, T... y) {}", "k", "k takes 2 arguments, not 1: (float* x, int n, T... y)."),
        ("template <> __global__ void k<4>(float* x) {}", "k<4>", ""),
        ("__global__ void k(float* x) {}", "k<4>", "k takes no template arguments."),
    ],
)  # fmt: skip
def test_template_arguments(header: str, launch: str, message: str) -> None:
    faults = checked(
        f"// orbit: x = randn(8)\n// orbit: launch {launch}<<<1, 1>>>(x)\n{header}\n", "cuda"
    ).faults
    assert [fault.message for fault in faults] == ([message] if message else [])


@pytest.mark.parametrize(
    ("header", "launch", "whole"),
    [
        ("template <typename T> __global__ void k(const T* __restrict__ x, T a) {}", "k<<<1, 1>>>(randn(8), 2.0f)", "float"),
        ("template <typename T> __global__ void k(T a, T* x) {}", "k<<<1, 1>>>(2, randint(0, 9, 8))", "int"),
        ("template <typename T> __global__ void k(T* x) {}", "k<<<1, 1>>>(randn(8, dtype=half))", "__half"),
        ("template <typename T, typename U> __global__ void k(T* x, U* y) {}", "k<float><<<1, 1>>>(randn(8), zeros(8, dtype=__nv_bfloat16))", "float, __nv_bfloat16"),
        ("template <typename T, int N = 4> __global__ void k(T* x) {}", "k<<<1, 1>>>(randn(8))", "float"),
        ("template <typename... T> __global__ void k(T... x) {}", "k<<<1, 1>>>(1)", "int"),
        ("template <typename... T> __global__ void k(T*... x) {}", "k<<<1, 1>>>(randn(8), zeros(8, dtype=int32))", "float, int"),
        ("template <typename T, typename... R> __global__ void k(const T* x, R... r) {}", "k<<<1, 1>>>(randn(8), 3, 2.0f)", "float, int, float"),
        ("template <typename... T> __global__ void k(T... x) {}", "k<<<1, 1>>>()", ""),
        ("template <typename T, int N, typename... R> __global__ void k(const T* x, R*... r) {}", "k<float, 3><<<1, 1>>>(randn(8), randn(8))", "float, 3, float"),
        ("template <std::floating_point T> __global__ void k(T* x) {}", "k<<<1, 1>>>(randn(8))", "float"),
        ("template <int N = 128> __global__ void k(float* x) {}", "k<<<1, 1>>>(randn(8))", "128"),
        ("template <typename T = float> __global__ void k(float* x) {}", "k<<<1, 1>>>(randn(8))", "float"),
        ("template <typename T = float> __global__ void k(T* x) {}", "k<<<1, 1>>>(zeros(8, dtype=int32))", "int"),
        ("template <int N = 128, typename T = float> __global__ void k(T* x) {}", "k<<<1, 1>>>(zeros(8, dtype=int32))", "128, int"),
        ("template <int N = 2 * 64, bool B = (N > 3)> __global__ void k(float* x) {}", "k<<<1, 1>>>(randn(8))", "2 * 64"),
        ("template <typename T> __global__ void k(T* x) {}", "k<<<1, 1>>>(nullptr)", ""),
        ("__global__ void k(float* x) {}", "k<<<1, 1>>>(randn(8))", ""),
    ],
)  # fmt: skip
def test_template_arguments_are_deduced_for_who_runs_it(header: str, launch: str, whole: str) -> None:
    result = checked(f"// orbit: launch {launch}\n{header}\n", "cuda")
    assert ", ".join(template.text for template in result.spec.launches[0].templates) == whole


# -- expect -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "where"),
    [
        ("2 * x", ""),
        ("zeros_like(out)", ""),
        ("full_like(out, 3)", ""),
        ("x[:out.shape[0]]", ""),
        ("x * out.numel() + out.stride(0)", ""),
        ("x + out", "    ^^^"),
        ("where(x > 0, out, x)", "             ^^^"),
        ("full_like(x, out.sum())", "             ^^^"),
        ("out.float()", "^^^"),
    ],
)
def test_nothing_is_expected_of_what_is_empty(expected: str, where: str) -> None:
    line = f"# orbit: expect out == {expected}"
    below = f"\n{' ' * 23}{where} Nothing is in 'out' before the launch: it is empty(…)."
    check(add(f"expect out == {expected}"), line + below if where else "", "triton")


@pytest.mark.parametrize(
    ("tolerance", "below"),
    [
        ("within 1e-3", ""),
        ("within 1e-3, 1e-5", ""),
        ("within x", "                           ^ A tolerance is a number from 0 on."),
        ("within 1e-3, -1", "                                 ^^ A tolerance is a number from 0 on."),
        ("within", "                          ^ The statement ends too early; a value is expected."),
        ("with 1", "                    ^^^^ 'with' is not expected here."),
    ],
)
def test_within(tolerance: str, below: str) -> None:
    line = f"expect out == x + y {tolerance}"
    check(add(line), f"# orbit: {line}\n{' ' * 9}{below}" if below else "", "triton")


# -- descriptors ------------------------------------------------------------------------------------


def test_a_tensor_map() -> None:
    launch = "// orbit: x = randn(256, 64, dtype=half)\n// orbit: launch load<<<1, 128>>>({})\n"
    kernel = "__global__ void load(const __grid_constant__ CUtensorMap x) {}\n"
    check(launch.format("tensor_map(x, (64, 64), 128)") + kernel, "")
    assert "m = map of float16[256, 64] by [64, 64]" in values("x = randn(256, 64, dtype=half)\nm = tensor_map(x, (64, 64), 128)")  # fmt: skip
    check(
        launch.format("x") + kernel,
        """
        // orbit: launch load<<<1, 128>>>(x)
                                          ^ 'x' is const CUtensorMap, which takes a tensor_map(…), not a tensor (256, 64) of float16.
        """,
    )
    assert "'tensor_map' is not a function of launch specs" in values("m = tensor_map(randn(8), 8)", "triton")


def test_a_descriptor_of_triton() -> None:
    body = "x = randn(256, 64)\nm = TensorDescriptor.from_tensor(x, [64, 64])"
    assert values(body, "triton").endswith("m = map of float32[256, 64] by [64, 64]")
    assert "'from_tensor' is not a function of launch specs" in values("m = from_tensor(randn(8), 8)")


# -- plain words and amounts ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gpu H100", ("H100",)),
        ("gpu H100! A100-80GB:2", ("H100!", "A100-80GB:2")),
        ('args --size 4096 "two words" -v', ("--size", "4096", "two words", "-v")),
        ("args", ()),
        ("args a // b", ("a", "//", "b")),
        (r'stdin "3\n1 2 3\n"', ("3\n1 2 3\n",)),
        ("flags -l curand --library cublas --library=cufft -l=nvrtc", ("-lcurand", "-lcublas", "-lcufft", "-lnvrtc")),
        ("flags -O3 --use_fast_math -std=c++20 -DN=4 -lcublas -lcurand", ("-O3", "--use_fast_math", "-std", "c++20", "-DN=4", "-lcublas", "-lcurand")),
    ],
)  # fmt: skip
def test_plain_words(line: str, words: tuple[str, ...]) -> None:
    result = checked(saxpy(line), "cuda")
    assert not result.faults
    assert result.spec.words[line.split(maxsplit=1)[0]].values == words


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "gpu",
            "'gpu' needs something after it: the GPU to rent for this kernel; ignored if the run uses this machine's own GPU.",
        ),
        ("gpu ../x", "'../x' is not the name of a GPU; write 'gpu H100'."),
        ("stdin one two", "'stdin' takes one text in quotation marks."),
        ('stdin "one', "A quotation mark is never closed."),
        ("flags -o x", "The flag -o x is not among those that a launch spec may set."),
        (
            "flags -Xcompiler -fplugin=x.so",
            "The flag -Xcompiler is not among those that a launch spec may set.",
        ),
        ("flags -l", "The flag -l is not among those that a launch spec may set."),
        ("flags -l ../../evil", "The flag -l../../evil is not among those that a launch spec may set."),
        ("flags -l../../evil", "The flag -l../../evil is not among those that a launch spec may set."),
        ("flags -D'X=$(id)'", "The flag -D 'X=$(id)' is not among those that a launch spec may set."),
        ("seed 1; seed 2", "'seed' is given twice; the first is on line 3."),
        ("seed -1", "'seed' is a number from 0 on, not the int32 -1."),
        ("iterations 2000000000", "'iterations' is at most 1000000000."),
        ("warmup 2000000", "'warmup' is at most 100000."),
        ("warmup 1.5", "'warmup' takes integers, not the float64 1.5."),
        ("timeout 100000", "'timeout' is at most 86400."),
        ("timeout 0", "'timeout' is more than 0."),
        ("sweep n 1, 2", "'1' is not expected here; '=' is expected."),
        ("case tail n = 3", "'n' is not expected here; ':' is expected."),
        ("case tail: n = 300, n = 4", "'n' is given twice; the first is on line 3."),
    ],
)
def test_plain_words_that_cannot_be(line: str, message: str) -> None:
    assert [fault.message for fault in checked(saxpy(line), "cuda").faults] == [message]


def test_sweeps_and_cases_make_points() -> None:
    source = """\
// orbit: sweep n = 256, 512
// orbit: a = sweep(1.0f, 2.0f); x = randn(n); y = randn(n)
// orbit: launch saxpy<<<n / 256, 256>>>(n, a, x, y)
// orbit: case tail: n = 1000, a = 3.0f; iterations 100; timeout 2.5; seed 7
"""
    result = checked(source + SAXPY, "cuda")
    assert not result.faults
    every, _ = launch_spec.points(result.spec)
    assert [point.case for point in every] == ["", "", "", "", "tail"]
    assert list(result.spec.amounts) == ["iterations", "timeout", "seed"]
    check(
        source.replace("n = 1000", "n = 10") + SAXPY,
        """
        // orbit: launch saxpy<<<n / 256, 256>>>(n, a, x, y)
                                 ^^^^^^^ This grid is 0 in x; nothing would run.
        """,
    )


# -- kernels of all forms ---------------------------------------------------------------------------

_CUDA_FORMS = {
    "a macro for __global__": ("#define KERNEL __global__ void\n", "KERNEL k(int n, float* x) {}"),
    "a macro that takes the name": ("#define K(name) __global__ void name(int n)\n", "K(k) {}"),
    "a template": ("", "template <typename T,\n  int N>\n__global__ void __launch_bounds__(N) k(T* a,\n  int n) {}"),
    "a specialisation": ("", "template <> __global__ void k<float, 3>(float* a) {}"),
    "an overload": ("__global__ void k(float n) {}\n", "__global__ void k(int n) {}"),
    "a name in parentheses": ("", "__global__ void (k)(int* a) {}"),
    "another language": ("", 'extern "C"\n__global__ void k(int a) {}'),
    "a namespace": ("namespace a {\n", "  __global__ void k(const __restrict__ float* x) {}\n}"),
    "a type with another name": ("using real = float;\n", "__global__ void k(real* x) {}"),
}  # fmt: skip
_CUDA_SIGNATURES = {
    "a macro for __global__": "int n, float* x",
    "a macro that takes the name": None,
    "a template": "T* a, int n",
    "a specialisation": "float* a",
    "an overload": "int n",
    "a name in parentheses": "int* a",
    "another language": "int a",
    "a namespace": "const __restrict__ float* x",
    "a type with another name": "real* x",
}


@pytest.mark.parametrize("form", _CUDA_FORMS)
def test_a_spec_is_found_above_every_form_of_kernel(form: str) -> None:
    before, kernel = _CUDA_FORMS[form]
    result = checked(f"{before}// orbit: v = 3\n{kernel}\n", "cuda")
    assert list(result.values) == ["v"]
    assert (result.signature.text if result.signature else None) == _CUDA_SIGNATURES[form]


_JIT = (
    "import functools, triton\nimport triton.language as tl\ndef f(x, n=(1, 2), B: tl.constexpr = 3): pass\n"
)
_TRITON_FORMS = {
    "a decorator": "@triton.jit\ndef k(x, n): pass",
    "several": "@triton.autotune(configs=[], key=['n'])\n# why\n@triton.jit\ndef k(x, # the input\n  n): pass",
    "with arguments": "@functools.partial(triton.jit, noinline=True)\ndef k(x, n): pass",
    "assigned": "k = triton.jit(f)",
    "in a class": "class A:\n    # orbit: v = 3\n    @triton.jit\n    def k(x, n): pass",
}


@pytest.mark.parametrize("form", _TRITON_FORMS)
def test_a_spec_is_found_above_every_form_of_triton_kernel(form: str) -> None:
    kernel = _TRITON_FORMS[form]
    spec_line = "" if "orbit" in kernel else "# orbit: v = 3\n"
    result = checked(_JIT + spec_line + kernel + "\n", "triton")
    assert list(result.values) == ["v"]
    assert result.signature
    names = [parameter.name for parameter in result.signature.parameters]
    assert names == (["x", "n", "B"] if form == "assigned" else ["x", "n"])
    assert result.signature.tuned == (form == "several")


def test_the_job_carries_what_the_spec_modules_ask() -> None:
    for scan, language in (
        (cuda_kernels.scan(saxpy()), "cuda"),
        (triton_kernels.scan(add("seed 1")), "triton"),
    ):
        of = launch_spec.target_of(definition(scan.kernels[0]), language)
        assert (of.name, of.language) == (scan.kernels[0].name, language)
        assert of.start_line == scan.kernels[0].whole.line


def test_more_local_memory_than_a_thread_can_have_counts() -> None:
    check(
        saxpy(),
        """
        // orbit: launch saxpy<<<n / 256, 256>>>(n, 2.0f, x, y)
                         ^^^^^ Each thread needs 524289 bytes of local memory; CUDA gives one at most 524288.
        """,
        limits=LaunchLimits("sm_90a", 0, 524_289),
    )
    check(saxpy(), "", limits=LaunchLimits("sm_90a", 0, 524_288))
