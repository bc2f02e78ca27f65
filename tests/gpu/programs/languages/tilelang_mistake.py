import tilelang
import torch
from tilelang import language as T  # noqa: N812


@tilelang.jit
def maker(n, dtype="float32"):
    @T.prim_func
    def wrong(a: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32) as bx:
            for i in T.Parallel(32):
                a[bx * 32 + i] = T.nothing(a[i])  # expect: problem

    return wrong


def main():
    maker(32)(torch.ones(32, device="cuda"))
