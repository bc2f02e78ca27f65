"""Python's other kernel languages: whose a launch is by the mangled name, and where a compiler's words put an error.

The names and the words are those that the packages make; the packages are not here.
"""

from __future__ import annotations

import linecache

import pytest

from orbit_remote.common import python_errors, symbols
from orbit_remote.common.requests import OtherKernel

_NUMBA = "B92cw51cXTLSUwv1sDUaKthqaNgoKmjgOR3W3CwAkMXLaJtQYkOIgxJU0gCqOkEJoHkbttqdVhoqlspQGNFHSgJ5BnXagIAE5ArrayIfLi1E1A7mutable7alignedE"


@pytest.mark.parametrize(
    ("language", "qualified", "symbol"),
    [
        ("numba", "saxpy", f"_ZN8__main__5saxpyB2v1{_NUMBA}"),
        ("numba", "outer.inner", f"_ZN8__main__5outer12_3clocals_3e5innerB2v2{_NUMBA}"),
        ("numba", "saxpy", f"_ZN2k15saxpyB2v1{_NUMBA}"),
        ("warp", "saxpy", "saxpy_4a1f9f21_cuda_kernel_forward"),
        ("warp", "saxpy", "saxpy_4a1f9f21_cuda_kernel_backward"),
        ("warp", "maker.fill", "maker__locals__fill_02d93c2e_cuda_kernel_forward"),
        ("cute", "saxpy", "kernel_cutlass_saxpy_tensorptrf32gmemo1281__0"),
        ("cute", "saxpy", "my_saxpy_kernel_cutlass_saxpy_tensorptrf32gmemo1281__0"),
        ("cutile", "saxpy", "saxpy_Kt1_A1f32_1t1_A1f32_1t1_I1024"),
        ("helion", "add", "_helion_add"),
        ("tilelang", "adder.main", "main_kernel"),
        ("tilelang", "adder.main", "main_kernel_1"),
        ("cupy", "copy", "copy"),
        ("embedded", "saxpy", "saxpy"),
        ("embedded", "scale", "_ZN4mine5scaleIfEEvPT_i"),
    ],
)
def test_a_launch_belongs_to_the_kernel_that_its_name_was_made_of(
    language: str, qualified: str, symbol: str
) -> None:
    name = qualified.rpartition(".")[2]
    kernels = [
        OtherKernel(language, f"{name[:-1]}", f"{name[:-1]}", 1),
        OtherKernel(language, name, qualified, 2),
        OtherKernel(language, f"{name}_more", f"{name}_more", 3),
    ]
    assert symbols.find(symbol, kernels) == kernels[1]
    assert symbols.find(symbol, [kernels[0], kernels[2]]) is None


def test_of_two_names_that_fit_the_longer_one_counts() -> None:
    short, long = OtherKernel("cute", "k", "k", 1), OtherKernel("cute", "k_tail", "k_tail", 2)
    assert symbols.find("kernel_cutlass_k_tail_f32_0", [short, long]) == long
    assert symbols.find("kernel_cutlass_k_f32_0", [short, long]) == short


def test_of_kernels_with_one_name_the_name_around_decides_or_nothing() -> None:
    inner, outer = OtherKernel("numba", "fill", "make.fill", 1), OtherKernel("numba", "fill", "fill", 2)
    assert symbols.find(f"_ZN1k4make12_3clocals_3e4fillB2v2{_NUMBA}", [inner, outer]) == inner
    assert symbols.find(f"_ZN1k4fillB2v2{_NUMBA}", [inner, outer]) == outer
    first, second = (OtherKernel("cute", "kernel", f"{name}.kernel", 1) for name in ("Gemm", "Sum"))
    assert symbols.find("kernel_cutlass_kernel_k_pySum_object_at__tensor_0", [first, second]) == second
    same = [OtherKernel("tilelang", "main", f"{name}.main", 1) for name in ("doubled", "copied")]
    assert symbols.find("main_kernel", same) is None


