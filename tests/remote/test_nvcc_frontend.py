"""What the CUDA front end says about small sources, with the real compiler: words, places, columns."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.first_cases import first_of
from tests.remote.nvcc_check import COMPILER, Case, needs_nvcc

pytestmark = needs_nvcc

CASES = [
    Case(
        "undefined identifier",
        """\
__global__ void k(int* p) {
  p[0] = foo;
}
""",
        """
k.cu:2:10-13 error nvcc identifier "foo" is undefined
""",
    ),
    Case(
        "on the signature's line, right of __global__",
        """\
__global__ void k(int* p) { p[0] = foo; }
""",
        """
k.cu:1:36-39 error nvcc identifier "foo" is undefined
""",
    ),
    Case(
        "behind an object-like macro",
        """\
#define I (blockIdx.x * blockDim.x + threadIdx.x)
__global__ void k(int* p) {
  p[I] = p[I] + foo;
}
""",
        """
k.cu:3:17-20 error nvcc identifier "foo" is undefined
""",
    ),
    Case(
        "renumbered lines",
        """\
__global__ void a(float* x) { x[0] = one; }
#line 100 "generator.tmpl"
__global__ void b(float* x) { x[0] = two; x[1] = two2; }
#line 1 "k.cu"
__global__ void c(float* x) { x[0] = three; }
#line 900
__global__ void d(float* x) { x[0] = four; }
#define HERE 7
#line HERE
__global__ void e(float* x) { x[0] = five; }
""",
        """
k.cu:1:38-41 error nvcc identifier "one" is undefined
k.cu:3:38-41 error nvcc identifier "two" is undefined
k.cu:3:50-54 error nvcc identifier "two2" is undefined
k.cu:5:38-43 error nvcc identifier "three" is undefined
k.cu:7:38-42 error nvcc identifier "four" is undefined
error nvcc identifier "five" is undefined
""",
    ),
    Case(
        "renumbered lines of a file that exists",
        """\
#line 2 "kernels.tmpl"
__global__ void b(float* x) { x[0] = two; }
""",
        """
kernels.tmpl:2:38-41 error nvcc identifier "two" is undefined
""",
        files={"kernels.tmpl": "# a template\n__global__ void b(float* x) { x[0] = two; }\n"},
    ),
    Case(
        "three kernels of one macro",
        """\
#define KERNEL(NAME, T, OP) __global__ void NAME(T* x) { x[0] = x[0] OP x[1]; }
#define THREE(T) KERNEL(add_##T, T, +) KERNEL(mul_##T, T, *) KERNEL(mod_##T, T, %)
THREE(int)
THREE(float)
__global__ void after(float* x) { x[0] = missing; }
""",
        """
k.cu:4:1-6 error nvcc expression must have integral or unscoped enum type
k.cu:5:42-49 error nvcc identifier "missing" is undefined
""",
    ),
    Case(
        "inside a macro's argument",
        """\
#define SET(at, value) p[at] = (value)
__global__ void k(int* p) {
  SET(0, foo); SET(1, 2);
}
""",
        """
k.cu:3:10-13 error nvcc identifier "foo" is undefined
""",
    ),
    Case(
        "made by a macro",
        """\
#define MAKE(n) made_##n
__global__ void k(int* p) {
  p[0] = 1; p[1] = MAKE(up);
}
""",
        """
k.cu:3:20-24 error nvcc identifier "made_up" is undefined
""",
    ),
    Case(
        "a macro over several lines",
        """\
#define SET(at, value) p[at] = (value)
__global__ void k(int* p) {
  SET(0,
      1 +
        foo); p[1] = bar;
}
""",
        """
k.cu:5:9-12 error nvcc identifier "foo" is undefined
k.cu:5:22-25 error nvcc identifier "bar" is undefined
""",
    ),
    Case(
        "macros inside macros",
        """\
#define ONE(x) (x)
#define TWO(x) ONE(ONE(x) + 1)
__global__ void k(int* p) { p[0] = TWO(p[1]) + TWO(foo) + ONE(p[2]); }
""",
        """
k.cu:3:52-55 error nvcc identifier "foo" is undefined
""",
    ),
    Case(
        "where either of two macros may be meant",
        """\
