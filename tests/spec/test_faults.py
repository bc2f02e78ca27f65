"""Each mistake is one sentence at its own column."""

from __future__ import annotations

import pytest

from tests.spec.spec_check import check, faults

SAXPY = "\n__global__ void saxpy(int n, float a, const float* x, float* y) {}\n"
ADD = """
import triton
import triton.language as tl
{spec}
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    pass
"""
GOOD = """
// orbit: n = 1 << 20; a = 2.0f
// orbit: x = randn(n); y = randn(n)
"""


def saxpy(*lines: str) -> str:
    return GOOD + "".join(f"// orbit: {line}\n" for line in lines) + SAXPY


def add(*lines: str) -> str:
    spec = "".join(
        f"# orbit: {line}\n" for line in ("n = 1000; x = randn(n); y = randn(n); out = empty(n)", *lines)
    )
    return ADD.replace("{spec}", spec)


def test_the_example_of_the_page_has_none() -> None:
    check(
        saxpy(
            "launch saxpy<<<(n + 255) / 256, 256>>>(n, a, x, y)",
            "expect y == a * x + y",
            "bytes 3 * 4 * n; flops 2 * n",
        ),
        "",
    )
    check(
        add(
            "launch add[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=1024, num_warps=4)".replace(
                "BLOCK)", "1024)"
            ),
            "expect out == x + y",
        ),
        "",
        "triton",
    )


def test_a_grid_that_is_a_function_of_the_constants() -> None:
    check(
        add("launch add[lambda META: (triton.cdiv(n, META['BLOCK']),)](x, y, out, n, BLOCK=1024)"),
        "",
        "triton",
    )
    check(
        add("launch add[lambda META: (triton.cdiv(n, META['BLOK']),)](x, y, out, n, BLOCK=1024)"),
        """
        # orbit: launch add[lambda META: (triton.cdiv(n, META['BLOK']),)](x, y, out, n, BLOCK=1024)
                                                              ^^^^^^ The launch gives no 'BLOK'; did you mean 'BLOCK'?
        """,
        "triton",
    )


def test_unknown_words_and_names() -> None:
    check(
        saxpy("lunch saxpy<<<1, 1>>>(n, a, x, y)", "launch saxpy<<<1, 1>>>(m, a, x, y)"),
        """
        // orbit: lunch saxpy<<<1, 1>>>(n, a, x, y)
                  ^^^^^ 'lunch' is not a word of launch specs; did you mean 'launch'?
        // orbit: launch saxpy<<<1, 1>>>(m, a, x, y)
                                         ^ 'm' is not known here.
        """,
    )


def test_a_function_as_torch_has_it() -> None:
    check(
        saxpy("launch saxpy<<<1, 1>>>(n, a, x, y)", "expect y == torch.softmax(x, -1)"),
        """
        // orbit: expect y == torch.softmax(x, -1)
                              ^^^^^ 'torch.softmax' is written 'softmax' in launch specs.
        """,
    )


def test_a_malformed_value_is_not_told_again_where_it_is_used() -> None:
    check(
        "// orbit: n = 1 <<; x = randn(n); y = randn(n)\n// orbit: launch saxpy<<<n / 256, 256>>>(n, 1.0f, x, y)\n"
        + SAXPY,
        """
        // orbit: n = 1 <<; x = randn(n); y = randn(n)
                          ^ The statement ends too early; a value is expected.
        """,
    )


def test_the_number_of_arguments() -> None:
    check(
        saxpy("launch saxpy<<<1, 1>>>(n, x, y)"),
        """
        // orbit: n = 1 << 20; a = 2.0f
                               ~ 'a' is used nowhere.
        // orbit: launch saxpy<<<1, 1>>>(n, x, y)
                         ^^^^^ saxpy takes 4 arguments, not 3: (int n, float a, const float* x, float* y).
                                            ^ 'a' is float, which takes a number, not a tensor (1048576,) of float32.
        """,
    )
    check(
        saxpy("launch saxpy<<<1, 1>>>(n, a, x, y, 3)"),
        """
        // orbit: launch saxpy<<<1, 1>>>(n, a, x, y, 3)
                                                     ^ saxpy takes 4 arguments, not 5: (int n, float a, const float* x, float* y).
        """,
    )
    check(
        add("launch add[(1,)](x, y, out, BLOCK=1, warps=4)"),
        """
        # orbit: launch add[(1,)](x, y, out, BLOCK=1, warps=4)
                        ^^^ add lacks 'n': (x, y, out, n, BLOCK: tl.constexpr).
                                                      ^^^^^^^ add has no 'warps'; did you mean 'num_warps'?
        """,
        "triton",
    )