def test_kernels_of_libraries_belong_to_nobody() -> None:
    symbol = (
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"
    )
    kernels = [OtherKernel(language, "kernel", "kernel", 1) for language in symbols.LANGUAGES]
    assert symbols.find(symbol, kernels) is None


PATH = "/a/k.py"
TEXT = """\
from numba import cuda
CODE = r'''
__global__ void twice(float* x) {
    x[threadIdx.x] *= 2;
}
__global__ void wrong(float* x) {
    x[threadIdx.x] = nothing;
}
'''
def wrong(x):
    i = cuda.grid(1)
    x[i] = x.nothing
"""
NUMBA = (
    "Failed in cuda mode pipeline (step: nopython frontend)\n\x1b[1m\x1b[1mUnknown attribute 'nothing' of type "
    'array(float32, 1d, A)\n\x1b[1m\nFile "../a/k.py", line 12:\x1b[0m\n\x1b[1mdef wrong(x):\n    <source elided>\n'
    "\x1b[1m    x[i] = x.nothing\n\x1b[0m\x1b[1mDuring: typing of get attribute at /a/k.py (12)\x1b[0m"
)
WARP = 'Error while parsing function "wrong" at /a/k.py:12:\n    x[i] = wp.nothing(x[i])\n;Could not find function wp.nothing'
NVRTC = '/tmp/tmp1w/fe45.cubin.cu(7): error: identifier "nothing" is undefined\n\n1 error detected in the compilation of "/tmp/tmp1w/fe45.cubin.cu".\n'
EXTENSION = (
    "Error building extension 'k': [1/3] nvcc -c CACHE/cuda.cu -o cuda.o \nFAILED: cuda.o\n"
    'CACHE/cuda.cu(8): error: identifier "nothing" is undefined\n\n1 error detected.\nninja: build stopped.\n'
)


@pytest.mark.parametrize(
    ("module", "name", "words", "line", "message"),
    [
        ("numba.cuda.core.errors", "TypingError", NUMBA, 12, "Unknown attribute 'nothing' of type array(float32, 1d, A)"),
        ("warp._src.codegen", "WarpCodegenAttributeError", WARP, 12, "Could not find function wp.nothing"),
        ("cupy.cuda.compiler", "CompileException", NVRTC, 7, 'identifier "nothing" is undefined'),
        ("builtins", "RuntimeError", EXTENSION, 7, 'identifier "nothing" is undefined'),
    ],
)  # fmt: skip
def test_a_compiler_s_error_is_at_the_line_that_it_names(
    tmp_path, monkeypatch, module: str, name: str, words: str, line: int, message: str
) -> None:
    source = "#include <torch/types.h>\n" + TEXT.partition("r'''")[2].partition("'''")[0]
    (tmp_path / "cuda.cu").write_text("\n" + source)
    monkeypatch.setitem(linecache.cache, PATH, (len(TEXT), None, TEXT.splitlines(keepends=True), PATH))
    error = RuntimeError if module == "builtins" else type(name, (Exception,), {"__module__": module})
    raised = error(words.replace("CACHE", str(tmp_path)))
    if name == "CompileException":
        raised.source = source
    explained = python_errors.explain(raised, PATH)
    [problem] = explained.problems
    assert (explained.failure.category, problem.place and problem.place.line) == ("compile error", line)
    assert message in problem.message
    assert "\x1b" not in problem.message


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        ("cupy_backends.cuda.api.runtime", "CUDARuntimeError", "cudaErrorIllegalAddress: an illegal memory access was encountered"),
        ("numba.cuda.cudadrv.driver", "CudaAPIError", "[700] Call to cuMemcpyDtoH results in CUDA_ERROR_ILLEGAL_ADDRESS"),
    ],
)  # fmt: skip
def test_what_cuda_reports_through_a_language_is_no_error_of_its_compiler(
    module: str, name: str, words: str
) -> None:
    error = type(name, (Exception,), {"__module__": module})
    explained = python_errors.explain(error(words), PATH)
    assert (explained.failure.category, explained.code) == ("runtime error", "CUDA_ERROR_ILLEGAL_ADDRESS")
