"""Drafts from the signature: a kernel in, the lines that the code action writes above it out."""

from __future__ import annotations

import re

import pytest

from tests.drafting import FROM_LAUNCH, FROM_SIGNATURE, check, written
from tests.spec.spec_check import checked


def test_a_pointer_whose_index_a_constant_bounds() -> None:
    check(
        """
        #define BINS 64
        __global__ void count(const int* data, unsigned* bins, int n) {
          for (int b = threadIdx.x; b < BINS; b += blockDim.x) atomicAdd(&bins[b], data[blockIdx.x]);
        }
        """,
        """
        // orbit: n = 1 << 20; data = randint(0, n, n); bins = zeros(BINS)  // guessed
        // orbit: launch count<<<(n + 255) / 256, 256>>>(data, bins, n)  // guessed: grid, block
        """,
    )


def test_a_result_of_one_element() -> None:
    check(
        """
        __global__ void total(int n, const float* in, float* out, unsigned* blocks, int* size) {
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) atomicAdd(out, in[i]);
          if (threadIdx.x == 0) atomicAdd(&blocks[0], 1);
          if (i == 0) *size = n;
        }
        """,
        """
        // orbit: n = 1 << 20; in = randn(n); out = zeros(1); blocks = zeros(1); size = empty(1)  // guessed
        // orbit: launch total<<<(n + 255) / 256, 256>>>(n, in, out, blocks, size)  // guessed: grid, block
        """,
    )


def test_one_count_and_what_is_read_and_written() -> None:
    check(
        "__global__ void saxpy(int n, float a, const float* x, float* y) { y[0] = a * x[0] + y[0]; }",
        """
        // orbit: n = 1 << 20; a = 0.5f; x = randn(n); y = randn(n)  // guessed
        // orbit: launch saxpy<<<(n + 255) / 256, 256>>>(n, a, x, y)  // guessed: grid, block
        """,
    )
    check(
        "__global__ void copy(const float4* x, float4* out, size_t n) { out[threadIdx.x] = x[blockIdx.x]; }",
        """
        // orbit: n = 1 << 20; x = randn(4 * n); out = empty(4 * n)  // guessed
        // orbit: launch copy<<<(n + 255) / 256, 256>>>(x, out, n)  // guessed: grid, block
        """,
    )
    check(
        "__global__ void histogram(int n, const unsigned char* data, unsigned* bins) { atomicAdd(&bins[data[blockIdx.x]], 1); }",
        """
        // orbit: n = 1 << 20; data = randint(0, 256, n); bins = zeros(n)  // guessed
        // orbit: launch histogram<<<(n + 255) / 256, 256>>>(n, data, bins)  // guessed: grid, block
        """,
    )


@pytest.mark.parametrize(
    ("kernel", "launch"),
    [
        ("template <typename T, int BLOCK = 128> __global__ void __launch_bounds__(BLOCK) k(T* x, int n) { x[0] = 0; }", "k<float><<<(n + 127) / 128, 128>>>(x, n)"),
        ("__global__ void __block_size__((64, 1, 1)) k(float* x, int n) { x[0] = 0; }", "k<<<(n + 63) / 64, 64>>>(x, n)"),
        ("template <std::copyable T> __global__ void k(T* x, int n) { x[0] = 0; }", "k<float><<<(n + 255) / 256, 256>>>(x, n)"),
        ("template <std::floating_point T> __global__ void k(T* x, int n) { x[0] = 0; }", "k<float><<<(n + 255) / 256, 256>>>(x, n)"),
        ("template <std::integral T> __global__ void k(T* x, int n) { x[0] = 0; }", ""),
        ("template <typename T> requires (sizeof(T) == 4) && requires(T t) { t + t; } __global__ void k(T* x, int n) { x[0] = 0; }", "k<float><<<(n + 255) / 256, 256>>>(x, n)"),
    ],
)  # fmt: skip
def test_what_template_heads_and_attributes_say(kernel: str, launch: str) -> None:
    draft = written(kernel, FROM_SIGNATURE, "cuda")
    assert re.findall(r"orbit: launch (.*?)(?:  //.*)?$", draft, re.MULTILINE) == ([launch] if launch else [])
    assert not draft or not checked(draft + kernel, "cuda").faults


