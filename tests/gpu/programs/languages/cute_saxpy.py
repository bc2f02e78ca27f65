import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def saxpy(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):  # expect: 6 launches
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 256 + thread
    if i < n:
        y[i] = x[i] * 2.0 + y[i]  # expect: line


@cute.jit
def host(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
    saxpy(x, y, n).launch(grid=[4096, 1, 1], block=[256, 1, 1])


def main():
    n = 1 << 20
    x, y = torch.ones(2, n, device="cuda")
    arguments = from_dlpack(x), from_dlpack(y), cutlass.Int32(n)
    compiled = cute.compile(host, *arguments)
    for _ in range(6):
        compiled(*arguments)
    torch.cuda.synchronize()
    assert y[-1].item() == 13
