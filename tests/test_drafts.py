"""Drafts from the signature: a kernel in, the lines that the code action writes above it out."""

from __future__ import annotations

import pytest

from tests.drafting import FROM_LAUNCH, FROM_SIGNATURE, check, written


def test_one_count_and_what_is_read_and_written() -> None:
    check(
        "__global__ void saxpy(int n, float a, const float* x, float* y) { y[0] = a * x[0] + y[0]; }",
        """
        // orbit: n = 1 << 20; a = 2.0f; x = randn(n); y = randn(n)
        // orbit: launch saxpy<<<(n + 255) / 256, 256>>>(n, a, x, y)
        """,
    )
    check(
        "__global__ void copy(const float4* x, float4* out, size_t n) { out[threadIdx.x] = x[blockIdx.x]; }",
        """
        // orbit: n = 1 << 20; x = randn(4 * n); out = empty(4 * n)
        // orbit: launch copy<<<(n + 255) / 256, 256>>>(x, out, n)
        """,
    )
    check(
        "__global__ void histogram(int n, const unsigned char* data, unsigned* bins) { atomicAdd(&bins[data[blockIdx.x]], 1); }",
        """
        // orbit: n = 1 << 20; data = randint(0, 100, n); bins = zeros(n)
        // orbit: launch histogram<<<(n + 255) / 256, 256>>>(n, data, bins)
        """,
    )


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
        // orbit: M = 1024; N = 1024; K = 1024; A = randn(M, K); B = randn(K, N); C = empty(M, N); eps = 1e-5f
        // orbit: launch matmul<16><<<dim3((N + 15) / 16, (M + 15) / 16), dim3(16, 16)>>>(A, B, C, M, N, K, eps)
        """,
    )


def test_a_block_for_every_row() -> None:
    found = written(
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
    assert found.splitlines() == [
        "  // orbit: rows = 1024; cols = 1024; x = randn(rows, cols); y = empty(rows, cols); stride = cols",
        "  // orbit: launch softmax<float><<<rows, 128, 128 * sizeof(float)>>>(x, y, rows, cols, stride)",
    ]


def test_a_draft_is_indented_as_its_kernel_and_stands_above_decorators() -> None:
    found = written(
        """
        import triton
        import triton.language as tl
        class Kernels:
            @triton.jit
            def fill(x_ptr, n_elements, BLOCK: tl.constexpr):
                tl.store(x_ptr + tl.arange(0, BLOCK), 0)
        """,
        FROM_SIGNATURE,
        "triton",
    )
    assert found.splitlines() == [
        "    # orbit: n_elements = 1 << 20; x_ptr = empty(n_elements)",
        "    # orbit: launch fill[(triton.cdiv(n_elements, 1024),)](x_ptr, n_elements, BLOCK=1024, num_warps=4)",
    ]


MATMUL = """
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32})], key=["M", "N", "K"])
@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
           BLOCK_K: tl.constexpr, EVEN: tl.constexpr):
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    a_ptrs = a_ptr + tl.arange(0, BLOCK_M)[:, None] * stride_am
    tl.store(c_ptr + pid_m, tl.load(a_ptrs) + tl.load(b_ptr + pid_n))
"""


def test_what_is_tuned_is_left_to_the_tuner() -> None:
    check(
        MATMUL,
        """
        # orbit: M = 1024; N = 1024; K = 1024; a_ptr = randn(M, K); b_ptr = randn(K, N); c_ptr = empty(M, N)
        # orbit: stride_am = K; stride_ak = 1
        # orbit: launch matmul[lambda META: (triton.cdiv(M, META['BLOCK_M']), triton.cdiv(N, META['BLOCK_N']))](a_ptr,
        # orbit:   b_ptr, c_ptr, M, N, K, stride_am, stride_ak, EVEN=True)
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
            x = tl.load(X + tl.arange(0, BLOCK_SIZE)) * tl.load(W + tl.arange(0, BLOCK_SIZE))
            tl.store(Y + row * stride + tl.arange(0, BLOCK_SIZE), x / eps)
        """,
        """
        # orbit: rows = 1024; n_cols = 1024; X = randn(rows, n_cols); Y = empty(rows, n_cols); W = randn(rows, n_cols)
        # orbit: stride = n_cols; eps = 1e-5
        # orbit: launch norm[(rows,)](X, Y, W, stride, n_cols, eps, BLOCK_SIZE=triton.next_power_of_2(n_cols),
        # orbit:   num_warps=4)
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
        "#define K(name) __global__ void name(int n)\nK(k) {}",
    ],
)
def test_where_an_argument_cannot_be_made_up_there_is_no_draft(kernel: str) -> None:
    assert written(kernel + "\n", FROM_SIGNATURE, "cuda") == ""


SHARED = """
extern __shared__ float tile[];
namespace raw { extern __shared__ __align__(16) unsigned char room[]; }
__device__ float sum(float v) { tile[threadIdx.x] = v; return tile[0]; }
__device__ float twice(float v) { return 2 * sum(v); }
template <typename T> __device__ T* mine() { extern __shared__ double own[]; return (T*)own; }
__global__ void k(const float* x, float* y, int n) { BODY }
__global__ void other(float* y) { extern __shared__ int elsewhere[]; y[0] = elsewhere[0]; }
"""


