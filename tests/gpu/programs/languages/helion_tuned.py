import helion
import helion.language as hl
import torch


@helion.kernel(configs=[helion.Config(block_sizes=[size]) for size in (256, 512, 1024)])
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:  # expect: 3 tried
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + y[tile]
    return out


def main():
    x, y = torch.ones(2, 1 << 20, device="cuda")
    for _ in range(6):
        out = add(x, y)
    assert out[-1].item() == 2