_AT = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
_XY = "int x = blockIdx.x * blockDim.x + threadIdx.x; int y = threadIdx.y + blockIdx.y * blockDim.y;"


@pytest.mark.parametrize(
    ("parameters", "body", "expected"),
    [
        ("int n, float a, const float* x, float* y", f"{_AT} if (i < n) y[i] = a * x[i] + y[i];", "y == a * x + y; bytes 3 * 4 * n"),
        ("const half* x, float* y, size_t n", "const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; float v = __half2float(x[i]); y[i] = v * fmaxf(v, 0.f);", "y == x * maximum(x, 0.f); bytes (2 + 4) * n"),
        ("const float* x, float* y, int n", "int step = gridDim.x * blockDim.x; for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) { y[i] += 2.0f * expf(-x[i]); }", "y == y + (2.0f * expf(-x)); bytes 3 * 4 * n"),
        ("float* x, float* y, int n", f"{_AT} if (i < n) {{ x[i] = 2.0f; y[i] = x[i] + 1.0f; }}", "x == 2.0f; expect y == (2.0f) + 1.0f; bytes 2 * 4 * n"),
        # of a matrix: a thread for each row and column
        ("const float* a, float* b, int rows, int cols, float s", f"{_XY} if (y < rows && x < cols) b[y * cols + x] = s * a[y * cols + x];", "b == s * a; bytes 2 * 4 * rows * cols"),
        ("const float* a, float* b, int rows, int cols", f"{_XY} if (x >= cols || y >= rows) return; size_t i = (size_t)y * cols + x; b[i] = a[i] + b[i];", "b == a + b; bytes 3 * 4 * rows * cols"),
        ("float* a, int n", f"{_XY} if (x < n && y < n) {{ a[x + n * y] = 0.0f; }}", None),
        ("float* a, int n", f"{_XY} if (x < n && y < n) {{ a[x + y * n] = 0.0f; }}", "a == 0.0f; bytes 4 * n * n"),
        ("const float* a, float* b, int rows, int cols", f"{_XY} if (y < rows && x < cols) b[x * rows + y] = a[y * cols + x];", None),
        ("const float* a, float* b, int rows, int cols", f"{_XY} if (y < rows && x < cols) b[y * cols + x] = x * a[y * cols + x];", None),
        ("const float* a, float* b, int rows, int cols", f"{_XY} if (x < cols) b[y * cols + x] = a[y * cols + x];", None),
        # a neighbour, a macro, a quotient of integers, another length, a condition, a barrier
        ("const float* x, float* y, int n", f"{_AT} if (i < n) y[i] = x[i + 1];", None),
        ("const float* x, float* y, int n", f"{_AT} if (i < n) y[i] = x[i] * SCALE;", None),
        ("const int* x, int* y, int n", f"{_AT} if (i < n) y[i] = x[i] / 2;", None),
        ("const float* x, float* y, int n, int m", f"{_AT} if (i < m) y[i] = x[i];", None),
        ("const float* x, float* y, int n", f"{_AT} if (i < n) {{ if (x[i] > 0.f) y[i] = x[i]; }}", None),
        ("const float* x, float* y, int n", f"{_AT} if (i < n) y[i] = x[i]; __syncthreads();", None),
        ("const float* x, float* y, int n", f"{_AT} y[i] = x[i];", None),
    ],
)  # fmt: skip
def test_what_an_elementwise_body_makes_is_expected_of_it(
    parameters: str, body: str, expected: str | None
) -> None:
    text = written(f"__global__ void k({parameters}) {{ {body} }}", FROM_SIGNATURE, "cuda")
    read = re.findall(r"// orbit: expect (.*?)  // read off the body: check it$", text, re.MULTILINE)
    assert (read, "expect" in text) == ([expected] if expected else [], expected is not None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x + tl.exp(y) * 2", "out == x + (exp(y) * 2)"),
        ("tl.maximum(x, 0.0)", "out == maximum(x, 0.0)"),
        ("tl.sum(x)", None),
        ("tl.where(x > 0, x, y)", None),
    ],
)
@pytest.mark.parametrize("title", [FROM_SIGNATURE, FROM_LAUNCH])
def test_what_an_elementwise_kernel_of_triton_makes(title: str, value: str, expected: str | None) -> None:
    text = written(
        f"""
        import torch, triton
        import triton.language as tl

        @triton.jit
        def k(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
            offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            mask = offsets < n
            x = tl.load(x_ptr + offsets, mask=mask)
            y = tl.load(y_ptr + offsets, mask=mask, other=0.0)
            tl.store(out_ptr + offsets, {value}, mask=mask)

        def main():
            x, y = torch.rand(98432), torch.rand(98432)
            out = torch.empty_like(x)
            k[(triton.cdiv(98432, 1024),)](x, y, out, 98432, BLOCK=1024)
        """,
        title,
        "python",
    ).replace("_ptr", "")
    read = re.findall(r"# orbit: expect (.*?)(?:;|  #)", text)
    assert read == ([expected] if expected else []), text


