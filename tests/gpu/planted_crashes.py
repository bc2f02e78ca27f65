"""Kernels that fail or hang on purpose: the line that a report has to name carries a mark.

`!!` marks the line of a crash. `## N` marks a line on which N warps of a hang stand. A line `// file: NAME` begins another file.
"""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

MAIN = """
int main() {
  float* x; int* d; int h[256];
  for (int i = 0; i < 256; ++i) h[i] = i;
  cudaMalloc(&x, 1 << 20); cudaMalloc(&d, 1 << 20); cudaMemset(x, 0, 1 << 20); cudaMemset(d, 0, 1 << 20);
  BODY
  cudaError_t e = cudaDeviceSynchronize();
  return e != 0;
}
"""

CUDA = {
    "a store": ("__global__ void k(float* x) {\n  int i = threadIdx.x;\n  x[i + (1L << 40)] = i;  // !!\n}\n", "k<<<2, 64>>>(x);"),
    "one thread": (
        ("__global__ void k(float* x) {\n  int i = threadIdx.x;\n  long far = i == 77 ? 1L << 40 : 0;\n  float v = x[i];\n"
        "  x[i + far] = v + 1.f;  // !!\n}\n"),
        "k<<<1, 128>>>(x);",
    ),
    "an index that was read": (
        "__global__ void k(float* x, const int* d) {\n  int at = d[threadIdx.x];\n  float v = x[at];  // !!\n  x[threadIdx.x] = v;\n}\n",
        "h[100] = 1 << 30; cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice); k<<<1, 256>>>(x, d);",
    ),
    "a helper that is inlined": (
        ("__device__ float twice(const float* p, long i) {\n  return 2.f * p[i];  // !!\n}\n"
        "__global__ void k(float* x) {\n  int i = threadIdx.x;\n  x[i] = twice(x, i == 40 ? 1L << 40 : i);\n}\n"),
        "k<<<1, 64>>>(x);",
    ),
    "a function that is called": (
        ("__device__ __noinline__ void put(float* p, long i, float v) {\n  p[i] = v;  // !!\n}\n"
        "__global__ void k(float* x) {\n  int i = threadIdx.x;\n  put(x, i == 40 ? 1L << 40 : i, 1.f);\n}\n"),
        "k<<<1, 64>>>(x);",
    ),
    "a header": (
        ('#include "view.h"\n__global__ void k(View<float> v) {\n  v.set(threadIdx.x + (1L << 40), 1.f);\n}\n'
        "// file: view.h\ntemplate <typename T> struct View {\n  T* p;\n  __device__ void set(long i, T v) const {\n    p[i] = v;  // !!\n  }\n};\n"),
        "k<<<1, 32>>>(View<float>{x});",
    ),
    "a template": (
        ("template <typename T, int N> __global__ void k(T* x) {\n  T sum = 0;\n#pragma unroll\n  for (int n = 0; n < N; ++n)\n"
        "    sum += x[threadIdx.x + n * (1L << 41)];  // !!\n  x[threadIdx.x] = sum;\n}\n"),
        "k<float, 3><<<1, 32>>>(x);",
    ),
    "a misaligned access": (
        "__global__ void k(char* x) {\n  char* at = x + 8 * threadIdx.x + (threadIdx.x == 5);\n  *(double*)at = 1.0;  // !!\n}\n",
        "k<<<1, 32>>>((char*)x);",
    ),
    "an assertion": (
        "#include <cassert>\n__global__ void k(int* d) {\n  int v = d[threadIdx.x];\n  assert(v == 0);  // !!\n  d[threadIdx.x] = 1;\n}\n",
        "cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice); k<<<1, 64>>>(d);",
    ),
    "a trap": (
        "__global__ void k(int* d) {\n  if (d[threadIdx.x] == 9)\n    __trap();  // !!\n  d[threadIdx.x] = 1;\n}\n",
        "cudaMemcpy(d, h, sizeof h, cudaMemcpyHostToDevice); k<<<1, 64>>>(d);",
    ),
    "a stack that overflows": (
        ("__device__ __noinline__ int deep(int* d, int n) {\n  int a[64];\n  for (int i = 0; i < 64; ++i) a[i] = d[i] + n;  // !!\n"
        "  int s = deep(d, n + 1 + a[n & 63]);  // !!\n  for (int i = 0; i < 64; ++i) s += a[(i * n) & 63];\n  return s;\n}\n"
        "__global__ void k(int* d) {\n  d[0] = deep(d, threadIdx.x);\n}\n"),
        "k<<<1, 32>>>(d);",
    ),
    "a graph": (
        "__global__ void fine(float* x) { x[threadIdx.x] += 1.f; }\n__global__ void k(float* x) {\n  x[threadIdx.x + (1L << 40)] = 1.f;  // !!\n}\n",
        ("cudaStream_t s; cudaStreamCreate(&s); cudaGraph_t g; cudaGraphExec_t g2; cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);"
        " fine<<<1, 32, 0, s>>>(x); k<<<1, 32, 0, s>>>(x); fine<<<1, 32, 0, s>>>(x);"
        " cudaStreamEndCapture(s, &g); cudaGraphInstantiate(&g2, g, 0); cudaGraphLaunch(g2, s);"),
    ),
    "shared memory": (
        ("__global__ void k(int* d, int far) {\n  extern __shared__ int s[];\n  s[threadIdx.x] = threadIdx.x;\n  __syncthreads();\n"
        "  d[threadIdx.x] = s[threadIdx.x + far];  // !!\n}\n"),
        "k<<<1, 64, 256>>>(d, 1 << 22);",
    ),
    "one of ten streams": (
        "__global__ void fine(float* x) { x[threadIdx.x] += 1.f; }\n__global__ void k(float* x) {\n  x[threadIdx.x + (1L << 40)] = 1.f;  // !!\n}\n",
        "for (int n = 0; n < 10; ++n) { cudaStream_t s; cudaStreamCreate(&s); if (n == 6) k<<<1, 32, 0, s>>>(x); else fine<<<1, 32, 0, s>>>(x); }",
    ),
}  # fmt: skip
"""By name: kernels, and the statements of main that launch them."""

