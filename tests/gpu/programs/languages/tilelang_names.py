# two factories; one calls its kernel main, as TileLang's examples do
import tilelang
import torch
from tilelang import language as T  # noqa: N812


@tilelang.jit
def doubled(n, block=256, dtype="float32"):
    @T.prim_func
    def main(a: T.Tensor((n,), dtype), c: T.Tensor((n,), dtype)):  # expect: 4 launches
        with T.Kernel(T.ceildiv(n, block), threads=block) as bx:
            for i in T.Parallel(block):
                c[bx * block + i] = a[bx * block + i] * 2.0

    return main


@tilelang.jit
def copied(n, block=128, dtype="float32"):
    @T.prim_func
    def copy(a: T.Tensor((n,), dtype), c: T.Tensor((n,), dtype)):  # expect: 3 launches
        with T.Kernel(T.ceildiv(n, block), threads=block) as bx:
            for i in T.Parallel(block):
                c[bx * block + i] = a[bx * block + i]

    return copy


if __name__ == "__main__":
    n = 1 << 18
    a, c = torch.ones(2, n, device="cuda")
    double, copy = doubled(n), copied(n)
    for _ in range(4):
        double(a, c)
    for _ in range(3):
        copy(a, c)
    torch.cuda.synchronize()
