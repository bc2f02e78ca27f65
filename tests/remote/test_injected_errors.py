"""Mistakes put into files that look like real ones: the compiler's message stands on the very token that is wrong.

A text marks the token of each message as «this», in the order of the lines; `!` behind a mark says that the message
is a warning. The table beside it has what nvcc or Triton says there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata

import pytest

from orbit_remote.common import messages as c
from tests.remote.nvcc_check import built, needs_nvcc


@dataclass(frozen=True)
class File:
    name: str
    text: str
    messages: tuple[str, ...]
    flags: tuple[str, ...] = ()


def unmarked(text: str, path: str) -> tuple[str, list[c.Place]]:
    """The text without its marks, and the places that they name; columns count from 1 in code points."""
    lines: list[str] = []
    places: list[c.Place] = []
    for number, marked in enumerate(text.split("\n"), 1):
        line = marked
        while mark := re.search("«(.*?)»", line):
            start = mark.start() + 1
            places.append(c.Place(path, number, start, start + len(mark[1])))
            line = line[: mark.start()] + mark[1] + line[mark.end() :]
        lines.append(line)
    return "\n".join(lines), places


def check(
    text: str, path: str, problems: tuple[c.Problem, ...], places: list[c.Place], messages: tuple[str, ...]
) -> None:
    ours = [problem for problem in problems if problem.place is None or problem.place.file == path]
    by_place = sorted(
        ours, key=lambda problem: (problem.place.line, problem.place.column or 0) if problem.place else (0, 0)
    )
    lines = text.split("\n")

    def row(place: c.Place | None, words: str) -> str:
        if place is None:
            return f"nowhere: {words}"
        token = lines[place.line - 1][(place.column or 1) - 1 : (place.end_column or 0) - 1]
        return f"{place.line}:{place.column} «{token}» {words[:_WORDS]}"

    assert [row(problem.place, problem.message.partition("\n")[0]) for problem in by_place] == [
        row(place, words) for place, words in zip(places, messages, strict=True)
    ]


_WORDS = 60
"""Characters of a message that are compared."""

CUDA = [
    File(
        "saxpy.cu",
        """\
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                            \\
    do {                                                                       \\
        cudaError_t status = (call);                                           \\
        if (status != cudaSuccess) {                                           \\
            fprintf(stderr, "%s:%d\\n", __FILE__, __LINE__);                    \\
            exit(1);                                                           \\
        }                                                                      \\
    } while (0)

__global__ void saxpy(int n, float a, const float* x, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.«w»;
    if (i < «N») y[i] = a * x[i] + y[i];
}

__global__ void scale(const float* x, float* y, int n) {
    int «unused» = n;
    int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) «x»[i] = 2.0f * y[i];
}

int main() {
    int n = 1 << 20;
    float *x, *y;
    CHECK(cudaMalloc(&x, n * sizeof(«flaot»)));
    CHECK(cudaMalloc(&y, n * sizeof(float))); CHECK(cudaMemset(y, 0«)»);
    saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, x«)»;
    saxpy<<<1, 256>>>(n, «"two"», x, y);
    CHECK(«cudaDeviceSynchronise»());
    return 0;
}
""",
        (
            'class "uint3" has no member "w"',
            'identifier "N" is undefined',
            'variable "unused" was declared but never referenced',
            "expression must be a modifiable lvalue",
            'identifier "flaot" is undefined',
            "too few arguments in function call",
            "too few arguments in function call",
            'argument of type "const char *" is incompatible with parameter of type "float"',
            'identifier "cudaDeviceSynchronise" is undefined',
        ),
    ),
    File(
        "system_macros.cu",
        """\
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdio>

__global__ void row_max(const float* x, float* out, int columns) {
    float best = -INFINITY; best = «starting»;
    assert(columns > «least»); assert(columns < INT_MAX);
    for (int j = 0; j < INT_MAX && j < «colums»; ++j) best = fmaxf(best, x[j]);
    if (best > FLT_MAX && «overflow») best = NAN;
    out[blockIdx.x] = best;
}

int main() {
    fprintf(stderr, "%d rows\\n", «rows»); float* x = NULL; x = «buffer»;
    printf("%s %p\\n", __FILE__, static_cast<void*>(x)); return «failures»;
}
""",
        (
            'identifier "starting" is undefined',
            'identifier "least" is undefined',
            'identifier "colums" is undefined',
            'identifier "overflow" is undefined',
            'identifier "rows" is undefined',
            'identifier "buffer" is undefined',
            'identifier "failures" is undefined',
        ),
    ),
    File(
        "tiled_transpose.cu",
        """\
#define TILE 32
#define ROWS 8
#define IDX(row, column, width) ((row) * (width) + (column))
#define UNROLL _Pragma("unroll")