TRITON_HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
TRITON = {
    "a store": ("    i = tl.arange(0, B)\n    v = tl.load(x + i)\n    tl.store(x + i + (1 << 40), v)  # !!\n", ""),
    "a load": ("    i = tl.arange(0, B)\n    v = tl.load(x + i + (1 << 40))  # !!\n    tl.store(x + i, v)\n", ""),
    "a mask that is missing": (
        "    i = tl.program_id(0) * (1 << 30) + tl.arange(0, B)\n    v = tl.load(x + i.to(tl.int64) * 1000)  # !!\n    tl.store(x + tl.arange(0, B), v)\n", ""),
    "a helper": (
        "    i = tl.arange(0, B)\n    tl.store(x + i, far(x, i))\n",
        "@triton.jit\ndef far(p, i):\n    return tl.load(p + i + (1 << 40))  # !!\n\n\n",
    ),
    "a loop": (
        ("    i = tl.arange(0, B)\n    sum = tl.zeros([B], tl.float32)\n    for n in range(0, 64):\n        at = i.to(tl.int64) + n.to(tl.int64) * (1 << 36)\n"
        "        sum += tl.load(x + at)  # !!\n    tl.store(x + i, sum)\n"),
        "",
    ),
    "an atomic": ("    i = tl.arange(0, B)\n    tl.atomic_add(x + i + (1 << 40), 1.0)  # !!\n", ""),
    "an index that was read": (
        "    i = tl.arange(0, B)\n    at = tl.load(x + i).to(tl.int64) + (1 << 40)\n    v = tl.load(x + at)  # !!\n    tl.store(x + i, v)\n", ""),
    "a block": (
        "    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]\n    v = tl.load(x + i)\n    tl.store(x + i + (1 << 40), v)  # !!\n",
        "",
    ),
    "a branch": (
        "    i = tl.arange(0, B)\n    v = tl.load(x + i)\n    if tl.sum(v) < 1.0:\n        tl.store(x + i + (1 << 40), v)  # !!\n    else:\n        tl.store(x + i, v)\n", ""),
    "an address that is not aligned": (
        "    i = tl.arange(0, B)\n    p = (x.to(tl.int64) + 1).to(tl.pointer_type(tl.float32))\n    v = tl.load(p + i * 3)  # !!\n    tl.store(x + i, v)\n", ""),
    "an assertion": ("    i = tl.arange(0, B)\n    v = tl.load(x + i)\n    tl.device_assert(v > 0, 'positive')  # !!\n    tl.store(x + i, v)\n", ""),
    "the second kernel": (
        "    i = tl.arange(0, B)\n    tl.store(x + i + (1 << 40), 1.0)  # !!\n",
        "@triton.jit\ndef fine(x, B: tl.constexpr):\n    tl.store(x + tl.arange(0, B), 2.0)\n\n\n",
    ),
}  # fmt: skip
"""By name: the kernel's lines, and functions above it."""
TRITON_MAIN = "\n\ndef main():\n    x = torch.zeros(4096, device='cuda')\n    k[(4,)](x, B=256)\n    torch.cuda.synchronize()\n"

