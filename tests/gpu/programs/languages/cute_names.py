# two kernels of one host function, one of a class
import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def scale(x: cute.Tensor):  # expect: 4 launches
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    x[block * 128 + thread] = x[block * 128 + thread] * 2.0


class Adder:
    def __init__(self, value: float) -> None:
        self.value = value

    @cute.jit
    def __call__(self, x: cute.Tensor):
        scale(x).launch(grid=[1024, 1, 1], block=[128, 1, 1])
        self.scale_add(x).launch(grid=[1024, 1, 1], block=[128, 1, 1])

    @cute.kernel
    def scale_add(self, x: cute.Tensor):  # expect: 4 launches
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        x[block * 128 + thread] = x[block * 128 + thread] + cutlass.Float32(self.value)


if __name__ == "__main__":
    x = torch.ones(1 << 17, device="cuda")
    adder = Adder(1.0)
    compiled = cute.compile(adder, from_dlpack(x))
    for _ in range(4):
        compiled(from_dlpack(x))
    torch.cuda.synchronize()
    assert x[0].item() == 31
