"""The kernels of `bench/gate.py` on a GPU, beyond the few that it had first: those of `examples/`, and kernels of others.

    python -P bench/gate_kernels.py gather CLONES --out FOLDER    CLONES has OWNER+NAME/repo for each of ORIGINS

FOLDER gets one file for each kernel of others: its text and what it calls, with a launch spec above it. Nothing of it is in this repository. `SIZES` has,
for each kernel, the part of its launch spec that says how much work it does, and the values that may do 2.0 to 2.5 % more; `bench/gate_long.py`
measures which one does.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

CHECKS = re.compile(r"^// orbit: (?:expect|case)\b.*\n", re.MULTILINE)
"""What a launch spec here expects, which takes a third of a run's time."""
EXAMPLES = Path(__file__).parents[1] / "examples"


@dataclass(frozen=True)
class Origin:
    repository: str
    commit: str
    licence: str


LLM = Origin("karpathy/llm.c", "f1e2ace651495b74ae22d45d1723443fd00ecd3a", "MIT")
BOOK = Origin("PacktPublishing/Learn-CUDA-Programming", "10bd9b59bfcc680d608ea1417da5089f73d91b11", "MIT")
MATRIX = Origin("pskrunner14/cuda-matrix-ops", "f08519b7748f8266ed436c37d36852caf7cfa604", "MIT")
COURSE = Origin("abdullahejazjanjua/gpu-programming", "587a559e9a8aed8bbf5f025334ed35768affeca9", "MIT")
_GROUPS = "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\n"
_GELU = "#define GELU_SCALING_FACTOR 0.7978845608028654f\n"
_FLOATX = "typedef float floatX;\n"


@dataclass(frozen=True)
class Foreign:
    """A kernel of somebody else's repository. `parts` are the names of the functions that are taken from its file `path`; the
    last is the kernel. `above` is text that replaces its headers.
    """

    origin: Origin
    path: str
    parts: tuple[str, ...]
    spec: str
    above: str = ""

    @property
    def name(self) -> str:
        return self.parts[-1]

    def text(self, clones: Path) -> str:
        clone = clones / self.origin.repository.replace("/", "+") / "repo"
        source = _shown(clone, self.origin.commit, self.path)
        if "warpReduceSum" in self.parts:
            source += _shown(clone, self.origin.commit, "dev/cuda/common.h")
        *helpers, kernel = (definition(source, name) for name in self.parts)
        head = f"// {self.name} of {self.path}, github.com/{self.origin.repository} at {self.origin.commit[:12]}, licence {self.origin.licence}\n"
        spec = "".join(f"// orbit: {line}\n" for line in self.spec.strip().splitlines())
        return "\n".join((head + self.above, *helpers, spec + kernel))


def _shown(clone: Path, commit: str, path: str) -> str:
    shown = subprocess.run(
        ["git", "show", f"{commit}:{path}"], cwd=clone, check=True, capture_output=True, text=True
    )
    return shown.stdout


def definition(source: str, name: str) -> str:
    """The text of a function or structure at the top level, up to the brace that ends it."""
    found = re.search(
        rf"^(?:template<[^\n]*>\n)?(?:struct|__\w+__)[^;{{}}]*?\b{name}\b[^;{{}}]*\{{", source, re.MULTILINE
    )
    assert found, name
    depth, end = 1, found.end()
    for token in re.finditer(r"//[^\n]*|[{}]", source[found.end() :]):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if not depth:
            end += token.end()
            break
    return source[found.start() : end] + (";\n" if "struct" in found[0] else "\n")


