# Constants of autotune and of heuristics, and a block whose name is one letter.
import triton
import triton.language as tl
import triton.language as T

@triton.autotune(configs=[triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"])
@triton.heuristics({"EVEN": lambda a: a["n"] % a["B"] == 0})
@triton.jit
def with_tl(x, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, 2.0, mask=i < n)

@triton.autotune(configs=[triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"])
@triton.jit
def no_heur(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, 2.0, mask=i < n)

@triton.jit
def with_T(x, n, B: T.constexpr):
    i = T.program_id(0) * B + T.arange(0, B)
    T.store(x + i, 2.0, mask=i < n)

@triton.jit
def same_tl(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, 2.0, mask=i < n)

def raw(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, 2.0, mask=i < n)
wrapped = triton.jit(raw)
