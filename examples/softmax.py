"""Row-wise softmax in Triton: what orbit-lsp shows on a Triton file."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_max(row, BLOCK: tl.constexpr):
    return tl.max(row, axis=0)


@triton.jit
def softmax_kernel(out, x, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=inside, other=-float("inf"))
    values = tl.exp(values - row_max(values, BLOCK))
    tl.store(out + row * columns + offsets, values / tl.sum(values, axis=0), mask=inside)


def softmax(x):
    rows, columns = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(rows,)](out, x, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
    return out


def benchmark():
    x = torch.randn(8192, 4096, device="cuda")
    for _ in range(20):
        out = softmax(x)
    torch.testing.assert_close(out, torch.softmax(x, dim=1))


if __name__ == "__main__":
    benchmark()