def test_matrices() -> None:
    check(
        """
        template <int TILE>
        __global__ void matmul(const half* A, const half* B, float* C, int M, int N, int K, float eps) {
          __shared__ half a[TILE][TILE];
          C[threadIdx.y] = A[0] * B[0] + eps;
        }
        """,
        """
        // orbit: M = 1024; N = 1024; K = 1024; TILE = 16; A = randn(M, K); B = randn(K, N)  // guessed
        // orbit: C = empty(M, N); eps = 1e-5f  // guessed
        // orbit: launch matmul<TILE><<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(A, B, C, M, N, K,
        // orbit:   eps)  // guessed: grid, block
        """,
    )


def test_a_block_for_every_row() -> None:
    text = written(
        """
        namespace norms {
          template <typename T>
          __global__ void __launch_bounds__(128) softmax(const T* x, T* y, int rows, int cols, int stride) {
            extern __shared__ float sums[];
            y[blockIdx.x * stride] = x[blockIdx.x];
          }
        }
        """,
        FROM_SIGNATURE,
        "cuda",
    )
    assert text.splitlines() == [
        "  // orbit: rows = 1024; cols = 1024; x = randn(rows, cols); y = empty(rows, cols); stride = cols  // guessed",
        "  // orbit: launch softmax<float><<<rows, 128, 128 * sizeof(float)>>>(x, y, rows, cols,",
        "  // orbit:   stride)  // guessed: grid, block, shared memory",
    ]


def test_a_draft_is_indented_as_its_kernel_and_stands_above_decorators() -> None:
    text = written(
        """
        import triton
        import triton.language as tl
        class Kernels:
            @triton.jit
            def fill(x_ptr, n_elements, BLOCK: tl.constexpr):
                at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
                tl.store(x_ptr + at, 0, mask=at < n_elements)
        """,
        FROM_SIGNATURE,
        "triton",
    )
    assert text.splitlines() == [
        "    # orbit: n_elements = 1 << 20; x_ptr = empty(n_elements); BLOCK = 1024  # guessed",
        "    # orbit: launch fill[(triton.cdiv(n_elements, BLOCK),)](x_ptr, n_elements, BLOCK=BLOCK)  # guessed: grid",
        "    # orbit: expect x_ptr == 0; bytes 4 * n_elements  # read off the body: check it",
    ]


