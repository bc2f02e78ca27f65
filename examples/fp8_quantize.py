"""Quantise every row to fp8 (e4m3) by its own scale, so that its largest element becomes 448."""

import triton
import triton.language as tl


# orbit: rows = 16384; columns = 8192; size = 1.0
# orbit: x = size * torch.randn(rows, columns, dtype=torch.bfloat16)
# orbit: q = torch.empty(rows, columns, dtype=torch.float8_e4m3fn); scale = torch.empty(rows)
# orbit: launch quantize[(rows,)](x, q, scale, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
# orbit: expect scale == x.abs().amax(1) / 448
# orbit: expect q == (x * (448 / x.abs().amax(1, keepdim=True))).to(torch.float8_e4m3fn)
# orbit: case ragged: rows = 37, columns = 5003
# orbit: case small: rows = 3, columns = 1000, size = 1e-3
# orbit: bytes x.numel() * x.element_size() + q.numel() + 4 * rows
@triton.jit
def quantize(x_ptr, q_ptr, scale_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=inside, other=0.0).to(tl.float32)
    scale = tl.max(tl.abs(x), axis=0) / 448.0
    tl.store(scale_ptr + row, scale)
    tl.store(q_ptr + row * columns + offsets, (x / scale).to(q_ptr.dtype.element_ty), mask=inside)
