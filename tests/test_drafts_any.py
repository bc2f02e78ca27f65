"""Drafts of whatever kernel: each is without fault, and what it launches compiles."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbit_lsp.kernels.cuda import cuda_kernels
from orbit_lsp.kernels.python import triton_kernels
from orbit_lsp.specs import spec_blocks
from orbit_lsp.views.spec import spec_drafts
from orbit_remote.spec import launch_spec
from orbit_remote.spec.comment_scanner import lines_of
from orbit_remote.toolchain import spec_instances
from tests.drafting import FROM_LAUNCH, FROM_SIGNATURE, WRAPPERS, written
from tests.kernels import test_cuda
from tests.random_cases import random_cases
from tests.spec.spec_check import faults

ROOT = Path(__file__).parent.parent


def drafted(text: str, language: str) -> tuple[int, int]:
    """How many kernels a text has, and for how many there is a draft. Each is checked: no error or warning stands
    anywhere but where something is to be filled in.
    """
    text = text.replace("orbit:", "before:")  # as if none had a spec
    scan = cuda_kernels.scan(text) if language == "cuda" else triton_kernels.scan(text)
    lines = lines_of(text)
    result = 0
    kernels = [
        kernel for kernel in scan.kernels if kernel.launchable and kernel.dsl in ("cuda", "triton", "gluon")
    ]
    for kernel in kernels:
        drafts = spec_drafts.written(lines, kernel)
        result += bool(drafts)
        for _, draft in drafts:
            start, added = kernel.whole.line, draft.splitlines()
            moved = launch_spec.target_of(spec_blocks.definition(kernel), kernel.language, len(added))
            checked = launch_spec.check_lines([*lines[:start], *added, *lines[start:]], moved)
            assert all("fill in" in added[fault.span.line - start] for fault in checked.faults)
    return len(kernels), result


_TORCH = Path(sysconfig.get_path("purelib")) / "torch"
FILES = [
    *sorted((ROOT / "examples").glob("*.cu")), *sorted((ROOT / "examples").glob("*.py")),
    *sorted((ROOT / "tests/gpu/programs").glob("*.cu")),
    *sorted((_TORCH / "include/ATen/native/cuda").glob("*.cuh")),
    _TORCH / "testing/_internal/triton_utils.py", _TORCH / "sparse/_triton_ops.py",
]  # fmt: skip


@pytest.mark.slow
def test_real_kernels_get_drafts_without_fault() -> None:
    kernels = text = 0
    for path in FILES:
        of, had = drafted(path.read_text(), "triton" if path.suffix == ".py" else "cuda")
        kernels += of
        text += had
    assert kernels > 80
    assert text > 0.6 * kernels  # the others take structures and functions


@pytest.mark.slow
def test_what_is_drafted_compiles(tmp_path: Path) -> None:
    """The instances that drafts launch exist: templates of every kind, one nvcc call."""
    text = (ROOT / "examples/transpose.cu").read_text().replace("orbit:", "before:") + dedent("""
        template <typename T> __global__ void fill(T* p, T v, size_t n) { p[0] = v; }
        template <typename T, int BLOCK, bool FAST> __global__ void all(const T* x, T* y, int n) { y[0] = x[BLOCK]; }
        template <class T = double> __global__ void deduced(const T* x, long n) {}
        void host(float* d, int n) { fill<<<n / 256, 256>>>(d, 1.0f, static_cast<size_t>(n)); }
    """)
    lines = lines_of(text)
    names: dict[str, None] = {}
    for kernel in cuda_kernels.scan(text).kernels:
        for _, draft in spec_drafts.written(lines, kernel):
            added = draft.splitlines()
            moved = launch_spec.target_of(spec_blocks.definition(kernel), "cuda", len(added))
            start = kernel.whole.line
            names |= dict.fromkeys(
                spec_instances.instances(
                    launch_spec.check_lines([*lines[:start], *added, *lines[start:]], moved)
                )
            )
    assert "fill<float>" in names
    assert list(names) == ["transpose<16, 8>", "fill<float>", "all<float, 256, true>", "deduced<float>"]
    path = tmp_path / "k.cu"
    path.write_text(text + "".join(f"auto* use{at} = &{name};\n" for at, name in enumerate(names)))  # fmt: skip
    build = subprocess.run(
        ["nvcc", "-arch=sm_90a", "-c", "-o", str(tmp_path / "k.o"), str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert build.returncode == 0, build.stderr


def test_every_form_of_kernel_is_survived() -> None:
    for text in (*test_cuda.SPELLINGS, *test_cuda.NO_KERNELS):
        drafted(text, "cuda")


_TYPES = ["int", "float*", "const half*", "T", "T*", "size_t", "bool", "double2*", "void*", "P", "float&", "int**", "unsigned char", "CUtensorMap", "long long*", "const T* __restrict__"]  # fmt: skip
_NAMES = ["n", "N", "M", "K", "rows", "cols", "stride", "lda", "x", "out", "eps", "seed", "", "batch", "flag", "idx", "launch", "float", "é"]  # fmt: skip
_BODIES = ["", "x[i] = 1;", "threadIdx.y; blockIdx.z;", "extern __shared__ T s[];", "atomicAdd(&out[0], x[0]);", "k<<<n, 1>>>(n, x);", "{{{", '"', "/*"]  # fmt: skip


@random_cases(300)
@given(
    header=st.sampled_from(["", "template <typename T> ", "template <typename T, int TILE, bool B = true> ", "template <int... I> "]),
    parameters=st.lists(st.tuples(st.sampled_from(_TYPES), st.sampled_from(_NAMES)), max_size=6),
    body=st.lists(st.sampled_from(_BODIES), max_size=3),
    host=st.lists(st.sampled_from(["int n = 3;", "k<<<n, n>>>(", "n, x);", "cudaMalloc(&x, ", "n = n + n;", ");", "dim3 n(", "dim3 x(n, x), ", "#define n n\n", "k<", ">>>(", "4"]), max_size=8),
)  # fmt: skip
def test_any_signature(
    header: str, parameters: list[tuple[str, str]], body: list[str], host: list[str]
) -> None:
    inner = ", ".join(f"{kind} {name}" for kind, name in parameters)
    drafted(
        f"void f() {{ {' '.join(host)} }}\n{header}__global__ void k({inner}) {{ {' '.join(body)} }}\n",
        "cuda",
    )


@random_cases(200)
@given(
    parameters=st.lists(st.sampled_from(["x_ptr", "x", "n", "M", "N", "K", "stride_am", "eps", "BLOCK: tl.constexpr", "B: tl.constexpr = 3", "D: tl.constexpr", "*args", "lambda", "_"]), max_size=6, unique=True),
    body=st.lists(st.sampled_from(["tl.store(x_ptr + tl.arange(0, BLOCK), x)", "p = x_ptr + n * M", "tl.load(p)", "tl.program_id(2)", "x.load([0])", "((("]), max_size=3),
    host=st.lists(st.sampled_from(["k[grid](x, n, BLOCK=3)", "grid = lambda m: (n, m['BLOCK'])", "n = n", "x = torch.randn(n).cuda()", "n, x = x.shape", "k[(n,)](*x)", "k[1](n=n, q=2, num_warps=n)", "x = [i for i in n]", "n = (" * 90]), max_size=6),
)  # fmt: skip
def test_any_signature_of_triton(parameters: list[str], body: list[str], host: list[str]) -> None:
    lines = "".join(f"    {line}\n" for line in [*body, "pass"])
    around = "".join(f"    {line}\n" for line in [*host, "pass"])
    drafted(f"import torch, triton\nimport triton.language as tl\n@triton.jit\ndef k({', '.join(parameters)}):\n{lines}\ndef f(x):\n{around}", "triton")  # fmt: skip


def test_a_draft_has_no_warning_either() -> None:
    saxpy = "__global__ void saxpy(int n, float a, const float* x, float* y) { y[0] += a * x[0]; }\n"
    assert faults(written(saxpy, FROM_SIGNATURE, "cuda") + saxpy, "cuda") == ""
    at = WRAPPERS.index("@triton.jit\ndef fill")
    lines = written(WRAPPERS, FROM_LAUNCH, "triton", 2)
    assert lines
    assert faults(WRAPPERS[:at] + lines + WRAPPERS[at:], "triton") == ""
