"""Drafts of launch specs: a kernel in, the lines that the code action writes above it out."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lsprotocol import types as lsp

from orbit_lsp import launch_specs
from orbit_lsp.config import Settings
from orbit_lsp.documents import Change
from orbit_lsp.drafts import used
from orbit_lsp.kernels import cuda, triton
from orbit_lsp.session import Session
from orbit_lsp.views import diagnostics, spec_drafts
from orbit_remote import spec, spec_build
from orbit_remote.spec_text import lines_of
from tests.kernels import test_cuda
from tests.spec.spec_check import faults

ROOT = Path(__file__).parent.parent
FROM_SIGNATURE = "Write a launch spec from the signature"
FROM_LAUNCH = "Write a launch spec from the launch in this file"


def opened(text: str, language: str) -> tuple[Session, str]:
    uri = "file:///src/k.cu" if language == "cuda" else "file:///src/k.py"
    session = Session(settings=Settings())
    assert session.open(uri, 3, text)
    return session, uri


def written(text: str, title: str, language: str, number: int = 0) -> str:
    """What the draft of this title inserts above a kernel."""
    session, uri = opened(dedent(text).lstrip("\n"), language)
    kernel = session.files[uri].scan.kernels[number]
    for draft in spec_drafts.drafts(session, uri, kernel):
        if draft.title == title:
            assert draft.edit.changes
            (edit,) = draft.edit.changes[uri]
            assert edit.range.start == edit.range.end == lsp.Position(kernel.whole.line, 0)
            return edit.new_text
    return ""


def check(
    text: str, expected: str, title: str = FROM_SIGNATURE, language: str = "cuda", number: int = 0
) -> None:
    assert written(text, title, language, number) == dedent(expected).lstrip("\n")


# -- from the signature -----------------------------------------------------------------------------


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


# -- from host code ---------------------------------------------------------------------------------

HOST = """
#define TILE 16
constexpr int kBlock = 128;
__global__ void saxpy(int n, float a, const float* x, float* y) { y[0] = a * x[0] + y[0]; }
template <int T> __global__ void mm(const float* A, const float* B, float* C, int M, int N, int K) { C[0] = A[0] * B[0]; }
__global__ void scale(const double* x, double* out, size_t n) { out[0] = x[0]; }