FOREIGN = (
    Foreign(
        LLM, "dev/cuda/gelu_forward.cu", ("gelu_forward_kernel1",),
        """n = 1 << 25
x = randn(n); y = empty(n)
launch gelu_forward_kernel1<<<cdiv(n, 256), 256>>>(y, x, n)
expect y == gelu(x, approximate="tanh") within 1e-4, 1e-5""",
        _FLOATX + _GELU,
    ),
    Foreign(
        LLM, "dev/cuda/gelu_backward.cu", ("gelu_backward1",),
        """n = 1 << 25
x = randn(n); dy = randn(n); dx = empty(n)
t = tanh(0.79788456f * (x + 0.044715f * x * x * x))
launch gelu_backward1<<<cdiv(n, 256), 256>>>(dx, x, dy, n)
expect dx == dy * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.79788456f * (1 + 0.134145f * x * x)) within 1e-3, 1e-4""",
        _FLOATX + _GELU,
    ),
    Foreign(
        LLM, "dev/cuda/residual_forward.cu", ("residual_forward_kernel1",),
        """n = 1 << 24
a = randn(n); b = randn(n); y = empty(n)
launch residual_forward_kernel1<<<cdiv(n, 256), 256>>>(y, a, b, n)
expect y == a + b""",
        _FLOATX,
    ),
    Foreign(
        LLM, "dev/cuda/layernorm_forward.cu", ("layernorm_forward_kernel3",),
        """rows = 32768; columns = 768
x = randn(rows, columns); w = randn(columns); b = randn(columns)
y = empty(rows, columns); mean = empty(rows); rstd = empty(rows)
launch layernorm_forward_kernel3<<<cdiv(rows * 32, 256), 256>>>(y, mean, rstd, x, w, b, rows, columns)
expect y == layer_norm(x, columns, w, b, 1e-5f) within 1e-4, 1e-4""",
        _GROUPS,
    ),
    Foreign(
        LLM, "dev/cuda/layernorm_forward.cu", ("layernorm_forward_kernel5",),
        """rows = 16384; columns = 1600
x = randn(rows, columns); w = randn(columns); b = randn(columns)
y = empty(rows, columns); mean = empty(rows); rstd = empty(rows)
launch layernorm_forward_kernel5<<<rows, 256>>>(y, mean, rstd, x, w, b, rows, columns)
expect y == layer_norm(x, columns, w, b, 1e-5f) within 1e-4, 1e-4""",
        _GROUPS,
    ),
    Foreign(
        LLM, "dev/cuda/adamw.cu", ("lerp", "adamw_kernel2"),
        """n = 1 << 23
p = randn(n); g = randn(n); m = randn(n); v = rand(n)
launch adamw_kernel2<<<cdiv(n, 512), 512>>>(p, g, m, v, n, 1e-3f, 0.9f, 0.999f, 0.1f, 0.001f, 1e-8f, 0.01f)
expect m == 0.9f * m + 0.1f * g within 1e-4, 1e-5""",
    ),
    Foreign(
        LLM, "dev/cuda/encoder_forward.cu", ("encoder_forward_kernel2",),
        """t = 16384; c = 768
ids = randint(0, 50257, t); wte = randn(50257, c); wpe = randn(t, c); y = empty(t, c)
launch encoder_forward_kernel2<<<cdiv(t * c, 256), 256>>>(y, ids, wte, wpe, 1, t, c)
expect y == wte[ids] + wpe""",
        _FLOATX,
    ),
    Foreign(
        LLM, "dev/cuda/softmax_forward.cu", ("warpReduceSum", "warpReduceMax", "softmax_forward_kernel4"),
        """rows = 16384; columns = 1024
x = randn(rows, columns); y = empty(rows, columns)
launch softmax_forward_kernel4<<<rows, 256, 8 * sizeof(float)>>>(y, x, rows, columns)""",
    ),
    Foreign(
        LLM, "dev/cuda/softmax_forward.cu", ("SumMax", "reduce_sum_max_op", "softmax_forward_online_kernel2"),
        """rows = 32768; columns = 1024
x = randn(rows, columns); y = empty(rows, columns)
launch softmax_forward_online_kernel2<<<cdiv(rows * 32, 256), 256>>>(y, x, rows, columns)
expect y == softmax(x, 1) within 1e-4, 1e-7""",
        _GROUPS,
    ),
    Foreign(
        LLM, "dev/cuda/permute.cu", ("permute_kernel",),
        """d1 = 256; d2 = 42; d3 = 20; d4 = 32
x = randn(d1, d2, d3, d4); y = empty(d4, d3, d1, d2)
launch permute_kernel<<<cdiv(d1 * d2 * d3 * d4, 256), 256>>>(x, y, d1, d2, d3, d4)
expect y == permute(x, 3, 2, 0, 1)""",
    ),
    Foreign(
        LLM, "dev/cuda/global_norm.cu", ("norm_kernel1",),
        """n = 1 << 25
x = randn(n); y = zeros(1)
launch norm_kernel1<float><<<132 * 4, 512>>>(y, x, n)
expect y == sum(x * x) within 1e-3, 1e-3""",
        _GROUPS,
    ),
    Foreign(
        BOOK, "Chapter02/02_memory_overview/04_matrix_transpose/conflict_solved.cu", ("matrix_transpose_shared",),
        """x = randint(-1000, 1000, N, N); y = empty(N, N)
launch matrix_transpose_shared<<<dim3(N / 32, N / 32), dim3(32, 32)>>>(x, y)
expect y == x.T""",
        "#define N 8160\n#define BLOCK_SIZE 32\n",
    ),
    Foreign(
        BOOK, "Chapter07/07_parallel_programming_pattern/02_convolution/convolution.cu", ("convolution_kernel_v1",),
        """rows = 4096; columns = 4096; taps = 5
x = randn(rows, columns); w = randn(taps, taps); y = empty(rows, columns)
launch convolution_kernel_v1<<<dim3(columns / 16, rows / 16), dim3(16, 16)>>>(y, x, w, rows, columns, taps)""",
    ),
    Foreign(
        BOOK, "Chapter03/03_cuda_thread_programming/05_warp_divergence/reduction_kernel_sequential.cu", ("reduction_kernel_2",),
        """n = 1 << 25
x = randn(n); y = empty(n / 256)
launch reduction_kernel_2<<<n / 256, 256, 256 * sizeof(float)>>>(y, x, n)
expect y == sum(view(x, n / 256, 256), 1) within 1e-4, 1e-3""",
    ),
    Foreign(
        MATRIX, "ops/matrix_ops.cu", ("matsum",),
        """m = 4096; n = 2048
a = double(randn(m, n)); b = double(randn(m, n)); c = empty(m, n)
launch matsum<<<dim3(n / 32, m / 32), dim3(32, 32)>>>(a, b, c, m, n)
expect c == a + b""",
    ),
    Foreign(
        COURSE, "blurring/blur.cu", ("blurKernel",),
        """h = 4096; w = 1024
x = randint(0, 256, h, w, 3); y = empty(h, w, 3)
launch blurKernel<<<dim3(w / 32, cdiv(h, 32)), dim3(32, 32)>>>(x, y, h, w, 2)""",
    ),
    Foreign(
        COURSE, "grayscale/grayscale.cu", ("grayscaleKernel",),
        """h = 4096; w = 8192
x = randint(0, 256, h, w, 3); y = empty(h, w)
launch grayscaleKernel<<<dim3(w / 32, h / 32), dim3(32, 32)>>>(x, y, h, w)""",
    ),
)  # fmt: skip
"""Kernels with one instance and plain arguments, as a launch spec can pass them."""


