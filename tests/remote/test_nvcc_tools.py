"""What the host compiler, ptxas, nvlink, the linker and nvcc itself say, with the real ones."""

from __future__ import annotations

import pytest

from tests.remote.nvcc_check import Case, needs_nvcc

pytestmark = needs_nvcc

CASES = [
    Case(
        "a missing include",
        """\
#include <cstdio>
#include "gone.h"
__global__ void k() {}
""",
        """
k.cu:2:10-18 error host compiler gone.h: No such file or directory
""",
    ),
    Case(
        "a missing include in a header",
        """\
#include "one.h"
__global__ void k() {}
""",
        """
two.h:2:11-21 error host compiler gone/é.h: No such file or directory
  one.h:2 in file included from here
  k.cu:1 in file included from here
""",
        files={"one.h": '#pragma once\n#include "two.h"\n', "two.h": "\n\t#include <gone/é.h>\n"},
    ),
    Case(
        "#error and #warning",
        """\
#warning careful
#ifndef X
  #error "X is needed"
#endif
__global__ void k() {}
""",
        """
k.cu:1:2-9 warning host compiler -Wcpp #warning careful
k.cu:3:4-9 error host compiler #error "X is needed"
""",
    ),
    Case(
        "an unterminated condition",
        """\
#ifdef X
__global__ void k() {}
""",
        """
k.cu:1 error host compiler unterminated #ifdef
""",
    ),
    Case(
        "a host-only part",
        """\
__global__ void k() {}
#ifndef __CUDA_ARCH__
int f() { return blah; }
#endif
int main() { return f(); }
""",
        """
k.cu:3:18-22 error nvcc identifier "blah" is undefined
""",
        action="run",
    ),
    Case(
        "what only the host compiler sees",
        """\
__global__ void k() {}
int main() { asm("bogus instruction"); return 0; }
""",
        """
k.cu:2 error host compiler no such instruction: `bogus instruction'
""",
        action="run",
    ),
    Case(
        "too much shared memory",
        """\
template <int N> __global__ void k(float* p) {
  __shared__ float s[N];
  s[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[0] = s[N - threadIdx.x];
}
template __global__ void k<20000>(float*);
""",
        """
k.cu:1:34-35 error ptxas Entry function 'k<20000>' uses too much shared data (0x13880 bytes, 0xc000 max)
""",
        architecture="sm_80",
    ),
    Case(
        "inline assembly",
        """\
__device__ __forceinline__ int bad(int x) {
  int y;
  asm volatile("bogus.u32 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
__global__ void k(int* p) {
  p[0] = bad(p[1]);
  asm volatile("add.u32 %0, %1;" : "=r"(p[2]) : "r"(p[3]));
}
""",
        """
k.cu:3:3-6 error ptxas Not a name of any known instruction: 'bogus'
  k.cu:7 inlined here
k.cu:8:3-6 error ptxas Arguments mismatch for instruction 'add'
""",
    ),
    Case(
        "an instruction of a newer architecture",
        """\
__global__ void k() {
  asm volatile("wgmma.fence.sync.aligned;");
}
""",
        """
k.cu:2:3-6 error ptxas Instruction 'wgmma.fence' not supported on .target 'sm_80'
""",
        architecture="sm_80",
    ),
    Case(
        "an extern device function that is nowhere",
        """\
extern __device__ int elsewhere(int);
__global__ void k(int* p) {
  p[0] = 1;
  p[1] = elsewhere(p[2]);
}
""",
        """
k.cu:4:10-19 error ptxas Unresolved extern function 'elsewhere'
""",
    ),
    Case(
        "nvlink",
        """\
extern __device__ int elsewhere(int);
__global__ void k(int* p) {
  p[1] = elsewhere(p[2]);
}
int main() { k<<<1, 1>>>(nullptr); }
""",
        """
k.cu:3:10-19 error nvlink Undefined reference to 'elsewhere'
""",
        flags=("-rdc=true",),
        action="run",
    ),
    Case(
        "ld",
        """\
void foo(int);
void unused(int x) {}
__global__ void k(int* p) {}
int main() {
  unused(1);
  foo(3);
}
""",
        """
k.cu:6:3-6 error ld undefined reference to `foo(int)'
""",
        action="run",
    ),
    Case(
        "a library that is not there",
        """\
int main() {}
""",
        """
error ld cannot find -lnowhere_to_be_found: No such file or directory
""",
        action="run",
        flags=("-lnowhere_to_be_found",),
    ),
    Case(
        "an option nvcc does not know",
        """\
__global__ void k() {}
""",
        """
error nvcc Unknown option '--bogus'
""",
        flags=("--bogus",),
    ),
    Case(
        "an architecture nvcc does not know",
        """\
__global__ void k() {}
""",
        """
error nvcc Unsupported gpu architecture 'compute_33'
""",
        architecture="sm_33",
    ),
    Case(
        "launch bounds that ask for too much",
        """\
__global__ void __launch_bounds__(1024, 4) k(int* p) { p[0] = 1; }
""",
        """
k.cu:1:44-45 warning ptxas Value of threads per SM for entry k is out of range. .minnctapersm will be ignored
""",
    ),
    Case(
        "unsaved text that ptxas refuses",
        """\
__global__ void k() {

  asm volatile("bogus;");
}
""",
        """
k.cu:3:3-6 error ptxas Not a name of any known instruction: 'bogus'
""",
        files={"k.cu": ""},
        saved=False,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_problems(case, tmp_path):
    await case.check(tmp_path)