int main(int argc, char** argv) {
  int n = 1 << 24, rounds = 10;  // n = 3
  size_t bytes = n * sizeof(float);
  float *x, *d_y;
  cudaMalloc(&x, bytes);
  cudaMalloc((void**)&d_y, n * sizeof(float));
  float alpha = 2.5f;
  int blocks = (n + kBlock - 1) / kBlock;
  saxpy<<<blocks, kBlock>>>(n, alpha, x, d_y);
  const int M = 512, N = 256, K = atoi(argv[1]);
  float *A, *B, *C;
  cudaMallocManaged(&A, sizeof(float) * M * K);
  cudaMalloc(&B, K * N * sizeof(float));
  cudaMalloc(&C, M * N * sizeof(float));
  dim3 block(TILE, TILE), grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
  mm<TILE><<<grid, block, 2 * TILE * TILE * sizeof(float), stream>>>(A, B, C, M, N, K);
  thrust::device_vector<double> v(1000);
  scale<<<dim3(4), 256>>>(thrust::raw_pointer_cast(v.data()), w.data().get(), v.size());
}
"""


def test_a_launch_of_host_code_in_its_own_words() -> None:
    check(
        HOST,
        """
        // orbit: n = 1 << 24; alpha = 2.5f; x = randn(n); d_y = randn(n); kBlock = 128
        // orbit: blocks = (n + kBlock - 1) / kBlock
        // orbit: launch saxpy<<<blocks, kBlock>>>(n, alpha, x, d_y)
        """,
        FROM_LAUNCH,
    )


def test_templates_dim3_macros_and_what_is_read_from_the_command_line() -> None:
    check(
        HOST,
        """
        // orbit: TILE = 16; M = 512; N = 256; K = 1024; A = randn(M * K); B = randn(K * N); C = empty(M * N)
        // orbit: grid = dim3((N + TILE - 1) / TILE, (M + TILE - 1) / TILE); block = dim3(TILE, TILE)
        // orbit: launch mm<TILE><<<grid, block, 2 * TILE * TILE * sizeof(float)>>>(A, B, C, M, N, K)
        """,
        FROM_LAUNCH,
        number=1,
    )
    check(
        HOST,
        """
        // orbit: n = 1 << 20; v = randn(1000); out = empty(n)
        // orbit: launch scale<<<dim3(4), 256>>>(v, out, n)
        """,
        FROM_LAUNCH,
        number=2,
    )


MEMBERS = """
#define TILE 16
__global__ void k(float* out, const float* in, int n, int m) { out[threadIdx.y * n] = in[m]; }
void another() { dim3 block(8, 8), grid(2); int n = 77; }
void host(float* x, float* y, int n, int m) {
  BLOCKS
  k<<<CONFIGURATION>>>(x, y, n, m);
}
"""


@pytest.mark.parametrize(
    ("blocks", "configuration", "assigned", "launched"),
    [
        (
            "dim3 block(16, 16);", "dim3(n / block.x, m / block.y), block",
            "; block = dim3(16, 16)", "dim3(n / 16, m / 16), block",
        ),
        (
            "dim3 block = dim3(TILE, 2 + 2); const dim3 grid((n + block.x * block.y - 1) / (block.x * block.y));",
            "grid, block, block.x * block.y * sizeof(float)",
            "; TILE = 16\n// orbit: grid = dim3((n + TILE * (2 + 2) - 1) / (TILE * (2 + 2))); block = dim3(TILE, 2 + 2)",
            "grid, block, TILE * (2 + 2) * sizeof(float)",
        ),
        ("dim3 block; block.x = 64; block.y = 2;", "dim3(n / block.x), block", "; block = dim3(64, 2, 1)", "dim3(n / 64), block"),
        ("dim3 block = 128, grid = (n + block.x - 1) / block.x;", "grid.x, block.x", "", "(n + 128 - 1) / 128, 128"),
        ("dim3 block = {32, 4};", "n / block.x, block.x * block.y * block.z", "", "n / 32, 32 * 4 * 1"),
        ("auto block = dim3{32, 4};", "dim3{n / block.x}, block", "; block = dim3{32, 4}", "dim3{n / 32}, block"),
        ("cudaDeviceProp device;", "device.multiProcessorCount, 256", None, None),
        ("dim3 block(device.x);", "n / block.x, block", None, None),
        ("", "grid, block", None, None),  # another function's
    ],
)  # fmt: skip
def test_members_of_dim3(blocks: str, configuration: str, assigned: str | None, launched: str | None) -> None:
    text = MEMBERS.replace("BLOCKS", blocks).replace("CONFIGURATION", configuration)
    made = f"// orbit: n = 1024; m = 1024; x = empty(m, n); y = randn(m, n){assigned}\n// orbit: launch k<<<{launched}>>>(x, y, n, m)\n"  # fmt: skip
    assert written(text, FROM_LAUNCH, "cuda") == (made if launched else "")


def test_quotients_that_are_rounded_up_by_whatever_name() -> None:
    for name in ("CEIL_DIV", "ceil_div", "host::ceilDiv", "iDivUp", "div_up", "at::ceil_div"):
        check(
            f"""
            #define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
            __global__ void k(float* x, int n) {{ x[blockIdx.x * blockDim.x] = 1; }}
            void host(float* x, int n) {{ dim3 block(128); k<<<{name}(n, (int)block.x), block>>>(x, n); }}
            """,
            """
            // orbit: n = 1 << 20; x = empty(n); block = dim3(128)
            // orbit: launch k<<<cdiv(n, (int)128), block>>>(x, n)
            """,
            FROM_LAUNCH,
        )


def test_descriptors_of_host_code() -> None:
    check(
        """
        import torch, triton
        import triton.language as tl
        from triton.tools.tensor_descriptor import TensorDescriptor

        @triton.jit
        def k(a_desc, b_desc, c_desc):
            c_desc.store([0, 0], a_desc.load([0, 0]) + b_desc.load([0, 0]))

        def add(a, b):
            c = torch.empty_like(a)
            made = TensorDescriptor(c, c.shape, c.stride(), [64, 32])
            k[(1,)](TensorDescriptor.from_tensor(a, [64, 32]), TensorDescriptor.from_tensor(b, block_shape=[64, 32]), made)
        """,
        """
        # orbit: a = torch.randn(1024, 1024); b = torch.randn(1024, 1024); c = torch.empty_like(a)
        # orbit: made = TensorDescriptor.from_tensor(c, (64, 32))
        # orbit: launch k[(1,)](TensorDescriptor.from_tensor(a, (64, 32)), TensorDescriptor.from_tensor(b,
        # orbit:   block_shape=(64, 32)), made)
        """,
        FROM_LAUNCH,
        "triton",
    )


def test_no_draft_has_what_its_own_check_would_refuse() -> None:
    """More threads than the kernel's launch bounds, more shared memory than the GPU has."""
    for kernel, configuration in (
        ("__global__ void __launch_bounds__(128) k(int n) {}", "1, 256"),
        ("__global__ void k(int n) {}", "1, 256, 300 << 10"),
        ("__global__ void k(int n) {}", "1, dim3(64, 32)"),
    ):
        text = f"{kernel}\nvoid host(int n) {{ k<<<{configuration}>>>(n); }}\n"
        assert written(text, FROM_LAUNCH, "cuda") == ""
        assert written(text.replace(configuration, "1, 128"), FROM_LAUNCH, "cuda")


