"""A spec as an author sees it: the file in, its values and faults out."""

from __future__ import annotations

from textwrap import dedent

from orbit_lsp.kernels.cuda import cuda_kernels
from orbit_lsp.kernels.python import triton_kernels
from orbit_lsp.specs.spec_blocks import target
from orbit_remote.spec import launch_spec
from orbit_remote.spec.dtypes import DType
from orbit_remote.spec.rules import LaunchLimits
from orbit_remote.spec.syntax_tree import Lambda
from orbit_remote.spec.values import Dim3, Scalar, Tensor, TensorMap, Value

CUDA = "__global__ void k(int n, float a, const float* x, float* y) {}\n"
TRITON = "import triton\nimport triton.language as tl\n\n\n{spec}@triton.jit\ndef k(x, y, n, BLOCK: tl.constexpr):\n    pass\n"


def checked(source: str, language: str, limits: LaunchLimits | None = None) -> launch_spec.EvaluatedSpec:
    scan = cuda_kernels.scan(source) if language == "cuda" else triton_kernels.scan(source)
    return launch_spec.check(source, target(scan.kernels[-1]), limits)


def written(value: Value) -> str:
    match value:
        case Scalar():
            return f"{value.value} {value.type}"
        case Tensor():
            return f"{value.dtype.name}{list(value.shape)}"
        case TensorMap():
            return f"map of {written(value.tensor)} by {list(value.box)}"
        case Dim3():
            return f"dim3({value.x}, {value.y}, {value.z})"
        case DType():
            return value.name
        case Lambda():
            return "lambda"
        case tuple():
            return f"({', '.join(written(item) for item in value)})"
        case _:
            return repr(value)


def values(body: str, language: str = "cuda") -> str:
    """The assigned names of spec lines, `name = value`, with whatever is wrong after them."""
    mark = "//" if language == "cuda" else "#"
    text = "".join(f"{mark} orbit: {line}\n" for line in dedent(body).strip().splitlines())
    result = checked(text + CUDA if language == "cuda" else TRITON.replace("{spec}", text), language)
    lines = [f"{name} = {written(value)}" for name, value in result.values.items()]
    return "\n".join([*lines, *(fault.message for fault in result.faults)])


def faults(source: str, language: str = "cuda", limits: LaunchLimits | None = None) -> str:
    """The spec lines with what is wrong written below the place, as a compiler would."""
    source = dedent(source).lstrip("\n")
    lines = source.splitlines()
    shown: list[str] = []
    results = checked(source, language, limits).faults
    for at, line in enumerate(lines):
        here = [fault for fault in results if fault.span.line == at]
        if here:
            shown.append(line)
        for fault in here:
            wide = fault.span.end_column - fault.span.column if fault.span.end_line == at else 1
            mark = "~" if fault.severity == "warning" else "^"
            shown.append(" " * fault.span.column + mark * max(1, wide) + " " + fault.message)
    return "\n".join(shown)


def check(source: str, expected: str, language: str = "cuda", limits: LaunchLimits | None = None) -> None:
    assert faults(source, language, limits) == dedent(expected).strip("\n")
