"""The twin of triton_bounds.py, without the fault."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value * 2, mask=at < n)


if __name__ == "__main__":
    x = torch.zeros(1000, device="cuda")
    out = torch.empty(1000, device="cuda")
    scale[(4,)](x, out, 1000, BLOCK=256)
    torch.cuda.synchronize()
