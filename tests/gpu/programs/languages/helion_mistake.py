import helion
import helion.language as hl
import torch


@helion.kernel(config=helion.Config(block_sizes=[128]))
def wrong(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile].nothing()  # expect: problem
    return out


def main():
    wrong(torch.ones(128, device="cuda"))
