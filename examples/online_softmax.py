"""Softmax of long rows in Triton: the largest element and the sum in one pass, whatever the row's length."""

import triton
import triton.language as tl


# orbit: rows = 2048; columns = 32768
# orbit: x = torch.randn(rows, columns); y = torch.empty_like(x)
# orbit: launch online_softmax[(rows,)](x, y, columns, x.stride(0), BLOCK=4096, num_warps=8)
# orbit: expect y == torch.softmax(x, dim=1) within 1e-5, 1e-10
# orbit: case ragged: rows = 33, columns = 5003
# orbit: case narrow: rows = 5, columns = 7
# orbit: bytes 2 * x.numel() * x.element_size()
@triton.jit
def online_softmax(x_ptr, y_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    y_ptr += row * stride
    offsets = tl.arange(0, BLOCK)
    largest = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        x = tl.load(x_ptr + start + offsets, mask=start + offsets < columns, other=-float("inf"))
        before = largest
        largest = tl.maximum(largest, tl.max(x, axis=0))
        total = total * tl.exp(before - largest) + tl.sum(tl.exp(x - largest), axis=0)
    for start in range(0, columns, BLOCK):
        inside = start + offsets < columns
        x = tl.load(x_ptr + start + offsets, mask=inside)
        tl.store(y_ptr + start + offsets, tl.exp(x - largest) / total, mask=inside)
