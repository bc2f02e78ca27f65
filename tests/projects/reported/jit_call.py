# Kernels that a call of triton.jit makes, and constants of heuristics.
import torch
import triton
import triton.language as tl

def raw(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), 1.0)
# orbit: x = zeros(64)
# orbit: launch wrapped[(1,)](x, B=64)
wrapped = triton.jit(raw)

@triton.heuristics({"B": lambda a: 64})
@triton.jit
def heur(x, n, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), 1.0)

# orbit: x = zeros(64)
# orbit: launch heur2[(1,)](x, 64)
@triton.heuristics({"B": lambda a: 64})
@triton.jit
def heur2(x, n, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), 1.0)
