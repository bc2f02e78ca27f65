# a kernel that is tuned first: what tuning launches is not the program's
import helion
import helion.language as hl
import torch

CONFIGURATIONS = [helion.Config(block_sizes=[size]) for size in (256, 1024)]


@helion.kernel(configs=CONFIGURATIONS)
def scale(x: torch.Tensor) -> torch.Tensor:  # expect: 5 launches
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] * 2
    return out


@helion.kernel(config=helion.Config(block_sizes=[512]))
def scale_add(x: torch.Tensor) -> torch.Tensor:  # expect: 3 launches
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] * 2 + 1
    return out


if __name__ == "__main__":
    x = torch.ones(1 << 24, device="cuda")
    for _ in range(5):
        scale(x)
    for _ in range(3):
        scale_add(x)