@pytest.mark.parametrize(
    ("body", "shared"),
    [
        ("y[0] = x[0] + tile[0];", ", 256 * sizeof(float)"),
        ("y[0] = twice(x[0]);", ", 256 * sizeof(float)"),
        ("y[0] = x[0] + mine<float>()[0];", ", 256 * sizeof(double)"),
        ("extern __shared__ int4 a[]; y[0] = x[0] + a[0].x;", ", 256 * sizeof(int4)"),
        ("y[0] = x[0] + raw::room[0];", ", 256 * sizeof(float)"),  # bytes are room for something else
        ("y[0] = x[0];", ""),
        ("float elsewhere[4]; y[0] = x[0] + elsewhere[0];", ""),
    ],
)
def test_dynamic_shared_memory_wherever_it_is_declared(body: str, shared: str) -> None:
    check(
        SHARED.replace("BODY", body + " int i = blockIdx.x * blockDim.x;"),
        f"""
        // orbit: n = 1 << 20; x = randn(n); y = empty(n)
        // orbit: launch k<<<(n + 255) / 256, 256{shared}>>>(x, y, n)
        """,
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
    assert launch.removeprefix("// orbit: launch k<<<").removeprefix("dim3(") == f"(n + {block}>>>(y, n)"


@pytest.mark.parametrize(
    ("kernel", "launch"),
    [
        (  # a block takes a row
            "__global__ void k(const float* x, float* y, int hidden_size) { y[blockIdx.x * hidden_size] = x[0]; }",
            "rows = 1024; hidden_size = 1024; x = randn(rows, hidden_size); y = empty(rows, hidden_size); k<<<rows, 256>>>(x, y, hidden_size)",
        ),
        (  # row pointers ascend
            "__global__ void k(int rows, const int* row_ptr, const int* cols, float* y) { int r = blockIdx.x * blockDim.x; y[r] = cols[row_ptr[r]]; }",
            "rows = 1 << 20; row_ptr = arange(rows + 1); cols = randint(0, rows, rows); y = empty(rows); k<<<(rows + 255) / 256, 256>>>(rows, row_ptr, cols, y)",
        ),
        (  # t counts steps beside a size
            "__global__ void k(float* x, size_t n, int t) { x[blockIdx.x * blockDim.x] = t; }",
            "n = 1 << 20; x = empty(n); t = 1; k<<<(n + 255) / 256, 256>>>(x, n, t)",
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
            "template <int BLOCK_M, int BLOCK_N, int BLOCK_K> __global__ void k(const float* a, const float* b, float* c, int M, int N, int K) { c[blockIdx.x * BLOCK_M * N + blockIdx.y * BLOCK_N] = a[0] * b[0]; }",
            "M = 1024; N = 1024; K = 1024; a = randn(M, K); b = randn(K, N); c = empty(M, N); k<64, 64, 16><<<dim3((M + 63) / 64, (N + 63) / 64), 256>>>(a, b, c, M, N, K)",
        ),
        (  # a square tile, its threads in one row
            "template <int SIZE> __global__ void k(const float* x, float* y, int M, int N, int K) { __shared__ float t[SIZE * SIZE]; t[threadIdx.x / SIZE] = x[blockIdx.x * SIZE]; y[blockIdx.y * SIZE] = t[0]; }",
            "M = 1024; N = 1024; K = 1024; x = randn(M, K); y = empty(M, N); k<16><<<dim3((N + 15) / 16, (M + 15) / 16), 256>>>(x, y, M, N, K)",
        ),
        (  # channels are wide
            "__global__ void k(const float* x, float* y, int B, int T, int C) { y[blockIdx.x * C] = x[blockIdx.x * C]; }",
            "B = 4; T = 32; C = 256; x = randn(B, T, C); y = empty(B, T, C); k<<<B * T, 256>>>(x, y, B, T, C)",
        ),
        (  # all blocks at once
            "__global__ void k(float* x, int n) { auto g = cooperative_groups::this_grid(); x[g.thread_rank()] += 1; g.sync(); }",
            "n = 1 << 20; x = randn(n); k<<<64, 256>>>(x, n) cooperative",
        ),
        (
            "__global__ void k(const float* q, float* o, int B, int H, int N, int D) { o[blockIdx.x * D] = q[0]; }",
            "B = 4; H = 4; N = 32; D = 32; q = randn(B, H, N, D); o = empty(B, H, N, D); k<<<B * H * N, 256>>>(q, o, B, H, N, D)",
        ),
        (  # how far a filter moves
            "__global__ void k(const float* x, float* y, int H, int W, int stride, int padding) { y[threadIdx.y * W + H] = x[stride]; }",
            "H = 1024; W = 1024; x = randn(H, W); y = empty(H, W); stride = 1; padding = 1; k<<<dim3((W + 15) / 16, (H + 15) / 16), dim3(16, 16)>>>(x, y, H, W, stride, padding)",
        ),
    ],
)  # fmt: skip
def test_kernels_of_many_kinds(kernel: str, launch: str) -> None:
    assert unfolded(written(kernel + "\n", FROM_SIGNATURE, "cuda")) == launch


def unfolded(text: str) -> str:
    """The statements of a draft in one line."""
    lines = [line.partition(" orbit: ")[2] for line in text.splitlines()]
    together = "; ".join(lines).replace(",;   ", ", ")
    return together.replace("launch ", "")


@pytest.mark.parametrize(
    ("header", "body", "launch"),
    [
        (  # a program takes a row, which only a step says
            "X, Y, stride, N, BLOCK: tl.constexpr",
            "row = tl.program_id(0); c = tl.arange(0, BLOCK)\nX += row * stride\ntl.store(Y + row * stride + c, tl.load(X + c, mask=c < N))",
            "rows = 1024; N = 1024; X = randn(rows, N); Y = empty(rows, N); stride = N; k[(rows,)](X, Y, stride, N, BLOCK=triton.next_power_of_2(N), num_warps=4)",
        ),
        (  # a constant with a default divides the grid too
            "x, n, BLOCK: tl.constexpr = 512",
            "tl.store(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 0)",
            "n = 1 << 20; x = empty(n); k[(triton.cdiv(n, 512),)](x, n, num_warps=4)",
        ),
        (  # what is loaded is a place
            "x, bins, n, BLOCK: tl.constexpr",
            "v = tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))\ntl.atomic_add(bins + v, 1)",
            "n = 1 << 20; x = randint(0, n, (n,)); bins = zeros(n); k[(triton.cdiv(n, 1024),)](x, bins, n, BLOCK=1024, num_warps=4)",
        ),
        (  # as many programs as multiprocessors
            "x, n, NUM_SMS: tl.constexpr, BLOCK: tl.constexpr",
            "for i in range(tl.program_id(0), tl.cdiv(n, BLOCK), NUM_SMS):\n    tl.store(x + i * BLOCK + tl.arange(0, BLOCK), 0)",
            "n = 1 << 20; x = empty(n); k[(132,)](x, n, NUM_SMS=132, BLOCK=1024, num_warps=4)",
        ),
        (  # a row in several steps
            "x, rows, cols, stride, BLOCK: tl.constexpr",
            "row = tl.program_id(0)\nfor c in range(0, cols, BLOCK):\n    tl.store(x + row * stride + c + tl.arange(0, BLOCK), 0)",
            "rows = 1024; cols = 1024; x = empty(rows, cols); stride = cols; k[(rows,)](x, rows, cols, stride, BLOCK=triton.next_power_of_2(cols), num_warps=4)",
        ),
        (  # what is optional is left out
            "x, n, indptr, BLOCK: tl.constexpr, scale=None",
            "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\ntl.store(x + i, tl.load(indptr + i) * tl.load(scale + i))",
            "n = 1 << 20; x = empty(n); indptr = arange(n + 1); k[(triton.cdiv(n, 1024),)](x, n, indptr, BLOCK=1024, num_warps=4)",
        ),
        (  # attention
            "Q, O, stride_qz, stride_qh, stride_qm, stride_qk, Z, H, N_CTX, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr",
            "m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M); d = tl.arange(0, HEAD_DIM)\nat = tl.program_id(1) * stride_qh + m[:, None] * stride_qm + d[None, :] * stride_qk\ntl.store(O + at, tl.load(Q + at))",
            ("Z = 4; H = 4; N_CTX = 256; HEAD_DIM = 64; Q = randn(Z, H, N_CTX, HEAD_DIM); O = empty(Z, H, N_CTX, HEAD_DIM); stride_qz = H * N_CTX * HEAD_DIM; stride_qh = N_CTX * HEAD_DIM; stride_qm = HEAD_DIM; stride_qk = 1; "
            "k[(triton.cdiv(N_CTX, 64), Z * H)](Q, O, stride_qz, stride_qh, stride_qm, stride_qk, Z, H, N_CTX, HEAD_DIM=HEAD_DIM, BLOCK_M=64, num_warps=4)"),
        ),
        (  # descriptors made by the host
            "a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr",
            "m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N\nc.store([m, n], tl.dot(a.load([m, 0]), b.load([n, 0]).T))",
            ("M = 1024; N = 1024; K = 1024; a = TensorDescriptor.from_tensor(randn(M, K, dtype=float16), [64, 32]); b = TensorDescriptor.from_tensor(randn(N, K, dtype=float16), [64, 32]); "
            "c = TensorDescriptor.from_tensor(randn(M, N, dtype=float16), [64, 64]); k[(triton.cdiv(M, 64), triton.cdiv(N, 64))](a, b, c, M, N, K, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, num_warps=4)"),
        ),
        (  # the tensor cores' type
            "a, c, n, BLOCK: tl.constexpr",
            "i = tl.arange(0, BLOCK)\nx = tl.load(a + i)\ntl.store(c + i, tl.dot(x, x.to(tl.bfloat16)))",
            "n = 1 << 20; a = randn(n, dtype=bfloat16); c = empty(n, dtype=bfloat16); k[(triton.cdiv(n, 1024),)](a, c, n, BLOCK=1024, num_warps=4)",
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