WRAPPERS = """
import torch, triton
import triton.language as tl

@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(output_ptr + offsets, tl.load(x_ptr + offsets) + tl.load(y_ptr + offsets))

def add(x: torch.Tensor, y: torch.Tensor):
    output = torch.empty_like(x)
    n_elements = output.numel()
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
    add_kernel[grid](x, y, output, n_elements, BLOCK_SIZE=1024)

@triton.jit
def norm(out_ptr, x_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride + tl.arange(0, BLOCK)
    tl.store(out_ptr + row, tl.load(x_ptr + row))

def normalise(x, activation=""):
    n_rows, n_cols = x.shape
    BLOCK = triton.next_power_of_2(n_cols)
    num_warps = 8
    y = torch.empty((n_rows, n_cols), device=x.device, dtype=torch.float16)
    norm[(n_rows, 1, 1)](y, x, x.stride(0), n_cols, BLOCK, num_warps=num_warps)

@triton.jit
def fill(x, n, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), 0)

if __name__ == "__main__":
    n = 98432
    x = torch.rand(n, device="cuda").to("cuda")
    fill[(triton.cdiv(n, 256),)](x, n, B=256)
"""


def test_wrappers_of_triton_kernels() -> None:
    check(
        WRAPPERS,
        """
        # orbit: x = torch.randn(1 << 20); y = torch.randn(1 << 20); output = torch.empty_like(x)
        # orbit: n_elements = output.numel()
        # orbit: launch add_kernel[lambda meta: (triton.cdiv(n_elements, meta['BLOCK_SIZE']),)](x, y, output,
        # orbit:   n_elements, BLOCK_SIZE=1024)
        """,
        FROM_LAUNCH,
        "triton",
    )
    check(
        WRAPPERS,
        """
        # orbit: x = torch.randn(1024, 1024); n_rows = x.shape[0]; n_cols = x.shape[1]
        # orbit: y = torch.empty((n_rows, n_cols), dtype=torch.float16); BLOCK = triton.next_power_of_2(n_cols)
        # orbit: num_warps = 8
        # orbit: launch norm[(n_rows, 1, 1)](y, x, x.stride(0), n_cols, BLOCK, num_warps=num_warps)
        """,
        FROM_LAUNCH,
        "triton",
        1,
    )
    check(
        WRAPPERS,
        """
        # orbit: n = 98432; x = torch.rand(n)
        # orbit: launch fill[(triton.cdiv(n, 256),)](x, n, B=256)
        """,
        FROM_LAUNCH,
        "triton",
        2,
    )


# -- the code action --------------------------------------------------------------------------------


def test_applied_the_file_has_no_fault_and_the_draft_is_not_offered_again() -> None:
    session, uri = opened(HOST.lstrip(), "cuda")
    kernel = session.files[uri].scan.kernels[0]
    (draft, _) = spec_drafts.drafts(session, uri, kernel, versioned=True)
    assert draft.edit.changes is None
    (change,) = draft.edit.document_changes or ()
    assert isinstance(change, lsp.TextDocumentEdit)
    assert change.text_document == lsp.OptionalVersionedTextDocumentIdentifier(uri, version=3)
    (edit,) = change.edits
    assert isinstance(edit, lsp.TextEdit)
    line = edit.range.start.line
    session.change(uri, 4, [Change((line, 0), (line, 0), edit.new_text)])
    assert [one.message for one in diagnostics.diagnostics(session, uri)] == []
    kernel = session.files[uri].scan.kernels[0]
    assert spec_drafts.drafts(session, uri, kernel) == []


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("language", ["cuda", "triton"])
def test_the_files_own_line_ends(end: str, language: str) -> None:
    text = (HOST if language == "cuda" else WRAPPERS).lstrip().replace("\n", end)
    title = FROM_LAUNCH if language == "cuda" else FROM_SIGNATURE
    assert written(text, title, language) == written(text.replace(end, "\n"), title, language).replace(
        "\n", end
    )
    session, uri = opened(text, language)
    kernel = session.files[uri].scan.kernels[0]
    changes = spec_drafts.drafts(session, uri, kernel)[0].edit.changes
    assert changes
    (edit,) = changes[uri]
    wrong = edit.new_text.replace("launch ", "launch no_")
    line = edit.range.start.line
    session.change(uri, 4, [Change((line, 0), (line, 0), wrong)])
    assert session.files[uri].document.text.count("\n") in (0, session.files[uri].document.text.count(end))
    (found,) = [one for one in diagnostics.diagnostics(session, uri) if "This launches" in one.message]
    at = next(at for at, one in enumerate(wrong.split(end)) if "launch no_" in one)
    column = wrong.split(end)[at].index("no_")
    assert found.range.start == lsp.Position(line + at, column)
    assert found.range.end == lsp.Position(line + at, column + len(f"no_{kernel.name}"))


