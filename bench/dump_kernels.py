"""Triton kernels that bench/dump_medians.py times."""

# pyright: basic, reportMissingImports=false
import triton
import triton.language as tl


@triton.jit
def pointwise(x, y, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + i, tl.exp(tl.load(x + i, mask=i < n)) + 1.0, mask=i < n)


@triton.jit
def row_sum(x, y, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + tl.program_id(0), tl.sum(tl.load(x + i)))


@triton.jit
def row_softmax(x, y, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    row = tl.load(x + i)
    e = tl.exp(row - tl.max(row))
    tl.store(y + i, e / tl.sum(e))


@triton.jit
def dot(a, b, c, n, tile: tl.constexpr):
    i = tl.program_id(0) * tile + tl.arange(0, tile)
    j = tl.program_id(1) * tile + tl.arange(0, tile)
    k = tl.arange(0, 32)
    acc = tl.zeros((tile, tile), dtype=tl.float32)
    for start in range(0, n, 32):
        acc += tl.dot(
            tl.load(a + i[:, None] * n + start + k[None, :]),
            tl.load(b + (start + k)[:, None] * n + j[None, :]),
        )
    tl.store(c + i[:, None] * n + j[None, :], acc.to(tl.float16))