def test_types_against_parameters() -> None:
    check(
        """
        // orbit: n = 1 << 20; x = randn(n, dtype=double); y = zeros(n)
        // orbit: launch saxpy<<<1, 1>>>(3000000000, 2, x, y)
        __global__ void saxpy(int n, float a, const float* x, float* y) {}
        """,
        """
        // orbit: launch saxpy<<<1, 1>>>(3000000000, 2, x, y)
                                         ^^^^^^^^^^ 'n' is int, and 3000000000 does not fit in int32.
                                                        ^ 'x' is const float*, and this tensor has float64, not float32.
        """,
    )


def test_a_template_chooses_the_type() -> None:
    check(
        """
        // orbit: x = randn(8)
        // orbit: launch twice<half, 4><<<1, 1>>>(x)
        template <typename T, int N>
        __global__ void twice(T* x) {}
        """,
        "",
    )
    check(
        """
        // orbit: x = randn(8, dtype=float)
        // orbit: launch twice<half><<<1, 1>>>(x)
        template <typename T>
        __global__ void twice(T* x) {}
        """,
        """
        // orbit: launch twice<half><<<1, 1>>>(x)
                                               ^ 'x' is T*, and this tensor has float32, not float16.
        """,
    )


def test_grids_and_blocks_that_cannot_be() -> None:
    check(
        saxpy(
            "launch saxpy<<<n / (1 << 21), 2048>>>(n, a, x, y)",
            "launch saxpy<<<dim3(1, 70000), dim3(64, 32)>>>(n, a, x, y)",
        ),
        """
        // orbit: launch saxpy<<<n / (1 << 21), 2048>>>(n, a, x, y)
                                 ^^^^^^^^^^^^^ This grid is 0 in x; nothing would run.
                                                ^^^^ This block is 2048 in x; CUDA takes at most 1024.
        // orbit: launch saxpy<<<dim3(1, 70000), dim3(64, 32)>>>(n, a, x, y)
                                 ^^^^^^^^^^^^^^ This grid is 70000 in y; CUDA takes at most 65535.
                                                 ^^^^^^^^^^^^ This block has 2048 threads; a block has at most 1024.
        """,
    )


def bounded(before: str, bounds: str, launch: str, template: str = "") -> str:
    """What is said of a launch of a kernel with launch bounds, below its configuration."""
    line = f"// orbit: n = sweep(64, 320); launch k{launch}(n)"
    source = f"{before}\n{line}\n{template}__global__ void {bounds} k(int n) {{}}\n"
    result = faults(source)
    assert not result or result.splitlines()[0] == line
    return "\n".join(text.strip() for text in result.splitlines()[1:])


@pytest.mark.parametrize(
    ("before", "bounds", "launch", "message"),
    [
        ("", "__launch_bounds__(256)", "<<<1, 256>>>", ""),
        ("", "__launch_bounds__(256)", "<<<1, 257>>>", "^^^ This block has 257 threads; k's __launch_bounds__(256) allows at most 256."),
        ("", "__launch_bounds__(256, 2)", "<<<1, dim3(32, 16)>>>", "^^^^^^^^^^^^ This block has 512 threads; k's __launch_bounds__(256) allows at most 256."),
        ("", "C10_LAUNCH_BOUNDS_1(8 * 32)", "<<<1, 512>>>", "^^^ This block has 512 threads; k's __launch_bounds__(8 * 32) allows at most 256."),
        ("", "__launch_bounds__(256)", "<<<1, 2048>>>", "^^^^ This block is 2048 in x; CUDA takes at most 1024."),
        ("", "__launch_bounds__(256)", "<<<1, n>>>", "^ This block has 320 threads; k's __launch_bounds__(256) allows at most 256."),
        ("#define THREADS 128  // a warp group", "__launch_bounds__(THREADS)", "<<<1, 256>>>", "^^^ This block has 256 threads; k's __launch_bounds__(THREADS) allows at most 128."),
        ("constexpr int kWarps = 4, kThreads{kWarps * 32};", "__launch_bounds__(kThreads)", "<<<1, 256>>>", "^^^ This block has 256 threads; k's __launch_bounds__(kThreads) allows at most 128."),
        ("static const unsigned T = (1u << 7);", "__launch_bounds__(T)", "<<<1, 256>>>", "^^^ This block has 256 threads; k's __launch_bounds__(T) allows at most 128."),
        # what the text does not tell
        ("", "__launch_bounds__(THREADS)", "<<<1, 1024>>>", ""),
        ("#ifndef T\n#define T 128\n#endif", "__launch_bounds__(T)", "<<<1, 256>>>", ""),
        ("#if X\n#define T 128\n#else\n#define T 256\n#endif", "__launch_bounds__(T)", "<<<1, 512>>>", ""),
        ("namespace a { const int T = 64; }\nnamespace b { const int T = 32; }", "__launch_bounds__(T)", "<<<1, 512>>>", ""),
        ("#define T T", "__launch_bounds__(T)", "<<<1, 512>>>", ""),
        ("const int T = 1 + " * 8000 + "1;", "__launch_bounds__(T)", "<<<1, 512>>>", ""),  # once hung
        ("int T = 64;", "__launch_bounds__(Traits::kThreads)", "<<<1, 512>>>", ""),
        ("", "__launch_bounds__(-1)", "<<<1, 512>>>", ""),
        ("__global__ void __launch_bounds__(32) other() {}", "", "<<<1, 512>>>", ""),
    ],
)  # fmt: skip
def test_blocks_against_launch_bounds(before: str, bounds: str, launch: str, message: str) -> None:
    assert bounded(before, bounds, launch) == message


