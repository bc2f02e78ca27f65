"""The reader of compiler output on text alone: other versions, other hosts, other linkers, and nonsense."""

from __future__ import annotations

import random

import pytest

from orbit_remote.toolchain import diagnostics, ptx, ptxas
from orbit_remote.toolchain.diagnostic_context import DiagnosticContext
from tests.remote.nvcc_check import lines_of

SOURCE = """\
#include "gone.h"
void foo(int);
__global__ void k(float* p) { p[0] = bar; }
int main() {
  foo(3);
  return k2();
}
"""

PTX = """\
.visible .entry _Z1kPf(
)
.maxntid 128, 2, 1
{
	.loc	1 3 0
	ret;
}
	.file	1 "k.cu"
"""


def read(text: str, *, failed: bool = False) -> list[str]:
    context = diagnostics.DiagnosticContext(
        "k.cu", {"k.cu": SOURCE}.get, scratch="/tmp/work", ptx=(ptx.read(PTX),)
    )  # fmt: skip
    return lines_of(diagnostics.parse(text, context, failed=failed))


CASES = {
    "CUDA 11 draws no caret": (
        'k.cu(3): error: identifier "bar" is undefined\n\n1 error detected in the compilation of "k.cu".\n',
        ['k.cu:3:38-41 error nvcc identifier "bar" is undefined'],
    ),
    "errors with numbers": (
        'k.cu(3): error #20: identifier "bar" is undefined\n',
        ['k.cu:3:38-41 error nvcc #20 identifier "bar" is undefined'],
    ),
    "a warning turned into an error": (
        'k.cu(3): error #177-D: variable "p" was declared but never referenced\n',
        ['k.cu:3 error nvcc #177-D variable "p" was declared but never referenced'],
    ),
    "a catastrophe": (
        ('k.cu(1): catastrophic error: cannot open source file "gone.h"\n  #include "gone.h"\n                   ^\n\n'
        '1 catastrophic error detected in the compilation of "k.cu".\nCompilation terminated.\n'),
        ['k.cu:1:10-18 error nvcc cannot open source file "gone.h"'],
    ),
    "the error limit": (
        ('k.cu(3): error: identifier "bar" is undefined\n\nError limit reached.\n'
        '100 errors detected in the compilation of "k.cu".\nCompilation terminated.\n'),
        ['k.cu:3:38-41 error nvcc identifier "bar" is undefined'],
    ),
    "host and device pass say the same": (
        'k.cu(3): warning #177-D: variable "q" was declared but never referenced\n\n' * 2,
        ['k.cu:3 warning nvcc #177-D variable "q" was declared but never referenced'],
    ),
    "candidates by name": (
        ('k.cu(6): error: more than one instance of overloaded function "k2" matches the argument list:\n'
        '            function "k2(int)" (declared at line 2)\n'
        '            function "k2(float)" (declared at line 7 of "h.cuh")\n'
        "            argument types are: ()\n"
        "    return k2();\n"
        "           ^\n"),
        [
            'k.cu:6:10-12 error nvcc more than one instance of overloaded function "k2" matches the argument list:',
            "    argument types are: ()",
            "  k.cu:2 declared here",
            "  h.cuh:7 declared here",
        ],
    ),
    "contexts left out": (
        ("h.cuh(1): error: bad\n          detected during:\n"
        '            instantiation of "void f<N>() [with N=0]" at line 1\n'
        "            [ 196 instantiation contexts not shown ]\n"
        '            instantiation of "void f<N>() [with N=198]" at line 4 of k.cu\n'),
        [
            "h.cuh:1 error nvcc bad",
            '  h.cuh:1 detected during instantiation of "void f<N>() [with N=0]"',
            "  [ 196 instantiation contexts not shown ]",
            '  k.cu:4 detected during instantiation of "void f<N>() [with N=198]"',
        ],
    ),
    "MSVC": (
        "k.cu\r\nk.cu(1): fatal error C1083: Cannot open include file: 'gone.h': No such file or directory\r\n",
        [
            "k.cu:1 error host compiler C1083 Cannot open include file: 'gone.h': No such file or directory",
        ],
    ),
    "Windows paths": (
        'C:\\work\\k.cu(3): error: identifier "bar" is undefined\n',
        ['C:\\work\\k.cu:3 error nvcc identifier "bar" is undefined'],
    ),
    "GCC on generated code": (
        ("k.cu: In function ‘int main()’:\n"
        "k.cu:6:73: error: ‘k2’ was not declared in this scope; did you mean ‘k’?\n"
        "    6 |   return k2();\n      |          ^~\n      |          k\n"
        "k.cu:2:6: note: ‘foo’ declared here\n"),
        [
            "k.cu:6:10-12 error host compiler ‘k2’ was not declared in this scope; did you mean ‘k’?",
            "  k.cu:2:6-9 ‘foo’ declared here",
        ],
    ),
    "GCC's options": (
        "k.cu:5:10: warning: unused variable 'foo' [-Wunused-variable]\n",
        ["k.cu:5:3-6 warning host compiler -Wunused-variable unused variable 'foo'"],
    ),
    "an intermediate file is the main one": (
        "/tmp/work/k.cudafe1.cpp:12:3: error: stray\nptxas /tmp/work/k.ptx, line 6; error   : bad\n",
        ["k.cu:12 error host compiler stray", "k.cu:3 error ptxas bad"],
    ),
    "an intermediate file inside a message": (
        ("nvlink error   : Multiple definition of '_Z3foov' in '/tmp/work/a.o', first defined in '/tmp/work/b.o'\n"
        "nvcc fatal   : Could not open output file '/tmp/work/k.ii'\n"),
        [
            "error nvlink Multiple definition of 'foo'",
            "error nvcc Could not open output file 'k.cu'",
        ],
    ),
    "a header that is compiled by itself": (
        ("/home/me/h.cuh:1:9: warning: #pragma once in main file\n    1 | #pragma once\n      |         ^~~~\n"
        "/home/me/h.cuh:2:9: warning: #pragma twice is not known\n"
        '/home/me/h.cuh(3): warning #177-D: variable "TILE" was declared but never referenced\n\n'),
        ["/home/me/h.cuh:2 warning host compiler #pragma twice is not known"],
    ),
    "a source that is not to be included": (
        "/home/me/k.cu:1:9: warning: #pragma once in main file\n",
        ["/home/me/k.cu:1 warning host compiler #pragma once in main file"],
    ),
    "ptxas advice": (
        ("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to"
        " insufficient register resources for the wgmma pipeline in function '_Z1kPf'\n"),
        [
            ("k.cu:3:17-18 information ptxas C7510 Potential Performance Loss: wgmma.mma_async instructions are"
            " serialized due to insufficient register resources for the wgmma pipeline in function 'k'")
        ],
    ),
    "lld": (
        ("ld.lld: error: undefined symbol: foo(int)\n>>> referenced by k.cu\n>>>               k.o:(main)\n"
        "clang: error: linker command failed with exit code 1 (use -v to see invocation)\n"),
        [
            "k.cu:2:6-9 error ld undefined symbol: foo(int)",
        ],
    ),
    "the linker with debug information": (
        ("/usr/bin/ld: /tmp/work/k.o: in function `main':\n/home/me/k.cu:5: undefined reference to `foo(int)'\n"
        "collect2: error: ld returned 1 exit status\n"),
        ["/home/me/k.cu:5 error ld undefined reference to `foo(int)'"],
    ),
    "nvcc's own": (
        ("nvcc warning : Support for offline compilation for architectures prior to '<compute/sm/lto>_75' will be"
        " removed in a future release (Use -Wno-deprecated-gpu-targets to suppress warning).\n"
        "nvcc fatal   : Unknown option '--bogus'\n"),
        [
            ("warning nvcc Support for offline compilation for architectures prior to '<compute/sm/lto>_75' will be"
            " removed in a future release (Use -Wno-deprecated-gpu-targets to suppress warning)."),
            "error nvcc Unknown option '--bogus'",
        ],
    ),
    "an error in a form that is not known": (
        'Internal Compiler Error (codegen): "something happened"\n',
        ['error nvcc Internal Compiler Error (codegen): "something happened"'],
    ),
    "nothing wrong": (
        ("ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function '_Z1kPf' for 'sm_90a'\n"
        "ptxas info    : Function properties for _Z1kPf\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 8 registers, used 0 barriers\nptxas info    : Compile time = 1.5 ms\n"
        'Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"\n'),
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_reads(name):
    text, expected = CASES[name]
    assert read(text) == expected


def test_a_failure_without_an_error_is_one():
    assert read("something odd\n", failed=True) == ["error nvcc something odd"]
    assert read("", failed=True) == ["error nvcc the compiler failed without a message"]


def test_never_raises_and_never_loses_an_error():
    """Lines of every kind, cut, doubled and shuffled."""
    lines = [line for text, _ in CASES.values() for line in text.splitlines()]
    chance = random.Random(7)
    for _ in range(400):
        picked = chance.choices(lines, k=12)
        picked[3] = picked[3][: chance.randrange(len(picked[3]) + 1)]
        read("\n".join([*picked, "   ", "\t^", "  ^"]))
        marked = [*picked, "", 'k.cu(3): error: identifier "bar" is undefined']
        assert 'k.cu:3:38-41 error nvcc identifier "bar" is undefined' in read("\n".join(marked))


# -- resources ---------------------------------------------------------------------------------------


def test_resources_of_several_kernels_and_architectures():
    text = """\
ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90a'
ptxas info    : Function properties for _Z1kPf
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Function properties for _Z6helperi
    32 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, used 2 barriers, 4096 bytes smem, 360 bytes cmem[0]
ptxas info    : Compiling entry function '_Z1kPf' for 'sm_80'
ptxas info    : Function properties for _Z1kPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 360 bytes cmem[0]
"""
    first, second = ptxas.resources(text, [ptx.read(PTX)])
    assert (first.name, first.architecture, first.registers, first.barriers) == ("k", "sm_90a", 255, 2)
    assert (first.static_shared, first.stack, first.spill_stores, first.spill_loads) == (4096, 16, 4, 8)
    assert (first.max_threads, first.threads) == (256, None)
    assert first.place is not None
    assert (first.place.file, first.place.line) == ("k.cu", 3)
    # no shared memory is a fact, the barriers of CUDA 11 are not known
    assert (second.architecture, second.static_shared, second.barriers) == ("sm_80", 0, None)


def test_a_kernel_that_ptxas_did_not_finish_has_unknown_numbers():
    (only,) = ptxas.resources("ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90a'\n")
    assert (only.registers, only.static_shared, only.stack, only.place) == (None, None, None, None)


@pytest.mark.parametrize(
    ("beyond", "left_out"), [(0, []), (1, ["1 further messages of the compilers are left out"])]
)
def test_of_very_many_messages_errors_are_kept_first(beyond, left_out):
    most = diagnostics.MOST_PROBLEMS
    lines = [f"/w/k.cu:{at}:1: warning: #warning x [-Wcpp]" for at in range(1, most + beyond)]
    problems = diagnostics.parse("\n".join([*lines, "/w/k.cu:9:1: error: no"]), DiagnosticContext("/w/k.cu"))
    assert [problem.message for problem in problems[most:]] == left_out
    assert [problem.severity for problem in problems[:most]] == ["warning"] * (most - 1) + ["error"]


def test_figures_of_what_ptxas_refuses_are_left_out() -> None:
    def figures(symbol: str, architecture: str) -> str:
        return (
            f"ptxas info    : Compiling entry function '{symbol}' for '{architecture}'\n"
            "ptxas info    : Used 8 registers, used 0 barriers\n"
        )

    refused = "ptxas error   : Entry function '_Z1bv' uses too much shared data (0x3a980 bytes, 0xc000 max)\n"
    fatal = "ptxas fatal   : Unresolved extern function '_Z1fv'\n"
    text = figures("_Z1av", "sm_90") + refused + figures("_Z1av", "sm_80") + figures("_Z1bv", "sm_80")
    text += fatal + figures("_Z1av", "sm_75")
    assert [(each.name, each.architecture) for each in ptxas.resources(text)] == [
        ("a", "sm_90"),
        ("a", "sm_75"),
    ]
