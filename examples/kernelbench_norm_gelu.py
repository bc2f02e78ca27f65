"""A problem and its solution as KernelBench has them: ModelNew must compute what Model does. Layer norm, then GELU."""

import torch
import triton
import triton.language as tl
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return nn.functional.gelu(self.norm(x))


@triton.jit
def norm_gelu(out, x, weight, bias, features, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < features
    values = tl.load(x + row * features + columns, mask=inside, other=0.0)
    mean = tl.sum(values) / features
    centred = tl.where(inside, values - mean, 0.0)
    variance = tl.sum(centred * centred) / features
    scaled = centred / tl.sqrt(variance + eps)
    scaled = scaled * tl.load(weight + columns, mask=inside) + tl.load(bias + columns, mask=inside)
    half = 0.5 * scaled * (1.0 + tl.math.erf(scaled * 0.7071067811865476))
    tl.store(out + row * features + columns, half, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        out = torch.empty_like(x)
        features = x.shape[-1]
        block = triton.next_power_of_2(features)
        rows = x.numel() // features
        norm_gelu[(rows,)](out, x, self.norm.weight, self.norm.bias, features, self.norm.eps, BLOCK=block)
        return out


ROWS, FEATURES = 16384, 3000


def get_inputs():
    return [torch.rand(ROWS, FEATURES)]


def get_init_inputs():
    return [FEATURES]
