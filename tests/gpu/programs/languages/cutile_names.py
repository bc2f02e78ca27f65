# names that begin alike, two sizes of a tile
import cuda.tile as ct
import torch


@ct.kernel
def scale(x, tile: ct.Constant[int]):  # expect: 4 launches
    block = ct.bid(0)
    ct.store(x, index=(block,), tile=ct.load(x, index=(block,), shape=(tile,)) * 2.0)


@ct.kernel
def scale_twice(x, tile: ct.Constant[int]):  # expect: 3 launches
    block = ct.bid(0)
    ct.store(x, index=(block,), tile=ct.load(x, index=(block,), shape=(tile,)) * 4.0)


if __name__ == "__main__":
    n = 1 << 18
    x = torch.ones(n, device="cuda")
    stream = torch.cuda.current_stream()
    for tile in (256, 256, 512, 512):
        ct.launch(stream, (n // tile, 1, 1), scale, (x, tile))
    for _ in range(3):
        ct.launch(stream, (n // 256, 1, 1), scale_twice, (x, 256))
    torch.cuda.synchronize()
    assert x[0].item() == 1024
