import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def wrong(x: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    x[thread] = x.nothing  # expect: problem


@cute.jit
def host(x: cute.Tensor):
    wrong(x).launch(grid=[1, 1, 1], block=[32, 1, 1])


def main():
    host(from_dlpack(torch.ones(32, device="cuda")))
