"""Static checks of `orbit-lsp watch`: a text in, the checks that warn and where out. The look-alikes must stay silent."""

from __future__ import annotations

import pytest

from orbit_lsp.kernels.cuda import cuda_kernels, kernel_warnings

INDEX = "blockIdx.x * blockDim.x + threadIdx.x"
LAUNCH = "void run(float* x, int n) {{ k<<<{grid}, 256>>>(x, n); cudaGetLastError(); }}\n"
ROUNDED = LAUNCH.format(grid="(n + 255) / 256")


def check(text: str) -> list[tuple[str, int]]:
    """(check, line from 1)."""
    return [
        (known.check, known.line + 1) for known in kernel_warnings.warnings(text, cuda_kernels.scan(text))
    ]


def kernel(body: str, parameters: str = "float* x, int n") -> str:
    return f"__global__ void k({parameters}) {{\n{body}\n}}\n"


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        (kernel(f"x[{INDEX}] = 1;"), True),
        (kernel(f"int i = {INDEX};\nx[i] += 1;") + ROUNDED, True),
        (kernel(f"int i = {INDEX};\nx[i] += n;") + LAUNCH.format(grid="ceil(n / 256.0)"), True),
        # compared, in one way or another
        (kernel(f"int i = {INDEX};\nif (i < n) x[i] = 1;") + ROUNDED, False),
        (kernel(f"int i = {INDEX};\nif (i >= n) return;\nx[i] = 1;") + ROUNDED, False),
        (kernel(f"for (int i = {INDEX}; i < n; i += 64) x[i] = 1;") + ROUNDED, False),
        (kernel(f"int i = min({INDEX}, n - 1);\nx[i] = 1;") + ROUNDED, False),
        (kernel(f"int i = {INDEX};\nx[i < n ? i : 0] = 1;") + ROUNDED, False),
        (kernel(f"x[({INDEX}) % n] = 1;") + ROUNDED, False),
        (kernel(f"int i = {INDEX};\nGUARD(i, n);\nx[i] = 1;") + ROUNDED, False),
        # a grid that may fit exactly
        (kernel(f"x[{INDEX}] = n;"), False),
        (kernel(f"x[{INDEX}] = 1;", "float* x"), False),
        (kernel(f"x[{INDEX}] = n;") + LAUNCH.format(grid="n / 256"), False),
        # a size that was rounded up itself
        (
            kernel(f"x[{INDEX}] = n;")
            + "void run(float* x, int n) { int m = (n + 255) / 256 * 256; int g = (m + 255) / 256; k<<<g, 256>>>(x, m); cudaGetLastError(); }\n",
            False,
        ),
        # a row of its own for each block
        (kernel("x[blockIdx.x] = n;") + ROUNDED, False),
        (kernel("x[threadIdx.x] = n;") + ROUNDED, False),
    ],
)  # fmt: skip
def test_a_write_at_an_index_that_nothing_compares(text: str, warned: bool) -> None:
    assert [name for name, _ in check(text)] == ["bounds"] * warned


SHARED = "__shared__ float s[256];\ns[threadIdx.x] = x[threadIdx.x];\n"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (SHARED + "x[0] = s[0];", 4),
        (SHARED + "if (threadIdx.x == 0)\nfor (int i = 0; i < n; i++) x[0] += s[i];", 5),
        (SHARED + "__syncthreads();\nx[0] = s[0];", None),
        (SHARED + "__syncwarp();\nx[0] = s[0];", None),
        (SHARED + "cg::this_thread_block().sync();\nx[0] = s[0];", None),
        (SHARED + 'asm volatile("bar.sync 0;");\nblock_barrier();\nx[0] = s[0];', None),
        (SHARED + "x[0] = block_reduce(s[0]);", None),
        (SHARED + "x[threadIdx.x] = s[threadIdx.x];", None),  # each thread its own
        (SHARED.replace("s[threadIdx.x] =", "s[0] =") + "x[0] = s[0];", None),  # one thread may do all of it
        (SHARED.replace("__shared__", "volatile __shared__") + "x[0] = s[0];", None),  # code of one warp
        ("extern __shared__ float s[];\nfill(s);\nx[0] = s[0];", None),
    ],
)  # fmt: skip
def test_shared_memory_without_a_barrier(body: str, line: int | None) -> None:
    assert check(kernel(body)) == ([("barrier", line)] if line else [])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("int main() {\nk<<<1, 1>>>();\nreturn 0;\n}", 2),
        ("int main() {\ncudaGetLastError();\nk<<<1, 1>>>();\n}", 3),
        ("void run() {\nk<<<1, 1>>>();\n}\nint main() {\nrun();\n}", 2),
        ("int main() {\nk<<<1, 1>>>();\ncudaDeviceSynchronize();\n}", None),
        ("int main() {\nk<<<1, 1>>>();\nCHECK(cudaGetLastError());\n}", None),
        ("int main() {\nk<<<1, 1>>>();\nC10_CUDA_KERNEL_LAUNCH_CHECK();\n}", None),
        ("int main() {\nfor (int i = 0; i < 9; i++) {\nCHECK_LAST();\nk<<<1, 1>>>();\n}\n}", None),
        ("void run() {\nk<<<1, 1>>>();\n}", None),  # its caller, in another file, may look
        ("void run() {\nk<<<1, 1>>>();\n}\nint main() {\nrun();\nCHECK(cudaPeekAtLastError());\n}", None),
        ("#define LAUNCHED check(cudaGetLastError())\nint main() {\nk<<<1, 1>>>();\nLAUNCHED;\n}", None),
    ],
)
def test_a_launch_that_nothing_looks_at(text: str, line: int | None) -> None:
    assert check(text) == ([("launch", line)] if line else [])


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("float a = x[0];\nx[0] = a * 0.1;", 3),
        ("x[0] = x[1] * 2.0 + x[2];", 2),
        ("float a = x[0];\nx[0] = a * 2.0;", None),  # a product that is the same in float
        ("float a = x[0];\nx[0] = a * 0.1f;", None),
        ("double a = x[0];\nx[0] = a * 0.1;", None),
        ("x[0] = n * 0.1;", None),  # an integer
        ("const float a = 3;\nx[0] = a * 0.1;", None),  # the compiler computes it
        ("if (x[0] < 0.5) x[0] = 0;", None),
    ],
)
def test_a_double_literal_in_float_arithmetic(body: str, line: int | None) -> None:
    assert check(kernel(body)) == ([("types", line)] if line else [])


def test_a_branch_that_is_never_compiled_and_a_comment_say_nothing() -> None:
    text = "int main() {\n#if 0\nk<<<1, 1>>>();\n#endif\n// k<<<1, 1>>>();\nreturn 0;\n}"
    assert check(text) == []


@pytest.mark.parametrize(
    "text", ["__global__ void k(", "__global__ void k() {{{{", "int main() { k<<<", "}" * 100, "__shared__ float s[", "\0", ""]
)  # fmt: skip
def test_a_text_that_is_being_typed_is_no_fault(text: str) -> None:
    assert check(text) == []