def test_they_are_offered_on_the_kernels_lines_only() -> None:
    session, uri = opened(HOST.lstrip(), "cuda")
    titles = [one.title for one in spec_drafts.actions(session, uri, 2, 2)]
    assert titles == [f"{FROM_LAUNCH} (saxpy)", f"{FROM_SIGNATURE} (saxpy)"]
    assert spec_drafts.actions(session, uri, 7, 7) == []
    assert spec_drafts.actions(session, "file:///nowhere.cu", 0, 9) == []


def test_helpers_and_other_languages_get_none() -> None:
    session, uri = opened("import triton\n@triton.jit\ndef helper(x):\n    return x\n", "triton")
    assert spec_drafts.actions(session, uri, 0, 9) == []
    session, uri = opened("from numba import cuda\n@cuda.jit\ndef k(x):\n    pass\n", "triton")
    assert spec_drafts.actions(session, uri, 0, 9) == []


# -- whatever the kernel ----------------------------------------------------------------------------


def drafted(text: str, language: str) -> tuple[int, int]:
    """How many kernels a text has, and for how many there is a draft, each of which is checked to be faultless."""
    text = text.replace("orbit:", "before:")  # as if none had a spec
    scan = cuda.scan(text) if language == "cuda" else triton.scan(text)
    lines = lines_of(text)
    found = 0
    kernels = [one for one in scan.kernels if one.launchable and one.dsl in ("cuda", "triton", "gluon")]
    for kernel in kernels:
        drafts = spec_drafts.written(lines, kernel)
        found += bool(drafts)
        for _, statements in drafts:
            assert spec_drafts.faultless(lines, kernel, statements)
            assert used(statements) == statements
    return len(kernels), found


_TORCH = Path(sysconfig.get_path("purelib")) / "torch"
FILES = [
    *sorted((ROOT / "examples").glob("*.cu")), *sorted((ROOT / "examples").glob("*.py")),
    *sorted((ROOT / "tests/gpu/programs").glob("*.cu")),
    *sorted((_TORCH / "include/ATen/native/cuda").glob("*.cuh")),
    _TORCH / "testing/_internal/triton_utils.py", _TORCH / "sparse/_triton_ops.py",
]  # fmt: skip


def test_real_kernels_get_drafts_without_fault() -> None:
    kernels = found = 0
    for path in FILES:
        of, had = drafted(path.read_text(), "triton" if path.suffix == ".py" else "cuda")
        kernels += of
        found += had
    assert kernels > 80
    assert found > 0.6 * kernels  # the others take structures and functions


