import tilelang
import torch
from tilelang import language as T  # noqa: N812


@tilelang.autotune(configs=[{"block": 128}, {"block": 256}, {"block": 512}])
@tilelang.jit(out_idx=[2])
def adder(n, block=256, kind="float32"):
    @T.prim_func
    def add(a: T.Tensor((n,), kind), b: T.Tensor((n,), kind), c: T.Tensor((n,), kind)):  # expect: 3 tried
        with T.Kernel(T.ceildiv(n, block), threads=block) as bx:
            for i in T.Parallel(block):
                c[bx * block + i] = a[bx * block + i] + b[bx * block + i]

    return add


def main():
    n = 1 << 20
    kernel = adder(n)
    a, b = torch.ones(2, n, device="cuda")
    for _ in range(6):
        c = kernel(a, b)
    assert c[-1].item() == 2
