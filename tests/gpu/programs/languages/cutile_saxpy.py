import cuda.tile as ct
import torch


@ct.kernel
def saxpy(x, y, tile: ct.Constant[int]):  # expect: 6 launches
    block = ct.bid(0)
    a = ct.load(x, index=(block,), shape=(tile,))
    b = ct.load(y, index=(block,), shape=(tile,))
    ct.store(y, index=(block,), tile=a * 2.0 + b)  # expect: line


def main():
    n = 1 << 20
    x, y = torch.ones(2, n, device="cuda")
    for _ in range(6):
        ct.launch(torch.cuda.current_stream(), (n // 1024, 1, 1), saxpy, (x, y, 1024))
    torch.cuda.synchronize()
    assert y[-1].item() == 13