def test_what_is_drafted_compiles(tmp_path: Path) -> None:
    """The instances that drafts launch exist: templates of every kind, one nvcc call."""
    text = (ROOT / "examples/transpose.cu").read_text().replace("orbit:", "before:") + dedent("""
        template <typename T> __global__ void fill(T* p, T v, size_t n) { p[0] = v; }
        template <typename T, int BLOCK, bool FAST> __global__ void all(const T* x, T* y, int n) { y[0] = x[BLOCK]; }
        template <class T = double> __global__ void deduced(const T* x, long n) {}
        void host(float* d, int n) { fill<<<n / 256, 256>>>(d, 1.0f, static_cast<size_t>(n)); }
    """)
    lines = lines_of(text)
    names: dict[str, None] = {}
    for kernel in cuda.scan(text).kernels:
        for _, statements in spec_drafts.written(lines, kernel):
            added = [f"// orbit: {one}" for one in statements]
            moved = spec.target_of(launch_specs.definition(kernel), "cuda", len(added))
            start = kernel.whole.line
            names |= dict.fromkeys(
                spec_build.instances(spec.check_lines([*lines[:start], *added, *lines[start:]], moved))
            )
    assert "fill<float>" in names
    assert list(names) == ["transpose<16, 8>", "fill<float>", "all<float, 256, true>", "deduced<float>"]
    path = tmp_path / "k.cu"
    path.write_text(text + "".join(f"auto* use{at} = &{name};\n" for at, name in enumerate(names)))  # fmt: skip
    build = subprocess.run(
        ["nvcc", "-arch=sm_90a", "-c", "-o", str(tmp_path / "k.o"), str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert build.returncode == 0, build.stderr


def test_every_form_of_kernel_is_survived() -> None:
    for text in (*test_cuda.SPELLINGS, *test_cuda.NO_KERNELS):
        drafted(text, "cuda")


_TYPES = ["int", "float*", "const half*", "T", "T*", "size_t", "bool", "double2*", "void*", "P", "float&", "int**", "unsigned char", "CUtensorMap", "long long*", "const T* __restrict__"]  # fmt: skip
_NAMES = ["n", "N", "M", "K", "rows", "cols", "stride", "lda", "x", "out", "eps", "seed", "", "batch", "flag", "idx", "launch", "float", "é"]  # fmt: skip
_BODIES = ["", "x[i] = 1;", "threadIdx.y; blockIdx.z;", "extern __shared__ T s[];", "atomicAdd(&out[0], x[0]);", "k<<<n, 1>>>(n, x);", "{{{", '"', "/*"]  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    header=st.sampled_from(["", "template <typename T> ", "template <typename T, int TILE, bool B = true> ", "template <int... I> "]),
    parameters=st.lists(st.tuples(st.sampled_from(_TYPES), st.sampled_from(_NAMES)), max_size=6),
    body=st.lists(st.sampled_from(_BODIES), max_size=3),
    host=st.lists(st.sampled_from(["int n = 3;", "k<<<n, n>>>(", "n, x);", "cudaMalloc(&x, ", "n = n + n;", ");", "dim3 n(", "dim3 x(n, x), ", "#define n n\n", "k<", ">>>(", "4"]), max_size=8),
)  # fmt: skip
def test_any_signature(
    header: str, parameters: list[tuple[str, str]], body: list[str], host: list[str]
) -> None:
    inner = ", ".join(f"{kind} {name}" for kind, name in parameters)
    drafted(
        f"void f() {{ {' '.join(host)} }}\n{header}__global__ void k({inner}) {{ {' '.join(body)} }}\n",
        "cuda",
    )


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    parameters=st.lists(st.sampled_from(["x_ptr", "x", "n", "M", "N", "K", "stride_am", "eps", "BLOCK: tl.constexpr", "B: tl.constexpr = 3", "D: tl.constexpr", "*args", "lambda", "_"]), max_size=6, unique=True),
    body=st.lists(st.sampled_from(["tl.store(x_ptr + tl.arange(0, BLOCK), x)", "p = x_ptr + n * M", "tl.load(p)", "tl.program_id(2)", "x.load([0])", "((("]), max_size=3),
    host=st.lists(st.sampled_from(["k[grid](x, n, BLOCK=3)", "grid = lambda m: (n, m['BLOCK'])", "n = n", "x = torch.randn(n).cuda()", "n, x = x.shape", "k[(n,)](*x)", "k[1](n=n, q=2, num_warps=n)", "x = [i for i in n]", "n = (" * 90]), max_size=6),
)  # fmt: skip
def test_any_signature_of_triton(parameters: list[str], body: list[str], host: list[str]) -> None:
    lines = "".join(f"    {line}\n" for line in [*body, "pass"])
    around = "".join(f"    {line}\n" for line in [*host, "pass"])
    drafted(f"import torch, triton\nimport triton.language as tl\n@triton.jit\ndef k({', '.join(parameters)}):\n{lines}\ndef f(x):\n{around}", "triton")  # fmt: skip


def test_a_draft_has_no_warning_either() -> None:
    saxpy = "__global__ void saxpy(int n, float a, const float* x, float* y) { y[0] += a * x[0]; }\n"
    assert faults(written(saxpy, FROM_SIGNATURE, "cuda") + saxpy, "cuda") == ""
    at = WRAPPERS.index("@triton.jit\ndef fill")
    lines = written(WRAPPERS, FROM_LAUNCH, "triton", 2)
    assert lines
    assert faults(WRAPPERS[:at] + lines + WRAPPERS[at:], "triton") == ""
