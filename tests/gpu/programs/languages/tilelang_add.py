import tilelang
import torch
from tilelang import language as T  # noqa: N812


@tilelang.jit
def adder(n, block=256, kind="float32"):
    @T.prim_func
    def add(a: T.Tensor((n,), kind), b: T.Tensor((n,), kind), c: T.Tensor((n,), kind)):  # expect: 6 launches
        with T.Kernel(T.ceildiv(n, block), threads=block) as bx:
            for i in T.Parallel(block):
                c[bx * block + i] = a[bx * block + i] + b[bx * block + i]  # expect: line

    return add


def main():
    n = 1 << 20
    kernel = adder(n)
    a, b, c = torch.ones(3, n, device="cuda")
    for _ in range(6):
        kernel(a, b, c)
    assert c[-1].item() == 2
