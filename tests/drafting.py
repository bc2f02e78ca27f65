"""Drafts of launch specs for tests: a kernel in, the lines that the code action writes above it out."""

from __future__ import annotations

from textwrap import dedent

from lsprotocol import types as lsp

from orbit_lsp.state.session import Session
from orbit_lsp.views.spec import spec_drafts

FROM_SIGNATURE = "Write a launch spec from the signature"
FROM_LAUNCH = "Write a launch spec from the launch in this file"


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


def opened(text: str, language: str) -> tuple[Session, str]:
    uri = "file:///src/k.cu" if language == "cuda" else "file:///src/k.py"
    session = Session()
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
