"""Which symbols a launch spec's kernels have and what their parameters are, asked of the real nvcc."""

from __future__ import annotations

import subprocess
from pathlib import Path
from textwrap import dedent

import pytest

from orbit_lsp.kernels.cuda import cuda_kernels
from orbit_remote.common import symbols
from orbit_remote.common.messages import Failure
from orbit_remote.common.requests import KernelDefinition
from orbit_remote.spec import launch_spec
from orbit_remote.toolchain import nvcc, spec_instances
from orbit_remote.toolchain.elf import Cubin
from tests.first_cases import first_of
from tests.remote.nvcc_check import built
from tests.spec.spec_check import target


def with_instances(source: str, path: str) -> tuple[str, list[str]]:
    """The text that is compiled for the last kernel's spec, and the instances."""
    kernel = cuda_kernels.scan(source).kernels[-1]
    checked = launch_spec.check(source, target(kernel))
    assert not [fault for fault in checked.faults if fault.severity == "error"], checked.faults
    names = spec_instances.instances(checked)
    name = kernel.name_span
    where = KernelDefinition(
        kernel.name, kernel.qualified, kernel.whole.line, kernel.line, name.line, name.end_column
    )
    return spec_instances.source(source, path, checked.spec.launches[0].span.line + 1, names, where), names


