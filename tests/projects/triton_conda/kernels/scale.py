import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


def test_scale():
    x = torch.randn(98432, dtype=torch.float16, device="cuda")
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 512),)](x, out, 3.0, x.numel(), BLOCK=512)
    torch.testing.assert_close(out, 3 * x)