template <typename T>
__global__ void __launch_bounds__(TILE * ROWS, 2) transpose(const T* __restrict__ in, T* __restrict__ out, int width_, «in» height) {
    __shared__ T tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
}

__global__ __launch_bounds__(TILE * ROWS) void copy(const float* in, float* out, int width) {
\t__shared__ float tile[TILE][TILE + 1];
\tint x = blockIdx.x * TILE + threadIdx.x;\tint y = blockIdx.y * TILE + threadIdx.y;
\tUNROLL for (int j = 0; j < TILE; j += ROWS) tile[threadIdx.y + j][threadIdx.x] = in[IDX(y + j, x, «widht»)];
\t__syncthreads(); /* größer als µs → */ out[IDX(x, y, width)] = «tiles»[threadIdx.x][threadIdx.y];
\tout[IDX(y, x, width)] «=» tile;
\tout[IDX(y,
\t\tx + «offset»,
\t\twidth)] = 0; out[0] = «last»;
\t«out»[0]++++;
}
""",
        (
            'parameter "in" is not a type name',
            'identifier "widht" is undefined',
            'identifier "tiles" is undefined',
            'a value of type "float (*)[33]" cannot be assigned to an entity of type "float"',
            'identifier "offset" is undefined',
            'identifier "last" is undefined',
            "expression must be a modifiable lvalue",
        ),
    ),
    File(
        "reduce.cu",
        """\
#include <cooperative_groups.h>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;

[[deprecated("use block_sum")]] __device__ float old_sum(float v) { return v; }
template <typename T, int N> __device__ T block_sum(T v) {
    static_assert(N % 32 == 0, "whole warps");
    return «v».total();
}

__global__ void reduce(const half* x, float* out, int n) {
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(«blok»);
    float sum = __half2float(x[threadIdx.x]);
    sum += «__shfl_down»(sum, 1);
    sum += «old_sum»(sum);
    sum += block_sum<float, 64>(sum);
    half h = «x»[0] + "1";
    out[blockIdx.x] = sum;
    block.sync(«1»);
}
""",
        (
            'expression must have class type but it has type "float"',
            'identifier "blok" is undefined',
            'identifier "__shfl_down" is undefined',
            'function "old_sum" was declared deprecated ("use block_sum")',
            'no suitable constructor exists to convert from "const char *" to "__half"',
            "too many arguments in function call",
        ),
    ),
    File(
        "warp_scan.cu",
        """\
struct Matrix {
    float* data;
    int rows, columns;
    __device__ float at(int i, int j) const { return data[i * columns + j]; }
  private:
    int stride;
};
enum class Mode { sum, product };
__constant__ float weights[16];

__device__ int broken(int lane) { if (lane > 3) return 1; «}»
__device__ void nothing(int lane) { return «lane»; }
__device__ float twice(float v) { return v * 2; }
__device__ double twice(double v) { return v * 2; }

__global__ void scan(Matrix m, const float* in, float* out, Mode mode) {
    const int lane = threadIdx.x & 31;
    «lane» = 3;
    out[lane] = m.«stride»;
    out[lane] = m.at(1«)»;
    out[1] = «twice»(7);
    switch (lane) { case 1: break; case «1»: break; }
    «break»;
    int size = 4; float local[«size»]; local[0] = 1;
    if (mode «==» 1) out[0] = 2;
    out[2] = in[lane] + «lane_sum»;
    float* p = «in»; p[0] = 1;
    auto «late»; goto «done»;
    out[0] = 1 «/» 0; out[«3.5»] = nullptr;
    float4 v = make_float4(1, 2, 3«)»; out[1] = v.«r»;
    for (int i = 0; i < 4; ++i) { «continue_»; }
    int «never» ; unsigned u = 1; if (u «<» 0) out[0] = 0;
    dim3 grid(«1», 2, 3, 4); out[0] = grid.x;
    asm("mov.u32 %0, %laneid;" : «"=q"»(size));
}
""",
        (
            'missing return statement at end of non-void function "broken"',
            "return value type does not match the function type",
            "expression must be a modifiable lvalue",
            'member "Matrix::stride" (declared at line 6) is inaccessible',
            "too few arguments in function call",
            'more than one instance of overloaded function "twice" matches the argument list:',
            "case label value has already appeared in this switch at line 22",
            "a break statement may only be used within a loop or switch",
            "expression must have a constant value",
            'no operator "==" matches these operands',
            'identifier "lane_sum" is undefined',
            'a value of type "const float *" cannot be used to initialize an entity of type "float *"',
            'cannot deduce "auto" type (initializer required)',
            'label "done" was referenced but not defined',
            "division by zero",
            "expression must have integral or unscoped enum type",
            "too few arguments in function call",
            'class "float4" has no member "r"',
            'identifier "continue_" is undefined',
            'variable "never" was declared but never referenced',
            "pointless comparison of unsigned integer with zero",
            'no instance of constructor "dim3::dim3" matches the argument list',
            "asm operand type size(4) does not match type/size implied by constraint 'q'",
        ),
    ),
    File(
        "parse.cu",
        """\