def compiled(tmp_path: Path, source: str) -> tuple[bytes, str, list[str]]:
    """The cubin of the last kernel's spec, what ptxas said, and the instances."""
    text, names = with_instances(dedent(source).lstrip("\n"), "/src/k.cu")
    file = tmp_path / "k.cu"
    file.write_text(text)
    result = nvcc.find(None)
    assert not isinstance(result, Failure), result.message
    command = [
        result.path,
        "-arch=sm_90a",
        "-cubin",
        "-Xptxas",
        "-v",
        "-o",
        str(tmp_path / "k.cubin"),
        str(file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (tmp_path / "k.cubin").read_bytes(), done.stderr, names


def check(tmp_path: Path, source: str, expected: str) -> None:
    cubin, _, names = compiled(tmp_path, source)
    kernels = spec_instances.read(cubin, names)
    shown = [
        f"{name}: {symbols.demangle(kernel.symbol)} takes {kernel.parameters}"
        for name, kernel in kernels.items()
    ]
    assert "\n".join(shown).strip() == dedent(expected).strip()


def test_a_plain_kernel(tmp_path: Path) -> None:
    check(
        tmp_path,
        """
        // orbit: n = 256; x = randn(n); y = randn(n)
        // orbit: launch saxpy<<<1, 256>>>(n, 2.0f, x, y)
        __global__ void saxpy(int n, float a, const float* x, float* y) {}
        """,
        "saxpy: saxpy(int, float, float const*, float*) takes int, float, float const*, float*",
    )


def test_types_are_the_compilers(tmp_path: Path) -> None:
    """A typedef of a header, a size that depends on the platform, a pointer that is itself const."""
    check(
        tmp_path,
        """
        #include <cuda_fp16.h>
        typedef __half element;
        // orbit: n = 256; x = randn(n, dtype=half)
        // orbit: launch k<<<1, 256>>>(x, n)
        __global__ void k(element* const __restrict__ x, size_t n) {}
        """,
        "k: k(__half*, unsigned long) takes __half*, unsigned long",
    )


def test_templates_by_value_and_by_type(tmp_path: Path) -> None:
    check(
        tmp_path,
        """
        // orbit: T = sweep(16, 32)
        // orbit: x = randn(1024)
        // orbit: launch tiled<T, float><<<1, 256>>>(x)
        template <int T, typename E> __global__ void tiled(E* x) {}
        """,
        """
        tiled<16, float>: void tiled<16, float>(float*) takes float*
        tiled<32, float>: void tiled<32, float>(float*) takes float*
        """,
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    first_of([
        ("namespace ns {", "}", "k: ns::k(float*) takes float*"),
        ("namespace {", "}", "k: (anonymous namespace)::k(float*) takes float*"),
        ('extern "C" {', "}", "k: k takes float*"),
        ("static", "", "k: k(float*) takes float*"),
        ("#define N 512\n#define F 1\n#define f 2\n", "", "k: k(float*) takes float*"),
    ], 2),
)  # fmt: skip
def test_where_a_kernel_may_stand(tmp_path: Path, before: str, after: str, expected: str) -> None:
    source = (
        f"{before}\n// orbit: x = randn(256)\n// orbit: launch k<<<1, 256>>>(x)\n"
        f"__global__ void k(float* x) {{ x[0] = 1; }}\n{after}\n"
    )
    if before == "static":
        source = source.replace("static\n", "").replace("__global__", "static __global__")
    check(tmp_path, source, expected)


@pytest.mark.parametrize(
    ("kernel", "launch", "expected"),
    first_of([
        ("template <int B = 128> __global__ void k(float* x) { x[0] = B; }", "(x)", "k<128>: void k<128>(float*) takes float*"),
        ("template <typename T = float> __global__ void k(float* x) { x[0] = T(1); }", "(x)", "k<float>: void k<float>(float*) takes float*"),
        ("template <typename... Ts> __global__ void k(Ts*... x) {}", "(x, i)", "k<float, int>: void k<float, int>(float*, int*) takes float*, int*"),
        ("template <typename... Ts> __global__ void k(Ts*... x) {}", "()", "k<>: void k<>() takes"),
        ("template <int B = 64, typename T = float> __global__ void k(T* x) { x[0] = B; }", "(i)", "k<64, int>: void k<64, int>(int*) takes int*"),
    ], 2),
)  # fmt: skip
def test_template_arguments_that_defaults_and_packs_give(
    tmp_path: Path, kernel: str, launch: str, expected: str
) -> None:
    source = f"// orbit: x = zeros(64); i = zeros(64, dtype=int32)\n// orbit: launch k<<<1, 32>>>{launch}\n{kernel}\n"
    check(tmp_path, source, expected)


async def test_an_instance_that_cannot_be_is_told_at_the_launch(tmp_path: Path) -> None:
    """And not at our lines behind the end of the file."""
    text, _ = with_instances(
        "// orbit: x = randn(256)\n"
        "// orbit: launch k<float><<<1, 256>>>(x)\n"
        "template <int T> __global__ void k(float* x) { x[threadIdx.x] = T; }\n",
        str(tmp_path / "k.cu"),
    )
    result = await built(tmp_path, text)
    assert {problem.place.line for problem in result.built.problems if problem.place} == {2}
    assert 'cannot determine which instance of function template "k"' in result.built.problems[0].message


def test_the_other_kernels_keep_their_registers(tmp_path: Path) -> None:
    source = """
        __global__ void other(const float* x, float* y) { y[threadIdx.x * 100000ll] = x[threadIdx.x] * 2; }
        // orbit: x = randn(256)
        // orbit: launch k<<<1, 256>>>(x)
        __global__ void k(float* x) { x[threadIdx.x] = 1; }
        """
    _, message, _ = compiled(tmp_path, source)
    plain = tmp_path / "plain.cu"
    plain.write_text(dedent(source))
    result = nvcc.find(None)
    assert not isinstance(result, Failure)
    command = [result.path, "-arch=sm_90a", "-cubin", "-Xptxas", "-v", "-o", "/dev/null", str(plain)]
    alone = subprocess.run(command, capture_output=True, text=True, check=True).stderr

    def registers(text: str) -> dict[str, str]:
        blocks = text.split("Compiling entry function '")[1:]
        return {block.split("'")[0]: block.split("Used ")[1].split(",")[0] for block in blocks}

    both = {name: used for name, used in registers(message).items() if "orbit_spec" not in name}
    assert both == registers(alone)


def test_variables_are_found_with_their_sizes(tmp_path: Path) -> None:
    source = """
        __constant__ float weights[64];
        namespace ns { __device__ int counter; }
        // orbit: x = randn(256)
        // orbit: launch k<<<1, 256>>>(x)
        __global__ void k(float* x) { x[0] = weights[threadIdx.x] + ns::counter; }
        """
    cubin, _, _ = compiled(tmp_path, source)
    result = {symbols.demangle(variable.symbol): variable.size for variable in Cubin(cubin).variables()}
    assert result == {"weights": 256, "ns::counter": 4}


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"not a cubin at all, but long enough to be one" * 4])
def test_what_is_no_cubin_is_said_to_be_none(content: bytes) -> None:
    with pytest.raises(ValueError, match="this is not a cubin"):
        Cubin(content)