def _more(name: str, base: int, step: int = 1) -> tuple[str, tuple[str, ...]]:
    """`name = base`, and the same with 1.75 to 2.75 % more, in multiples of `step`."""
    values = {base + max(1, round(base * share / step)) * step for share in (0.0175, 0.02, 0.0225, 0.0275)}
    return f"{name} = {base}", tuple(f"{name} = {value}" for value in sorted(values))


def _sizes(name: str, base: int, *values: int) -> tuple[str, tuple[str, ...]]:
    """`name = base`, and other values, where the time does not grow with the size."""
    return f"{name} = {base}", tuple(f"{name} = {value}" for value in values)


def _power(name: str, exponent: int, step: int = 1024) -> tuple[str, tuple[str, ...]]:
    return f"{name} = 1 << {exponent}", _more(name, 1 << exponent, step)[1]


SIZES: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {
    ("bitonic_sort.cu", "bitonic_sort"): ("rows = 512", ()),
    ("convolution.cu", "convolve"): _power("n", 25),
    ("elementwise.cu", "saxpy"): _power("n", 26),
    ("elementwise.cu", "gelu_bf16"): _power("n", 27),
    ("histogram.cu", "histogram"): _power("n", 27),
    ("layer_norm.cu", "layer_norm"): _sizes("rows", 16384, 16790, 16840, 16896, 16940),
    ("matmul.cu", "matmul"): _more("k", 2816, 16),
    ("normalize.cu", "normalize"): _power("n", 26),
    ("reduction.cu", "reduce_sum"): _power("n", 27),
    ("scan.cu", "inclusive_scan"): _power("n", 26),
    ("softmax.cu", "softmax"): _more("rows", 8192),
    ("stencil.cu", "heat"): _more("rows", 8192),
    ("tensor_core_matmul.cu", "wmma_matmul"): _more("k", 2048, 16),
    ("transpose.cu", "transpose"): _more("rows", 8192, 32),
    **{
        (f"{name}.cu", name): change
        for name, change in {
            "gelu_forward_kernel1": _power("n", 25),
            "gelu_backward1": _power("n", 25),
            "residual_forward_kernel1": _power("n", 24),
            "layernorm_forward_kernel3": _sizes("rows", 32768, 33220, 33260, 33300),
            "layernorm_forward_kernel5": _sizes("rows", 16384, 16880, 16920, 16960, 17000),
            "adamw_kernel2": ("n = 1 << 23", _sizes("n", 1 << 23, 8683520, 8749056, 8781824, 8814592)[1]),
            "encoder_forward_kernel2": _more("t", 16384),
            "softmax_forward_kernel4": _more("rows", 16384),
            "softmax_forward_online_kernel2": _sizes("rows", 32768, 33680, 33720, 33760, 33800),
            "permute_kernel": _more("d1", 256),
            "norm_kernel1": _power("n", 25),
            "matrix_transpose_shared": ("#define N 8160", ("#define N 8224", "#define N 8256")),
            "convolution_kernel_v1": _more("rows", 4096, 16),
            "reduction_kernel_2": _power("n", 25),
            "matsum": _more("m", 4096, 32),
            "blurKernel": _sizes("h", 4096, 4200, 4208, 4216),
            "grayscaleKernel": _more("h", 4096, 32),
        }.items()
    },
}
"""By file and kernel: what says how much it does, and values that may take 2.0 to 2.5 % more time; none where it grows in steps."""

LARGER = {"matmul.cu": ("k = 1024", "k = 2816")}
"""Where the example's size does not grow by 2 %, because it has few tiles."""


def gather(clones: Path, out: Path) -> None:
    """Write the files of all kernels of SIZES: copies of the examples, and those of others."""
    out.mkdir(parents=True)
    for name in sorted({file for file, _ in SIZES}):
        if (EXAMPLES / name).exists():
            old, new = LARGER.get(name, ("", ""))
            (out / name).write_text((EXAMPLES / name).read_text().replace(old, new, 1))
    for each in FOREIGN:
        (out / f"{each.name}.cu").write_text(each.text(clones))
    for (file, _), (old, _) in SIZES.items():
        assert old in (out / file).read_text(), (file, old)
    print(f"{len(SIZES)} kernels, {len(FOREIGN)} of them of others, in {out}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("gather",))
    parser.add_argument("clones", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    gather(options.clones, options.out)


if __name__ == "__main__":
    main()
