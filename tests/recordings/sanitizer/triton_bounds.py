"""A Triton kernel without a mask, and one whose fault lies inside Triton's own library."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)  # PLANTED memcheck
    tl.store(out + at, value * 2)  # PLANTED memcheck


@triton.jit
def helper(x, at):
    return tl.load(x + at)  # PLANTED memcheck, called by peak


@triton.jit
def peak(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out, tl.max(helper(x, at), axis=0))


if __name__ == "__main__":
    x = torch.zeros(1000, device="cuda")
    out = torch.empty(1000, device="cuda")
    scale[(4,)](x, out, BLOCK=256)
    torch.cuda.synchronize()