def test_what_is_being_typed_elsewhere_in_a_file_hides_no_draft() -> None:
    kernel = """
    import triton
    import triton.language as tl
    class Kernels:
        @triton.jit
        def fill(x, n, BLOCK: tl.constexpr):
            tl.store(x + tl.arange(0, BLOCK), n)

    """
    draft = written(kernel, FROM_SIGNATURE, "triton")
    assert "x = empty(n)" in draft
    assert written(kernel + "    def host(:\n", FROM_SIGNATURE, "triton") == draft


MATMUL = """
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32})], key=["M", "N", "K"])
@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
           BLOCK_K: tl.constexpr, EVEN: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    if EVEN:
        a = tl.load(a_ptr + m[:, None] * stride_am)
    tl.store(c_ptr + m, a + tl.load(b_ptr + n), mask=(m < M) & (n < N))
"""


def test_what_is_tuned_is_left_to_the_tuner() -> None:
    check(
        MATMUL,
        """
        # orbit: M = 1024; N = 1024; K = 1024; a_ptr = randn(M, K); b_ptr = randn(K, N)  # guessed
        # orbit: c_ptr = empty(M, N); stride_am = K; stride_ak = 1; EVEN = True  # guessed
        # orbit: launch matmul[lambda META: (triton.cdiv(M, META['BLOCK_M']), triton.cdiv(N, META['BLOCK_N']))](a_ptr,
        # orbit:   b_ptr, c_ptr, M, N, K, stride_am, stride_ak, EVEN=EVEN)  # guessed: grid
        """,
        language="triton",
    )


def test_what_heuristics_make_is_left_to_them() -> None:
    check(
        """
        import triton
        import triton.language as tl

        @triton.autotune(configs=[triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])
        @triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})
        @triton.jit
        def fill(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
            i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            tl.store(x + i, 2.0, mask=i < n)
        """,
        """
        # orbit: n = 1 << 20; x = empty(n)  # guessed
        # orbit: launch fill[lambda META: (triton.cdiv(n, META['BLOCK']),)](x, n)  # guessed: grid
        # orbit: expect x == 2.0; bytes 4 * n  # read off the body: check it
        """,
        language="triton",
    )


def test_rows_of_triton() -> None:
    check(
        """
        import triton
        import triton.language as tl

        @triton.jit
        def norm(X, Y, W, stride, n_cols, eps, BLOCK_SIZE: tl.constexpr):
            row = tl.program_id(0)
            X += row * stride
            c = tl.arange(0, BLOCK_SIZE)
            x = tl.load(X + c, mask=c < n_cols) * tl.load(W + c, mask=c < n_cols)
            tl.store(Y + row * stride + c, x / eps, mask=c < n_cols)
        """,
        """
        # orbit: rows = 1024; n_cols = 1024; X = randn(rows, n_cols); Y = empty(rows, n_cols)  # guessed
        # orbit: W = randn(rows, n_cols); stride = n_cols; eps = 1e-5  # guessed
        # orbit: BLOCK_SIZE = triton.next_power_of_2(n_cols)  # guessed
        # orbit: launch norm[(rows,)](X, Y, W, stride, n_cols, eps, BLOCK_SIZE=BLOCK_SIZE)  # guessed: grid
        """,
        language="triton",
    )


@pytest.mark.parametrize(
    "kernel",
    [
        "struct P { int n; };\n__global__ void k(P p) {}",
        "__global__ void k(float** x) {}",
        "__global__ void k(int& n) {}",
        "template <typename F> __global__ void k(F f, int n) { f(n); }",
        "template <typename T> __global__ void k(int n) {}",
        "template <typename T> __global__ void k(T a, float* x) {}",
        "#define K(name) __global__ void name(int n)\nK(k) {}",
    ],
)
def test_where_a_launch_spec_cannot_pass_an_argument_there_is_no_draft(kernel: str) -> None:
    assert written(kernel + "\n", FROM_SIGNATURE, "cuda") == ""


