"""Twenty kernel signatures as authors write them, of 40 to 160 columns, on one line and on several.

After those of llm.c, CUDA's samples, ggml, FlashAttention, vLLM, CUTLASS's examples and the Triton-free parts of
PyTorch; bodies are left out.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

SIGNATURES = (
    "__global__ void k0(float *x, int n) {",
    "__global__ void vector_add(const float *a, const float *b, float *c, int n) {",
    "__global__ void residual_forward_kernel(float* out, float* inp1, float* inp2, int N) {",
    'extern "C" __global__ void saxpy(size_t n, float a, const float *x, float *y)\n{',
    "__global__ void matmul_naive(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C) {",
    "template <int BLOCK_SIZE> __global__ void MatrixMulCUDA(float *C, float *A, float *B, int wA, int wB) {",
    "__global__ void gelu_forward_kernel2(floatX* __restrict__ out, const floatX* __restrict__ inp) {",
    "__global__ void __launch_bounds__(256, 4) reduce_max(const float *__restrict__ in, float *__restrict__ out, unsigned long long n) {",
    "__global__ void layernorm_forward_kernel3(float* __restrict__ out, float* __restrict__ mean, float* __restrict__ rstd, const float*  __restrict__ inp, const float*  __restrict__ weight, const float* __restrict__ bias, int N, int C) {",
    "static __global__ void rope_norm(const float * x, float * dst, const int ne0, const int s1, const int s2, const int n_dims, const int * pos, const float freq_scale) {",
    "__global__ void softmax_forward_kernel5(float* out, float inv_temperature, const float* inp, int N, int T) {",
    "template<typename T, int N_THREADS>\n__global__ void rms_norm_kernel(T* __restrict__ out, const T* __restrict__ input,\n                                const T* __restrict__ weight, const float epsilon,\n                                const int num_tokens, const int hidden_size) {",
    "__global__ void paged_attention_v1_kernel(\n    float* __restrict__ out,           // [num_seqs, num_heads, head_size]\n    const float* __restrict__ q,       // [num_seqs, num_heads, head_size]\n    const int* __restrict__ block_tables,\n    const int max_num_blocks_per_seq,\n    const int q_stride) {",
    "__global__\nvoid transposeCoalesced(float *odata, const float *idata, int width, int height)\n{",
    "__global__ void sgemm_warptiling(const int M, const int N, const int K, const float alpha, float* A, float* B, float beta, float* C)\n{",
    "template <typename scalar_t>\n__global__ void lltm_cuda_forward_kernel(const scalar_t* __restrict__ gates, const scalar_t* __restrict__ old_cell, scalar_t* __restrict__ new_h, scalar_t* __restrict__ new_cell, size_t state_size) {",
    "    __global__ void indented_in_a_namespace(const double *__restrict__ a, double *__restrict__ b, const int width, const int height) {",
    "__global__ void encoder_forward_kernel3(floatX* out,\n                               const int* inp, const floatX* wte, const floatX* wpe,\n                               int B, int T, int C) {",
    "__global__ __launch_bounds__(1024) void flash_fwd_kernel(const float *Q, const float *K, const float *V, const int N, const int d, const int Tc, const int Tr, const int Bc, const int Br, const float softmax_scale, float *l, float *m, float *O) {",
    "__global__ void histogram256Kernel(uint *d_PartialHistograms, uint *d_Data, uint dataCount) {",
)  # fmt: skip
NAMES = (
    "k0", "vector_add", "residual_forward_kernel", "saxpy", "matmul_naive", "MatrixMulCUDA", "gelu_forward_kernel2",
    "reduce_max", "layernorm_forward_kernel3", "rope_norm", "softmax_forward_kernel5", "rms_norm_kernel",
    "paged_attention_v1_kernel", "transposeCoalesced", "sgemm_warptiling", "lltm_cuda_forward_kernel",
    "indented_in_a_namespace", "encoder_forward_kernel3", "flash_fwd_kernel", "histogram256Kernel",
)  # fmt: skip
if real := os.environ.get("ORBIT_SIGNATURES"):
    items = json.loads(Path(real).read_text(encoding="utf-8"))
    SIGNATURES, NAMES = (tuple(item[key] for item in items) for key in ("text", "name"))
SHEET = (
    "int main() {}\n"
    + "".join(
        f"\n{signature}\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  use(i);\n}}\n"
        for signature in SIGNATURES
    )
    + f"// SHEET {' '.join(NAMES)}\n"
)
"""Each kernel has a run and a profile once one of them was run and profiled: tests/e2e/recorded_worker.py."""
IN_VIEW = {
    "time": ("288 µs", "70.3 µs"),
    "outcome": ("⏱", "✓", "✗", "◔"),
    "verdict": ("memory 79%",),
    "commands": ("▶ Run",),
}
"""What a person is to see of a kernel without scrolling, by what it looks like. The outcome is the sign before the time."""
