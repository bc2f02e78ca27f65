"""What the host compiler, ptxas, nvlink, the linker and nvcc itself say, with the real ones."""

from __future__ import annotations

import pytest

from tests.first_cases import first_of
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
k.cu:3:17-22 error ptxas Not a name of any known instruction: 'bogus'
  k.cu:7 inlined here
k.cu:8:17-20 error ptxas Arguments mismatch for instruction 'add'
""",
    ),
    Case(
        "inline assembly over several lines",
        """\
__device__ __forceinline__ float f(float x) {
  float r;
  asm volatile(
      "{\\n"
      "  .reg .f32 t;\\n"
      "  mov.f32 t, %1;\\n"
      "  addd.f32 %0, t, t;\\n"
      "}\\n"
      : "=f"(r) : "f"(x));
  return r;
}
__global__ void k(float* x) {
#pragma unroll
  for (int i = 0; i < 4; i++) x[i] = f(x[i]);
}
__global__ void a4(float* d, unsigned long long da, unsigned long long db) {
  asm volatile(
      "{\\n"
      ".reg .pred p;\\n"
      "wgmma.mma_asynk.sync.aligned.m64n8k16.f32.f16.f16 "
      "{%0, %1, %2, %3}, "
      "%4, %5, p, 1, 1, 0, 0;\\n"
      "}\\n"
      : "+f"(d[0]), "+f"(d[1]),
        "+f"(d[2]), "+f"(d[3])
      : "l"(da),
        "l"(db)
      : "memory");
}
__global__ void a6(float* x) {
  asm volatile(R"(
    mov.f32 %0, 0f00000000;
    bad6.f32 %0;
  )" : "=f"(x[0]));
}
""",
        """
k.cu:7:10-14 error ptxas Not a name of any known instruction: 'addd'
  k.cu:14 inlined here
k.cu:20:13-23 error ptxas Unknown modifier '.mma_asynk'
k.cu:20:8-13 error ptxas Not a name of any known instruction: 'wgmma'
k.cu:33:5-9 error ptxas Not a name of any known instruction: 'bad6'
""",
    ),
    Case(
        "inline assembly with macros, in a header, twice on a line, and through a macro",
        """\
#include "ld.cuh"
#define SUFFIX ".f32"
#define TWO(r) \\
  asm volatile( \\
    "mov.f32 %0, 0f00000000;\\n" \\
    "bad9.f32 %0;\\n" : "=f"(r))
__global__ void b1(float* x) { float r; load(r, x); x[1] = r; }
__global__ void b2(float* x) {
  asm volatile("add" SUFFIX " %0, %0, %0;\\n\\t"
               "bogus" SUFFIX " %0, %0;\\n\\t"
               : "+f"(x[0])
               :
               : "memory");
}
__global__ void b3(float* x) {
  asm("add.f32 %0, %0, %0;" : "+f"(x[0])); asm("nope.f32 %0, %0, %0;" : "+f"(x[0]));
}
__global__ void b4(float* x) {
  TWO(x[0]);
}
template <int N> __device__ float t(float v) {
  float r;
  asm("{\\n\\t" /* é */
      ".reg .f32 q;\\n\\t"
      "add.f32 %0, q, undefd;\\n\\t"
      "}"
      : "=f"(r)
      : "f"(v));
  return r + N;
}
__global__ void b5(float* x) { x[0] = t<3>(x[1]); }
""",
        """
ld.cuh:3:8-14 error ptxas Unknown modifier '.globl'
  k.cu:7 inlined here
k.cu:10:17-22 error ptxas Not a name of any known instruction: 'bogus'
k.cu:16:49-53 error ptxas Not a name of any known instruction: 'nope'
k.cu:19 error ptxas Not a name of any known instruction: 'bad9'
k.cu:25:8-11 error ptxas Arguments mismatch for instruction 'add'
  k.cu:31 inlined here
k.cu:25:23-29 error ptxas Unknown symbol 'undefd'
  k.cu:31 inlined here
""",
        files={
            "ld.cuh": '__device__ inline void load(float& r, const float* p) {\n  __asm__ __volatile__(\n    "ld.globl.f32 %0, [%1];"\n'
            '    : "=f"(r)\n    : "l"(p)\n  );\n}\n'
        },
    ),
    Case(
        "notes about lines of the temporary file",
        """\
__device__ __forceinline__ void mma(float (&d)[4], unsigned long long a, unsigned long long b) {
  asm volatile("{\\n.reg .pred p;\\nsetp.ne.b32 p, 1, 0;\\n"
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, p, 1, 1, 0, 0;\\n}\\n"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
}
__global__ void serial(float* o, unsigned long long a, unsigned long long b, int n) {
  float d[4] = {};
  asm volatile("wgmma.fence.sync.aligned;\\n" ::: "memory");
  for (int i = 0; i < n; i++) { mma(d, a + i, b); d[0] += 1; }
  asm volatile("wgmma.commit_group.sync.aligned;\\n" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;\\n" ::: "memory");
  for (int i = 0; i < 4; i++) o[i] = d[i];
}
""",
        """
k.cu:3:6-55 information ptxas C7519 warpgroup.arrive is injected by compiler to allow use of registers in GMMA in function 'serial'
  k.cu:9 inlined here
k.cu:10:17-49 information ptxas C7519 warpgroup.arrive is injected by compiler to allow use of registers in GMMA in function 'serial'
k.cu:9 information ptxas C7517 warpgroup.wait is injected by compiler to allow use of registers defined by GMMA in function 'serial'
k.cu:6:17-23 information ptxas C7511 Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register resources for the wgmma pipeline in the function 'serial'
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
k.cu:2:17-28 error ptxas Instruction 'wgmma.fence' not supported on .target 'sm_80'
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
k.cu:4:10-19 error ptxas Unresolved extern function 'elsewhere(int)'
""",
    ),
    Case(
        "an extern device function with the name that C gives it",
        """\
extern "C" __device__ float elsewhere(float);

__global__ void k(float* p) { p[1] = elsewhere(p[2]); }
""",
        """
k.cu:3:38-47 error ptxas Unresolved extern function 'elsewhere'
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
        "a limit of registers that ptxas raises",
        """\
__global__ void k(int* p) { p[0] = 1; }
__global__ void __maxnreg__(8) scale(double* p) { p[0] = 1; }
""",
        """
k.cu:2:32-37 warning ptxas For entry scale adjusting per thread register count of 8 to lower bound of 24
""",
    ),
    Case(
        "an error of one of two architectures",
        """\
__global__ void k(float* x) {
#if __CUDA_ARCH__ >= 900
  asm volatile("bad.f32 %0;" : "=f"(x[0]));
#else

  x[0] = 2;
#endif
}
""",
        """
k.cu:3:17-20 error ptxas Not a name of any known instruction: 'bad'
""",
        flags=("-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90"),
    ),
    Case(
        "unsaved text that ptxas refuses",
        """\
__global__ void k() {

  asm volatile("bogus;");
}
""",
        """
k.cu:3:17-22 error ptxas Not a name of any known instruction: 'bogus'
""",
        files={"k.cu": ""},
        saved=False,
    ),
]


@pytest.mark.parametrize("case", first_of(CASES, 8), ids=lambda case: case.name)
async def test_problems(case, tmp_path):
    await case.check(tmp_path)