@pytest.mark.parametrize(
    ("language", "kernel", "assigned"),
    [
        ("cuda", "__global__ void k(float* x, int n, int offset) {}", "offset =  // fill in: int offset"),
        ("cuda", "struct P;\n__global__ void k(P* p, int n) {}", "p =  // fill in: P* p"),
        ("cuda", "template <int ITEMS> __global__ void k(float* x, int n) {}", "ITEMS =  // fill in: int"),
        ("cuda", "__global__ void k(CUtensorMap a, int n) {}", "a =  // fill in: CUtensorMap a"),
        ("triton", "x, n, MODE: tl.constexpr", "MODE =  # fill in"),
        ("triton", "x_ptr, n, offset", "offset =  # fill in"),
    ],
)
def test_what_nothing_tells_is_the_authors_to_fill_in(language: str, kernel: str, assigned: str) -> None:
    """The only error of the draft is there."""
    if language == "triton":
        kernel = f"import triton\nimport triton.language as tl\n@triton.jit\ndef k({kernel}):\n    tl.store(x, 0)\n"
        kernel = kernel.replace("store(x, 0)", "store(x_ptr, 0)") if "x_ptr" in kernel else kernel
    draft = written(kernel + "\n", FROM_SIGNATURE, language)
    assert f" orbit: {assigned}\n" in draft
    before, _, after = kernel.partition("@triton.jit" if language == "triton" else "@")
    at = len(before) if after else kernel.rindex("\n") + 1 if "\n" in kernel else 0
    text = kernel[:at] + draft + kernel[at:] + "\n"
    (fault,) = checked(text, language).faults
    assert fault.message == "The statement ends too early; a value is expected."
    assert text.splitlines()[fault.span.line].endswith(assigned)


SHARED = """
extern __shared__ float tile[];
namespace raw { extern __shared__ __align__(16) unsigned char room[]; }
__global__ void k(const float* x, float* y, int n) { BODY }
__global__ void other(float* y) { extern __shared__ int elsewhere[]; y[0] = elsewhere[0]; }
"""


@pytest.mark.parametrize(
    ("body", "shared"),
    [
        ("y[0] = x[0] + tile[0];", "256 * sizeof(float)"),
        ("extern __shared__ int4 a[]; y[0] = x[0] + a[0].x;", "256 * sizeof(int4)"),
        ("y[0] = x[0] + raw::room[0];", "256 * sizeof(float)"),  # bytes are room for something else
        ("y[0] = x[0];", ""),
        ("float elsewhere[4]; y[0] = x[0] + elsewhere[0];", ""),
    ],
)
def test_dynamic_shared_memory_that_a_body_names(body: str, shared: str) -> None:
    kernel = SHARED.replace("BODY", body + " int i = blockIdx.x * blockDim.x;")
    draft = written(kernel, FROM_SIGNATURE, "cuda")
    assert f"<<<(n + 255) / 256, 256{f', {shared}' if shared else ''}>>>" in draft
    assert draft.endswith(
        "// guessed: grid, block, shared memory\n" if shared else "// guessed: grid, block\n"
    )


@pytest.mark.parametrize(
    ("before", "bounds", "body", "block"),
    [
        ("constexpr int kWarps = 4;", "kWarps * 32", "y[blockIdx.x * blockDim.x] = 1;", "127) / 128, 128"),
        ("", "128", "y[threadIdx.y] = blockIdx.x;", "15) / 16, (n + 15) / 16), dim3(16, 8)"),
        ("", "UNKNOWN", "y[blockIdx.x * blockDim.x] = 1;", "255) / 256, 256"),
    ],
)
def test_a_block_within_the_launch_bounds(before: str, bounds: str, body: str, block: str) -> None:
    kernel = f"{before}\n__global__ void __launch_bounds__({bounds}) k(float* y, int n) {{ {body} }}\n"
    (_, launch) = written(kernel, FROM_SIGNATURE, "cuda").splitlines()
    launch = launch.removesuffix("  // guessed: grid, block").removeprefix("// orbit: launch k<<<")
    assert launch.removeprefix("dim3(") == f"(n + {block}>>>(y, n)"