@pytest.mark.parametrize(
    ("attribute", "launch", "message"),
    [
        ("__block_size__((64, 1, 1))", "<<<1, 256>>>(n)", "^^^ This block is 256 x 1 x 1; k's __block_size__((64, 1, 1)) takes 64 x 1 x 1 only."),
        ("__block_size__((64, 1, 1))", "<<<1, dim3(8, 8)>>>(n)", "^^^^^^^^^^ This block is 8 x 8 x 1; k's __block_size__((64, 1, 1)) takes 64 x 1 x 1 only."),
        ("__block_size__((64))", "<<<1, 64>>>(n)", ""),
        ("__cluster_dims__(4, 1, 1)", "<<<3, 256>>>(n)", "^ The grid is 3 in x, which clusters of 4 do not divide."),
        ("__cluster_dims__(2, 2)", "<<<dim3(4, 3), 256>>>(n)", "^^^^^^^^^^ The grid is 3 in y, which clusters of 2 do not divide."),
        ("__cluster_dims__(4, 1, 1)", "<<<16, 256>>>(n)", ""),
        ("__cluster_dims__(4, 1, 1)", "<<<16, 256>>>(n) cluster(4)", ""),
        ("__cluster_dims__(4, 1, 1)", "<<<16, 256>>>(n) cluster(2, 1, 1)", "^^^^^^^^^^^^^^^^ This cluster is 2 x 1 x 1; k's __cluster_dims__(4, 1, 1) has 4 x 1 x 1 always."),
        ("__launch_bounds__(256, 1, 4)", "<<<16, 256>>>(n) cluster(8, 1, 1)", "^^^^^^^^^^^^^^^^ This cluster has 8 blocks; k's __launch_bounds__ allows at most 4."),
        ("__launch_bounds__(256, 1, 4)", "<<<16, 256>>>(n) cluster(4)", ""),
        ("__cluster_dims__(UNKNOWN)", "<<<3, 256>>>(n)", ""),
    ],
)  # fmt: skip
def test_launches_that_attributes_forbid(attribute: str, launch: str, message: str) -> None:
    line = f"// orbit: n = 3; launch k{launch}"
    lines = faults(f"{line}\n__global__ void {attribute} k(int n) {{}}\n").splitlines()
    assert [text.strip() for text in lines] == ([line, message] if message else [])


@pytest.mark.parametrize(
    ("template", "launch", "message"),
    [
        ("template <int N>", "<128><<<1, 256>>>", "^^^ This block has 256 threads; k's __launch_bounds__(N) allows at most 128."),
        ("template <int N>", "<n><<<1, 256>>>", "^^^ This block has 256 threads; k's __launch_bounds__(N) allows at most 64."),
        ("template <typename T, int N>", "<float, 256><<<1, 256>>>", ""),
        ("template <int N = 128>", "<<<1, 256>>>", "^^^ This block has 256 threads; k's __launch_bounds__(N) allows at most 128."),
        ("template <int N = 128>", "<256><<<1, 256>>>", ""),
        ("template <int N = OTHER>", "<<<1, 256>>>", ""),
        ("template <int... N>", "<128><<<1, 256>>>", ""),
    ],
)  # fmt: skip
def test_launch_bounds_of_templates(template: str, launch: str, message: str) -> None:
    """A constant of the file with the name of a template parameter is another."""
    assert bounded("constexpr int N = 64;", "__launch_bounds__(N)", launch, template + " ") == message


def test_an_expectation_of_what_the_kernel_cannot_write() -> None:
    check(
        saxpy(
            "z = zeros(n); launch saxpy<<<1, 1>>>(n, a, x, y)",
            "expect x == y",
            "expect z == y",
            "expect y == x[:5]",
        ),
        """
        // orbit: expect x == y
                         ^ The kernel cannot write 'x': its parameter is const.
        // orbit: expect z == y
                         ^ No launch gets 'z', so the kernel cannot write it.
        // orbit: expect y == x[:5]
                              ^^^^^ The shapes (1048576,) and (5,) do not go together.
        """,
    )


