"""A submission as GPU MODE's popcorn takes it: custom_kernel(data), checked by reference.py on what task.yml lists."""

import torch
import triton
import triton.language as tl
from task import input_t, output_t


@triton.jit
def rms_norm(out, x, weight, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        total += values * values
    scale = 1.0 / tl.sqrt(tl.sum(total) / columns + eps)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        values = tl.load(x + row * columns + at, mask=inside).to(tl.float32)
        scaled = values * scale * tl.load(weight + at, mask=inside).to(tl.float32)
        tl.store(out + row * columns + at, scaled.to(out.dtype.element_ty), mask=inside)


def custom_kernel(data: input_t) -> output_t:
    x, weight = data
    out = torch.empty_like(x)
    rms_norm[(x.shape[0],)](out, x, weight, x.shape[1], 1e-6, BLOCK=2048)
    return out