@pytest.mark.parametrize(
    ("kernel", "launch"),
    [
        (  # a block takes a row
            "__global__ void k(const float* x, float* y, int hidden_size) { y[blockIdx.x * hidden_size] = x[0]; }",
            "rows = 1024; hidden_size = 1024; x = randn(rows, hidden_size); y = empty(rows, hidden_size); k<<<rows, 256>>>(x, y, hidden_size)",
        ),
        (  # integers may be places
            "__global__ void k(int n, const int* perm, const float* x, float* y) { int i = blockIdx.x * blockDim.x; y[i] = x[perm[i]]; }",
            "n = 1 << 20; perm = randint(0, n, n); x = randn(n); y = empty(n); k<<<(n + 255) / 256, 256>>>(n, perm, x, y)",
        ),
        (  # t counts steps beside a size
            "__global__ void k(float* x, size_t n, int t) { x[blockIdx.x * blockDim.x] = t; }",
            "n = 1 << 20; x = empty(n); t =; k<<<(n + 255) / 256, 256>>>(x, n, t)",
        ),
        (  # a tile is copied a few rows at once
            "__global__ void k(const float* x, float* y, int width, int height) { __shared__ float t[32][33]; for (int j = 0; j < 32; j += 8) t[threadIdx.y + j][threadIdx.x] = x[0]; y[0] = t[0][0]; }",
            "width = 1024; height = 1024; x = randn(height, width); y = empty(height, width); k<<<dim3((width + 31) / 32, (height + 31) / 32), dim3(32, 8)>>>(x, y, width, height)",
        ),
        (  # blocks of the grid as wide as the body takes them
            "#define BM 64\n#define BN 128\n__global__ void k(const float* a, const float* b, float* c, int m, int n, int k) { c[blockIdx.y * BM * n + blockIdx.x * BN] = a[0] * b[0]; }",
            "m = 1024; n = 1024; k = 1024; a = randn(m, k); b = randn(k, n); c = empty(m, n); k<<<dim3((n + 127) / 128, (m + 63) / 64), 256>>>(a, b, c, m, n, k)",
        ),
        (
            "template <int BLOCK_M, int BLOCK_N, int BLOCK_K> __global__ void k(const float* a, const float* b, float* c, int M, int N, int K) { c[blockIdx.y * BLOCK_M * N + blockIdx.x * BLOCK_N] = a[0] * b[0]; }",
            "M = 1024; N = 1024; K = 1024; BLOCK_M = 64; BLOCK_N = 64; BLOCK_K = 64; a = randn(M, K); b = randn(K, N); c = empty(M, N); k<BLOCK_M, BLOCK_N, BLOCK_K><<<dim3((N + 63) / 64, (M + 63) / 64), 256>>>(a, b, c, M, N, K)",
        ),
        (  # a square tile, its threads in one row
            "template <int SIZE> __global__ void k(const float* x, float* y, int M, int N, int K) { __shared__ float t[SIZE * SIZE]; t[threadIdx.x / SIZE] = x[blockIdx.x * SIZE]; y[blockIdx.y * SIZE] = t[0]; }",
            "M = 1024; N = 1024; K = 1024; SIZE = 16; x = randn(M, K); y = empty(M, N); k<SIZE><<<dim3((N + 15) / 16, (M + 15) / 16), 256>>>(x, y, M, N, K)",
        ),
        (  # channels are wide
            "__global__ void k(const float* x, float* y, int B, int T, int C) { y[blockIdx.x * C] = x[blockIdx.x * C]; }",
            "B = 4; T = 256; C = 64; x = randn(B, T, C); y = empty(B, T, C); k<<<B * T, 256>>>(x, y, B, T, C)",
        ),
        (  # all blocks at once
            "__global__ void k(float* x, int n) { auto g = cooperative_groups::this_grid(); x[g.thread_rank()] += 1; g.sync(); }",
            "n = 1 << 20; x = randn(n); k<<<64, 256>>>(x, n) cooperative",
        ),
        (
            "__global__ void k(const float* q, float* o, int B, int H, int N, int D) { o[blockIdx.x * D] = q[0]; }",
            "B = 4; H = 4; N = 256; D = 64; q = randn(B, H, N, D); o = empty(B, H, N, D); k<<<B * H * N, 256>>>(q, o, B, H, N, D)",
        ),
    ],
)  # fmt: skip
def test_kernels_of_many_kinds(kernel: str, launch: str) -> None:
    assert unfolded(written(kernel + "\n", FROM_SIGNATURE, "cuda")) == launch


