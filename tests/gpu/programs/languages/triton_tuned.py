import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": size}) for size in (256, 512, 1024)], key=["n"])
@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):  # expect: 3 tried
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def main():
    n = 1 << 20
    x, y = torch.ones(2, n, device="cuda")
    out = torch.empty_like(x)
    for _ in range(6):
        add[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
    assert out[-1].item() == 2