#define A x + y
#define B + y.z;
__global__ void k(int* p) {
  int x = 1, y = 1;
  p[0] = A B
}
""",
        """
k.cu:5 error nvcc expression must have class type but it has type "int"
""",
    ),
    Case(
        "tabs",
        """\
__global__ void k(int* p) {
\tp[0]\t= foo;
 \tp[1] = "\t" + bar;
}
""",
        """
k.cu:2:9-12 error nvcc identifier "foo" is undefined
k.cu:3:16-19 error nvcc identifier "bar" is undefined
""",
    ),
    Case(
        "text that is not ASCII",
        """\
__global__ void k(int* p) {
  const char* s = "é日本🚀"; /* ⏱ µs */ p[0] = foo; // é
  int größe = bar;
  p[größe] = baz;
}
""",
        """
k.cu:2:45-48 error nvcc identifier "foo" is undefined
k.cu:3:15-18 error nvcc identifier "bar" is undefined
k.cu:4:14-17 error nvcc identifier "baz" is undefined
k.cu:2:15-16 warning nvcc #177-D variable "s" was declared but never referenced
""",
    ),
    Case(
        "a string over several lines",
        """\
__global__ void k(int* p) {
  const char* s = R"(one " two
  ) " three)"; p[0] = foo + s;
}
""",
        """
k.cu:3:23-26 error nvcc identifier "foo" is undefined
""",
    ),
    Case(
        "a comment over several lines",
        ("__global__ void k(int* p) {\n  /* one\n  two */ p[0] = foo; // \\\n  bar;\n}\n"),
        """
k.cu:3:17-20 error nvcc identifier "foo" is undefined
""",
    ),
    Case(
        "a continued line",
        ("__global__ void k(int* p) {\n  p[0] = 1 + \\\n    foo;\n}\n"),
        """
k.cu:3:5-8 error nvcc identifier "foo" is undefined
""",
    ),
    Case(
        "CRLF",
        ('__global__ void k(int* p) {\r\n  p[0] = foo;\r\n\tp[1] = "x";\r\n}\r\n'),
        """
k.cu:2:10-13 error nvcc identifier "foo" is undefined
k.cu:3:7-8 error nvcc a value of type "const char *" cannot be assigned to an entity of type "int"
""",
    ),
    Case(
        "a byte order mark",
        ("\ufeff__global__ void k(int* p) { p[0] = foo; }\n"),
        """
k.cu:1:36-39 error nvcc identifier "foo" is undefined
""",
    ),
    Case(
        "a missing semicolon",
        """\
__global__ void k(int* p) {
  p[0] = 1
}
""",
        """
k.cu:3:1-2 error nvcc expected a ";"
""",
    ),
    Case(
        "a missing semicolon at the end of the file",
        ("__global__ void k(int* p) { p[0] = 1; }\nint f()"),
        """
k.cu:2:7-8 error nvcc expected a ";"
""",
    ),
    Case(
        "a missing brace at the end of the file",
        """\