def unfolded(text: str) -> str:
    """The statements of a draft in one line, without remarks."""
    lines = [
        re.sub(r" *(?://|#) (?:guessed|fill in).*", "", line.partition(" orbit: ")[2])
        for line in text.splitlines()
    ]
    together = "; ".join(lines).replace(",;   ", ", ")
    return together.replace("launch ", "")


@pytest.mark.parametrize(
    ("header", "body", "launch"),
    [
        (  # a program takes a row, which only a step says
            "X, Y, stride, N, BLOCK: tl.constexpr",
            "row = tl.program_id(0); c = tl.arange(0, BLOCK)\nX += row * stride\ntl.store(Y + row * stride + c, tl.load(X + c, mask=c < N))",
            "rows = 1024; N = 1024; X = randn(rows, N); Y = empty(rows, N); stride = N; BLOCK = triton.next_power_of_2(N); k[(rows,)](X, Y, stride, N, BLOCK=BLOCK)",
        ),
        (  # a constant with a default divides the grid too
            "x, n, BLOCK: tl.constexpr = 512",
            "tl.store(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 0)",
            "n = 1 << 20; x = empty(n); k[(triton.cdiv(n, 512),)](x, n)",
        ),
        (  # what is loaded is a place
            "x, bins, n, BLOCK: tl.constexpr",
            "v = tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))\ntl.atomic_add(bins + v, 1)",
            "n = 1 << 20; x = randint(0, n, (n,)); bins = zeros(n); BLOCK = 1024; k[(triton.cdiv(n, BLOCK),)](x, bins, n, BLOCK=BLOCK)",
        ),
        (  # a row in several steps
            "x, rows, cols, stride, BLOCK: tl.constexpr",
            "row = tl.program_id(0)\nfor c in range(0, cols, BLOCK):\n    tl.store(x + row * stride + c + tl.arange(0, BLOCK), 0)",
            "rows = 1024; cols = 1024; x = empty(rows, cols); stride = cols; BLOCK = 1024; k[(rows,)](x, rows, cols, stride, BLOCK=BLOCK)",
        ),
        (  # what is optional is left out, and what stands behind it is given by its name
            "x, scale=None, n=None, BLOCK: tl.constexpr = 64",
            "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\ntl.store(x + i, tl.load(scale + i))",
            "n_ = 1 << 20; x = empty(n_); k[(triton.cdiv(n_, 64),)](x)",
        ),
        (  # masks say which axis of the grid divides which size
            "x, y, H, W, BH: tl.constexpr, BW: tl.constexpr",
            "w = tl.program_id(0) * BW + tl.arange(0, BW); h = tl.program_id(1) * BH + tl.arange(0, BH)\nat = h[:, None] * W + w[None, :]\ntl.store(y + at, tl.load(x + at, mask=(h < H)[:, None] & (w < W)[None, :]))",
            "H = 1024; W = 1024; x = randn(H, W); y = empty(H, W); BH = 64; BW = 64; k[(triton.cdiv(W, BW), triton.cdiv(H, BH))](x, y, H, W, BH=BH, BW=BW)",
        ),
        (  # tiles in groups along one axis
            "a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr",
            "pid = tl.program_id(0); wide = tl.cdiv(N, BN) * GROUP_M\nm = (pid // wide * GROUP_M + pid % GROUP_M) * BM + tl.arange(0, BM)\nn = pid % wide // GROUP_M * BN + tl.arange(0, BN)\nacc = tl.dot(tl.load(a + m + tl.arange(0, BK)), tl.load(b + n))\ntl.store(c + m + n, acc.to(tl.float16), mask=(m < M) & (n < N))",
            "M = 1024; N = 1024; K = 1024; a = randn(M, K, dtype=float16); b = randn(K, N, dtype=float16); c = empty(M, N, dtype=float16); BM = 64; BN = 64; BK = 32; GROUP_M = 8; k[(triton.cdiv(M, BM) * triton.cdiv(N, BN),)](a, b, c, M, N, K, BM=BM, BN=BN, BK=BK, GROUP_M=GROUP_M)",
        ),
        (  # strides of four dimensions; which of them the grid divides, nothing says
            "Q, O, stride_qz, stride_qh, stride_qm, stride_qk, Z, H, N_CTX, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr",
            "m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M); d = tl.arange(0, HEAD_DIM)\nat = tl.program_id(1) * stride_qh + m[:, None] * stride_qm + d[None, :] * stride_qk\ntl.store(O + at, tl.load(Q + at))",
            ("Z = 4; H = 4; N_CTX = 256; HEAD_DIM = 64; Q = randn(Z, H, N_CTX, HEAD_DIM); O = empty(Z, H, N_CTX, HEAD_DIM); stride_qz = H * N_CTX * HEAD_DIM; stride_qh = N_CTX * HEAD_DIM; stride_qm = HEAD_DIM; stride_qk = 1; BLOCK_M = 64; grid =; "
            "k[grid](Q, O, stride_qz, stride_qh, stride_qm, stride_qk, Z, H, N_CTX, HEAD_DIM=HEAD_DIM, BLOCK_M=BLOCK_M)"),
        ),
        (  # descriptors made by the host
            "a, b, n",
            "b.store([tl.program_id(0)], a.load([tl.program_id(0)]))",
            "n = 1 << 20; a =; b =; k[(n,)](a, b, n)",
        ),
    ],
)  # fmt: skip
def test_triton_kernels_of_many_kinds(header: str, body: str, launch: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    text = f"import triton\nimport triton.language as tl\n@triton.jit\ndef k({header}):\n{lines}"
    assert unfolded(written(text, FROM_SIGNATURE, "triton")) == launch


def test_what_configurations_elsewhere_in_the_file_tune_is_left_out() -> None:
    text = MATMUL.replace('configs=[triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32})]', "CONFIGS").replace(
        "@triton.autotune", 'CONFIGS = [triton.Config({"BLOCK_M": m, "BLOCK_N": 64, "BLOCK_K": 32}) for m in (32, 64)]\n@triton.autotune'
    )  # fmt: skip
    assert written(text, FROM_SIGNATURE, "triton") == written(MATMUL, FROM_SIGNATURE, "triton")


def test_the_last_dimension_is_one_of_two() -> None:
    text = """
    import torch, triton
    import triton.language as tl

    @triton.jit
    def k(x, out, n, BLOCK: tl.constexpr):
        tl.store(out + tl.arange(0, BLOCK), tl.load(x + tl.arange(0, BLOCK)))

    def f(x):
        out = torch.empty_like(x)
        n = x.shape[-1]
        k[(x.numel() // n,)](x, out, n, BLOCK=triton.next_power_of_2(n))
    """
    assert "x = torch.randn(1024, 1024)" in written(text, FROM_LAUNCH, "triton")


def test_a_file_of_thousands_of_half_declarations() -> None:
    """Once a minute's work."""
    text = "extern __shared__ a\n" * 8000 + "__global__ void k(float* x) { x[threadIdx.x] = 1; }\n"
    assert "launch k<<<" in written(text, FROM_SIGNATURE, "cuda")