HANGS = {
    "a barrier in a branch": (
        "__global__ void k(volatile int* d) {\n  if (threadIdx.x < 32)\n    while (*d == 0) {}  // ## 4\n  __syncthreads();  // ## 12\n  d[1] = 1;\n}\n",
        "k<<<4, 128>>>(d);",
    ),
    "a flag that the compiler reads once": (
        "__global__ void k(int* d) {\n  while (d[0] == 0)  // ## 2\n    d[threadIdx.x + 1] = 1;  // ## 2\n}\n",
        "k<<<1, 64>>>(d);",
    ),
    "an endless loop": (
        "__global__ void k(float* x) {\n  float v = x[threadIdx.x];\n  while (v < 1.f)  // ## 4\n    x[threadIdx.x] = v *= 0.5f;  // ## 4\n}\n",
        "k<<<2, 64>>>(x);",
    ),
    "a barrier that expects too many": (
        ("#include <cuda/barrier>\n__global__ void k(float* x) {\n#pragma nv_diag_suppress static_var_with_dynamic_init\n"
        "  __shared__ cuda::barrier<cuda::thread_scope_block> b;\n  if (threadIdx.x == 0) init(&b, blockDim.x + 1);\n  __syncthreads();\n"
        "  b.arrive_and_wait();  // ## 8\n  x[threadIdx.x] = 1.f;\n}\n"),
        "k<<<2, 128>>>(x);",
    ),
    "a wrong phase": (
        ("__global__ void k(float* x) {\n  __shared__ unsigned long long b;\n  unsigned a = (unsigned)__cvta_generic_to_shared(&b), done = 0;\n"
        '  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(a));\n  __syncthreads();\n'
        "  while (!done)  // ## 2\n"
        '    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(a));  // ## 2\n'
        "  x[threadIdx.x] = 1.f;\n}\n"),
        "k<<<1, 64>>>(x);",
    ),
    "half a cluster": (
        ("#include <cooperative_groups.h>\n__global__ void __cluster_dims__(2, 1, 1) k(float* x, volatile int* d) {\n"
        "  auto c = cooperative_groups::this_cluster();\n  if (c.block_rank() == 0)\n    c.sync();  // ## 4\n  else\n    while (*d == 0) {}  // ## 4\n"
        "  x[threadIdx.x] = 1.f;\n}\n"),
        "k<<<4, 64>>>(x, d);",
    ),
    "a grid that waits for itself": (
        ("__global__ void k(unsigned* n) {\n  if (threadIdx.x == 0) {\n    atomicAdd(n, 1);\n    while (*(volatile unsigned*)n < gridDim.x) {}  // ## 264\n  }\n"
        "  __syncthreads();  // ## 264\n}\n"),
        "cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10); k<<<2000, 64, 100 << 10>>>((unsigned*)d);",
    ),
    "a producer that never comes": (
        "__global__ void k(volatile int* d) {\n  if (blockIdx.x == 0) {\n    while (d[0] != 5) {}  // ## 1\n    d[1] = 1;\n  } else if (threadIdx.x == 999) {\n    d[0] = 5;\n  }\n}\n",
        "k<<<8, 32>>>(d);",
    ),
    "a lock that nobody gives back": (
        "__global__ void k(int* d) {\n  if (threadIdx.x == 0)\n    while (atomicCAS(d, 0, 1) != 0) {}  // ## 3\n}\n",
        "k<<<4, 32>>>(d);",
    ),
    "lanes that wait for each other": (
        ("__global__ void k(volatile int* d, float* x) {\n  if (threadIdx.x % 2) {\n    __syncwarp();  // ## 2\n    x[threadIdx.x] = 1.f;\n  } else {\n"
        "    while (*d == 0) {}  // ## 2\n  }\n}\n"),
        "k<<<1, 64>>>(d, x);",
    ),
    "two barriers": (
        ("__global__ void k(float* x) {\n  if (threadIdx.x < 64)\n"
        '    asm volatile("bar.sync 1, 128;");  // ## 2\n  else\n    asm volatile("bar.sync 2, 128;");  // ## 2\n  x[threadIdx.x] = 1.f;\n}\n'),
        "k<<<1, 128>>>(x);",
    ),
    "a counter that goes down too far": (
        "__global__ void k(float* x, int n) {\n  float v = 0;\n  for (unsigned i = n; i != 1; i -= 2)  // ## 2\n    v += __sinf(v + i) * x[i & 63];  // ## 2\n  x[threadIdx.x] = v;\n}\n",
        "k<<<1, 64>>>(x, 1000);",
    ),
}  # fmt: skip


def cuda(kernels: str, body: str) -> dict[str, str]:
    """The files of a case: `k.cu` and its headers."""
    first, *headers = re.split(r"^// file: (.+)\n", kernels, flags=re.MULTILINE)
    files = {"k.cu": first + MAIN.replace("BODY", body)}
    return files | dict(zip(headers[::2], headers[1::2], strict=True))


def triton(body: str, above: str) -> dict[str, str]:
    main = TRITON_MAIN
    if "def fine" in above:
        main = main.replace("    k[", "    fine[(4,)](x, B=256)\n    k[")
    return {"k.py": f"{TRITON_HEAD}{above}@triton.jit\ndef k(x, B: tl.constexpr):\n{body}{main}"}


def lines(files: dict[str, str], mark: str) -> set[tuple[str, int]]:
    """File and line of each line with the mark."""
    return {
        (name, number)
        for name, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if mark in line
    }


def counts(files: dict[str, str]) -> dict[int, int]:
    """How many warps are expected on each marked line."""
    text = files["k.cu"].splitlines()
    return {number: int(line.rpartition("## ")[2]) for number, line in enumerate(text, 1) if "## " in line}


def written(files: dict[str, str], folder: Path) -> str:
    """Write the files; the text of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return dedent(next(iter(files.values())))