__global__ void k(int* p) {
  p[0] = 1;
// the end
""",
        """
k.cu:2:11-12 error nvcc expected a "}"
  k.cu:1:27-28 to match this "{"
""",
    ),
    Case(
        "an unused variable",
        """\
__global__ void k(int* p) { int unused = 3, other; p[0] = 1; }
""",
        """
k.cu:1:33-39 warning nvcc #177-D variable "unused" was declared but never referenced
k.cu:1:45-50 warning nvcc #177-D variable "other" was declared but never referenced
""",
    ),
    Case(
        "warnings with numbers",
        """\
__global__ void k(unsigned* p) {
  p[0] = 1 << 40;
  p[1] = -1;
  if (p[2] < 0) p[3] = 1;
  return;
  p[4] = 1;
}
""",
        """
k.cu:2:15-17 warning nvcc #63-D shift count is too large
k.cu:3:10-11 warning nvcc #68-D integer conversion resulted in a change of sign
k.cu:4:12-13 warning nvcc #186-D pointless comparison of unsigned integer with zero
""",
    ),
    Case(
        "an instantiation chain",
        """\
template <class T> struct Value {
  static __device__ int get(T t) { return t.value(); }
};
template <class T> __device__ int twice(T t) { return 2 * Value<T>::get(t); }
template <class T> __global__ void k(T* p) { p[0] = twice(p[1]); }
template __global__ void k(float*);
""",
        """
k.cu:2:43-44 error nvcc expression must have class type but it has type "float"
  k.cu:4:59-64 detected during instantiation of "int Value<T>::get(T) [with T=float]"
  k.cu:5:53-58 detected during instantiation of "int twice(T) [with T=float]"
  k.cu:6:26-27 detected during instantiation of "void k(T *) [with T=float]"
""",
    ),
    Case(
        "one step of instantiation",
        """\
template <class T> struct S { typename T::type v; };
__global__ void k(int* p) {
  S<float> s;
}
""",
        """
k.cu:1:40-41 error nvcc a class or namespace qualified name is required
  k.cu:3:3-4 detected during instantiation of class "S<T> [with T=float]"
k.cu:1:41-43 error nvcc global-scope qualifier (leading "::") is not allowed
  k.cu:3:3-4 detected during instantiation of class "S<T> [with T=float]"
k.cu:1:48-49 error nvcc expected a ";"
  k.cu:3:3-4 detected during instantiation of class "S<T> [with T=float]"
k.cu:3:12-13 warning nvcc #177-D variable "s" was declared but never referenced
""",
    ),
    Case(
        "an error in a header",
        """\
#include "h.cuh"
__global__ void k(int* p) { p[0] = from_header(); }
""",
        """
h.cuh:2:39-43 error nvcc identifier "nope" is undefined
""",
        files={"h.cuh": "#pragma once\n__device__ int from_header() { return nope; }\n"},
    ),
    Case(
        "a template in a header",
        """\
#include "h.cuh"

__global__ void k(int** p) { p[0] = twice(p[1]); }
""",
        """
h.cuh:2:14-15 error nvcc expression must have arithmetic or unscoped enum type
  k.cu:3:37-42 detected during instantiation of "T twice(T) [with T=int *]"
""",
        files={"h.cuh": "template <class T> __device__ T twice(T t) {\n  return 2 * t;\n}\n"},
    ),
    Case(
        "static_assert",
        """\
template <int N> __global__ void k() { static_assert(N % 32 == 0, "N must be a multiple of 32"); }
template __global__ void k<33>();
""",
        """
k.cu:1:40-53 error nvcc static assertion failed with "N must be a multiple of 32"
  k.cu:2:26-27 detected during instantiation of "void k<N>() [with N=33]"
""",
    ),
    Case(
        "candidates",
        """\
__device__ int f(int, float*);
__device__ int f(float*);
__global__ void k(int* p) { p[0] = f(p, 3); }
""",
        """
k.cu:3:36-37 error nvcc no instance of overloaded function "f" matches the argument list
    argument types are: (int *, int)
  k.cu:2:16-17 number of parameters of function "f(float *)" does not match the call
  k.cu:1:16-17 function "f(int, float *)" does not match because argument #1 does not match parameter
""",
    ),
    Case(
        "a member declared elsewhere",
        """\
struct A {
  int x;
 private:
  int hidden;
};
__global__ void k(A* a) { a->hidden = a->x; }
""",
        """
k.cu:6:30-36 error nvcc member "A::hidden" (declared at line 4) is inaccessible
  k.cu:4:7-13 declared here
""",
    ),
    Case(
        "defined twice",
        """\
__global__ void k(int* p) {}
__global__ void k(int* p) { p[0] = 1; }
""",
        """
k.cu:2:17-18 error nvcc function "k" has already been defined (previous definition at line 1)
  k.cu:1:17-18 declared here
""",
    ),
    Case(
        "a kernel that returns a value",
        """\
__global__ int k() { return 1; }
""",
        """
k.cu:1:1-11 error nvcc a __global__ function must have a void return type
""",
    ),
    Case(
        "an abstract class",
        """\
struct B { virtual void f() = 0; };
B b;
__global__ void k() {}
""",
        """
k.cu:2:3-4 error nvcc object of abstract class type "B" is not allowed:
    function "B::f" is a pure virtual function
""",
    ),
    Case(
        "host code in main",
        """\
#include <vector>
__global__ void k(int* p) {}
int main() {
  int z = "text";
  k<<<1>>>(nullptr);
  k<<<1, 1>>>(1.5f);
  return missing;
}
""",
        """
k.cu:4:11-17 error nvcc a value of type "const char *" cannot be used to initialize an entity of type "int"
k.cu:6:15-19 error nvcc argument of type "float" is incompatible with parameter of type "int *"
k.cu:7:10-17 error nvcc identifier "missing" is undefined
""",
    ),
    Case(
        "a host function called from a kernel",
        """\
#include <cstdlib>
int host(int x) { return rand() + x; }
__global__ void k(int* p) { p[0] = host(1); }
""",
        """
k.cu:3:36-40 error nvcc calling a __host__ function("host(int)") from a __global__ function("k") is not allowed
k.cu:3:36-40 error nvcc identifier "host" is undefined in device code
""",
    ),
    Case(
        "unsaved text",
        """\
#include "h.cuh"
__global__ void k(int* p) {
\tp[0] = from_header() + foo;
  static_assert(__LINE__ == 5, __FILE__);
}
""",
        """
k.cu:3:25-28 error nvcc identifier "foo" is undefined
k.cu:4:3-16 error nvcc static assertion failed with "k.cu"
""",
        files={
            "h.cuh": "__device__ int from_header() { return 1; }\n",
            "k.cu": "__global__ void other() {}\n",
        },
        saved=False,
    ),
    Case(
        "the same words twice on a line",
        """\
__global__ void k(int* p) { p[0] = foo + foo; p[0] = foo; }
""",
        """
k.cu:1:36-39 error nvcc identifier "foo" is undefined
""",
    ),
    Case(
        "a chevron",
        """\
__global__ void k(int* p) {}
int main() { k<<<>>>(nullptr); k<<<1, 1, 1, 1, 1>>>(nullptr); }
""",
        """
k.cu:2:18-21 error nvcc too few arguments in function call
k.cu:2:45-46 error nvcc argument of type "int" is incompatible with parameter of type "CUstream_st *"
k.cu:2:48-49 error nvcc too many arguments in function call
""",
    ),
]


OURS = (
    "over several lines",
    "renumbered lines",
    "three kernels",
)  # whose places the compiler reports otherwise
ORACLE = [c for c in CASES if not c.files and c.expected and not any(words in c.name for words in OURS)][::3]
"""The first of them are always tried."""
TWICE = [*ORACLE[:3], *(pytest.param(case, marks=pytest.mark.slow) for case in ORACLE[3:])]


@pytest.mark.parametrize(
    "case", first_of((case for case in CASES if case not in ORACLE[:3]), 12), ids=lambda case: case.name
)
async def test_problems(case, tmp_path):
    await case.check(tmp_path)


@pytest.mark.parametrize("case", TWICE, ids=lambda case: case.name)
async def test_problems_are_those_of_the_compilers_own_machine_readable_output(case, tmp_path):
    """SARIF has true lines and numbers, but the columns of expanded text and no instantiation chain."""
    (tmp_path / "k.cu").write_bytes(case.source.encode())
    process = await asyncio.create_subprocess_exec(
        COMPILER.path, "-cubin", "-arch=sm_90a", "-Xcudafe", "--output_mode=sarif", "-o", "x.cubin", "k.cu",
        cwd=tmp_path, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, errors = await process.communicate()
    text = errors[errors.index(b"{") :].decode().replace('}{"ruleId"', '},{"ruleId"')  # its own slip
    answer, _ = json.JSONDecoder().raw_decode(text)
    results = [r for r in answer["runs"][0]["results"] if r["level"] != "remark"]
    problems = (await case.check(tmp_path)).built.problems
    assert len(problems) == len(results)
    for problem, result in zip(problems, results, strict=True):
        assert problem.severity == result["level"]
        assert problem.message.partition("\n")[0] == result["message"]["text"]
        for location in result.get("locations", ()):
            assert problem.place.line == location["physicalLocation"]["region"]["startLine"]
        if problem.code:  # the text form numbers warnings only
            assert problem.code == f"#{result['ruleId'].removeprefix('EC')}-D"