#define N 256
__global__ void first(float* x) {
    x[threadIdx.x] = 1.0f
    «x»[0] = 2;
}
«__global__» int third(float* x) { return«;» }
__device__ __forceinline__ «flot» fourth(float x) { return x; }
float fifth(float* x) { return x[0«;» }
""",
        (
            'expected a ";"',
            "a __global__ function must have a void return type",
            'non-void function "third" should return a value',
            'identifier "flot" is undefined',
            'expected a "]"',
        ),
    ),
    File(
        "preprocessor.cu",
        """\
#include «"kernels/tile.h"»
#define TILE 16
__global__ void k(float* x) { x[0] = TILE; }
""",
        ("kernels/tile.h: No such file or directory",),
    ),
    File(
        "conditions.cu",
        """\
#if defined(TILE) && TILE > 16
#error "tile too large"
#elif !defined(TILE)
#«error» "define TILE"
#endif
#«warning» "careful"
__global__ void k(float* x) { x[0] = 1; }
""",
        (
            '#error "define TILE"',
            '#warning "careful"',
        ),
    ),
    File(
        "shared_memory.cu",
        """\
__global__ void «too_much»(float* x) {
    __shared__ float tile[1 << 16];
    tile[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[0] = tile[0];
}
""",
        ("Entry function 'too_much' uses too much shared data (0x40000 bytes, 0x38c00 max)",),
    ),
    File(
        "machine_code.cu",
        """\
__global__ void wrong_instruction(int* x) {
    int lane = 0;
    asm("«bogus».u32 %0;" : "=r"(lane)); x[0] = lane;
}
__global__ void too_much(float* x) {
    x[0] = 1;
}
""",
        ("Not a name of any known instruction: 'bogus'",),
    ),
]


CUDA.append(
    File(
        "system_macro.cu",
        "#include <cmath>\n\n__global__ void k(float* x) {\n    x[0] = 0.5f * «tanh_q»(M_PI * (x[1] + x[2]));\n}\n",
        ('identifier "tanh_q" is undefined',),
    )
)


@needs_nvcc
@pytest.mark.parametrize("file", CUDA, ids=lambda file: file.name)
async def test_nvcc(tmp_path, file):
    path = str(tmp_path / file.name)
    text, places = unmarked(file.text, path)
    result = await built(tmp_path, text, name=file.name, flags=file.flags)
    check(text, path, result.built.problems, places, file.messages)


# One kernel a mistake: Triton's front end stops at the first of each.
TRITON = File(
    "kernels.py",
    """\
import random
import triton
import triton.language as tl

WIDTH = 128  # é 日本 🚀


@triton.jit
def softmax(x_ptr, out_ptr, n, BLOCK: tl.constexpr = 128):
    row = tl.program_id(0); columns = tl.arange(0, «BLOKC»)
    tl.store(out_ptr + row * n + columns, columns)


@triton.jit
def copy(x_ptr, out_ptr, BLOCK: tl.constexpr = 128):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, «tl.sofmax»(x))


@triton.jit
def global_value(x_ptr, BLOCK: tl.constexpr = 128):
    i = tl.arange(0, BLOCK); tl.store(x_ptr + i, «WIDTH»)


@triton.jit
def shapes(x_ptr, BLOCK: tl.constexpr = 128):
    i = tl.arange(0, BLOCK); j = tl.arange(0, 64); 日本 = «i + j»
    tl.store(x_ptr + i, 日本)


@triton.jit
def not_a_power(x_ptr, BLOCK: tl.constexpr = 100):
    i = «tl.arange(0, BLOCK)»
    tl.store(x_ptr + i, i)


@triton.jit
def types_of_a_loop(x_ptr, n, BLOCK: tl.constexpr = 128):
    i = tl.arange(0, BLOCK); total = 0
    «for k in range(n):»
        total = total + i
    tl.store(x_ptr + i, total)


@triton.jit
def returns_in_a_loop(x_ptr, n, BLOCK: tl.constexpr = 128):
    i = tl.arange(0, BLOCK)
    «for k in range(n):»
        return
    tl.store(x_ptr + i, i)


@triton.jit
def helper(x, y):
    return x + «missing»


@triton.jit
def calls_a_helper(x_ptr, BLOCK: tl.constexpr = 128):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, helper(i, i))