def test_a_gpu_of_no_known_name() -> None:
    check(
        saxpy("launch saxpy<<<1, 1>>>(n, a, x, y); gpu H1O0"),
        """
        // orbit: launch saxpy<<<1, 1>>>(n, a, x, y); gpu H1O0
                                                      ~~~~~~~~ No GPU named H1O0 is known; it is one such as H100, A100-80GB or L4.
        """,
    )
    check(saxpy("launch saxpy<<<1, 1>>>(n, a, x, y); gpu a100-80gb:2"), "")


def test_a_launch_of_another_kernel_only() -> None:
    check(
        saxpy("launch saxpi<<<1, 1>>>(n, a, x, y)"),
        """
        // orbit: launch saxpi<<<1, 1>>>(n, a, x, y)
                         ^^^^^ This launches 'saxpi', and the kernel below is 'saxpy'; did you mean 'saxpy'?
        """,
    )


def test_cases_and_sweeps_are_checked_value_by_value() -> None:
    check(
        """
        // orbit: n = sweep(1024, 2048, 100); x = randn(n); y = empty(n)
        // orbit: launch saxpy<<<n / 256, 256>>>(n, 1.0f, x, y)
        // orbit: case tail: m = 3
        __global__ void saxpy(int n, float a, const float* x, float* y) {}
        """,
        """
        // orbit: launch saxpy<<<n / 256, 256>>>(n, 1.0f, x, y)
                                 ^^^^^^^ This grid is 0 in x; nothing would run.
        // orbit: case tail: m = 3
                             ^ 'm' is assigned nowhere above, and a case replaces values.
        """,
    )


def test_amounts() -> None:
    check(
        saxpy("launch saxpy<<<1, 1>>>(n, a, x, y)", "bytes x; iterations 0; timeout -1; seed 1.5"),
        """
        // orbit: bytes x; iterations 0; timeout -1; seed 1.5
                        ^ 'bytes' is a number from 0 on, not a tensor (1048576,) of float32.
                                      ^ 'iterations' is more than 0.
                                                 ^^ 'timeout' is a number from 0 on, not the int32 -1.
                                                          ^^^ 'seed' takes integers, not the float64 1.5.
        """,
    )


def test_where_specs_are_not_read() -> None:
    check(
        """
        /* orbit: launch k<<<1, 1>>>() */
        template <int N>
        // orbit: launch k<1><<<1, 1>>>()
        __global__ void k() {}
        """,
        """
        /* orbit: launch k<<<1, 1>>>() */
           ~~~~~~ A launch spec is written in // comments; this block is not read.
        // orbit: launch k<1><<<1, 1>>>()
        ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~ Launch specs belong above the template header; this line is not read.
        """,
    )


def test_other_malformed_statements() -> None:
    check(
        saxpy(
            "int m = 3", "n = 4", "w = π", 's = "a', "v = (1", "gpu H100; gpu A100", "flags -o x",
            "launch saxpy<<<1, 1, 0, 5>>>(n, a, x, y)", "launch saxpy<<<1, 1>>>(n, a, x, y)",
        ),
        """
        // orbit: int m = 3
                  ^^^ Names take the type of their value; write 'm = …' without a type.
        // orbit: n = 4
                  ^ 'n' is assigned twice; the first is on line 1.
        // orbit: w = π
                      ^ '\\u03c0' (U+03C0) has no meaning here.
        // orbit: s = "a
                      ^^ This string is never closed.
        // orbit: v = (1
                      ^ '(' is never closed.
        // orbit: gpu H100; gpu A100
                            ^^^ 'gpu' is given twice; the first is on line 8.
        // orbit: flags -o x
                  ^^^^^^^^^^ The flag -o x is not among those that a launch spec may set.
        // orbit: launch saxpy<<<1, 1, 0, 5>>>(n, a, x, y)
                                          ^ The stream is chosen by the run; leave it out.
        """,
    )  # fmt: skip


def test_a_number_of_warps_that_no_block_can_have() -> None:
    check(
        add(
            "launch add[(1,)](x, y, out, n, BLOCK=1024, num_warps=3)",
            "launch add[(1,)](x, y, out, n, BLOCK=1024, num_warps=64)",
        ),
        """
        # orbit: launch add[(1,)](x, y, out, n, BLOCK=1024, num_warps=3)
                                                                      ^ num_warps is a power of 2 from 1 to 32, not 3.
        # orbit: launch add[(1,)](x, y, out, n, BLOCK=1024, num_warps=64)
                                                                      ^^ num_warps is a power of 2 from 1 to 32, not 64.
        """,
        "triton",
    )