@triton.jit
def too_many(x_ptr, BLOCK: tl.constexpr = 128):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, «tl.exp(i, i, i, i, i)»)


@triton.jit
def products(x_ptr, BLOCK: tl.constexpr = 16):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, «tl.dot(i, i)»)


@triton.jit
def in_a_branch(x_ptr, n, BLOCK: tl.constexpr = 16):
    i = tl.arange(0, BLOCK)
    if n == 3:
        for k in range(n):
            tl.store(x_ptr + i, k)
        «tl.stoer»(x_ptr + i, 0)
        return
    tl.store(x_ptr + i, i)


@triton.jit
def statements(x_ptr, BLOCK: tl.constexpr = 16):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, «[k for k in range(4)]»)


@triton.jit
def calls_python(x_ptr, BLOCK: tl.constexpr = 16):
    é = tl.arange(0, BLOCK); tl.store(x_ptr + é, «random.random»())


@triton.jit
def loads_twice(x_ptr, BLOCK: tl.constexpr = 16):
    i = tl.arange(0, BLOCK); tl.store(x_ptr + i, «tl.load(tl.load(x_ptr + i))»)


@triton.jit
def operators(x_ptr, BLOCK: tl.constexpr = 16):
    i = tl.arange(0, BLOCK); tl.store(x_ptr + i, «i @ i»)


@triton.jit
def comparisons(x_ptr, n, BLOCK: tl.constexpr = 16):
    i = tl.arange(0, BLOCK); tl.store(x_ptr + i, i, mask=«0 < i < n»)


@triton.jit
def keywords(x_ptr, BLOCK: tl.constexpr = 16):
    i = tl.arange(0, BLOCK); tl.store(x_ptr + i, tl.load(x_ptr + i, «maks=i < 3»))


@triton.jit
def of_another_release(x_ptr, **meta):
    i = tl.arange(0, «meta»['WIDTH']); tl.store(x_ptr + i, i)


@triton.jit
def axes(x_ptr, BLOCK: tl.constexpr = 16):
    i = tl.arange(0, BLOCK); tl.store(x_ptr, «tl.sum(tl.load(x_ptr + i), axis=1)»)


@triton.jit
def functions(x_ptr, BLOCK: tl.constexpr = 16):
    i = tl.arange(0, BLOCK)
    «def within(v):»
        return v
    tl.store(x_ptr + i, i)


@triton.jit
def lists(x_ptr, BLOCK: tl.constexpr = 16):
    i = tl.arange(0, BLOCK)
    for k in «[1, 2]»:
        i += k
    tl.store(x_ptr + i, i)


@triton.jit
def calls(x_ptr, BLOCK: tl.constexpr = 16):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, «i(3)»)


@triton.jit
def exceptions(x_ptr, BLOCK: tl.constexpr = 16):
    i = tl.arange(0, BLOCK)
    for k in range(3):
        «break»
    tl.store(x_ptr + i, i)
""",
    (
        "BLOKC is not defined",
        "triton.language has no `sofmax`",
        "Cannot access global variable WIDTH from within @jit'ed function.",
        "Cannot make_shape_compatible: incompatible dimensions at index 0: 128 and 64",
        "arange's range must be a power of 2",
        "Loop-carried variable total has initial type int32 but is re-assigned to",
        "We use SCF, so the loop body should only have one block",
        "missing is not defined",
        "Expected dtype ['fp32', 'fp64'] but got int32",
        "input and other must have equal ranks >= 2",
        "triton.language has no `stoer`",
        "only tuple comprehensions are supported",
        "random.random cannot be used in a kernel: it is no function of Triton's, and has no @triton.jit",
        "Unsupported ptr type <['16'], int32> in `tl.load`",
        "Triton does not support the operator MatMult here",
        "simultaneous multiple comparison is not supported",
        "load() got an unexpected keyword argument 'maks': Triton VERSION has no such parameter",
        "meta is not defined: kernels take no `**meta` since Triton 2: make its constants parameters, `WIDTH: tl.constexpr`",
        "invalid axis 1. Expected -1 <= axis < 1",
        "nested function definition is not supported.",
        "Only `range` and `static_range` iterators are currently supp",
        "a value of type tensor cannot be called",
        "unsupported AST node type: Break",
    ),
)


@pytest.mark.slow
def test_triton(job) -> None:
    pytest.importorskip("triton")
    text, places = unmarked(TRITON.text, job.path())
    done = job(text, action="compile")
    messages = tuple(message.replace("VERSION", metadata.version("triton")) for message in TRITON.messages)
    check(text, job.path(), done.finished.problems, places, messages)
