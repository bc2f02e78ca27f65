// One result an element: saxpy in a grid-stride loop, GELU on pairs of bfloat16.
#include <cuda_bf16.h>

// orbit: n = 1 << 26; a = 2.0f
// orbit: x = randn(n); y = randn(n)
// orbit: launch saxpy<<<132 * 8, 256>>>(n, a, x, y)
// orbit: expect y == a * x + y
// orbit: case ragged: n = 1000003
// orbit: bytes 3 * sizeof(float) * n; flops 2 * n
__global__ void saxpy(int n, float a, const float* x, float* y) {
  int stride = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) y[i] = a * x[i] + y[i];
}

__device__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }

// orbit: n = 1 << 27
// orbit: x = randn(n); y = empty(n)
// orbit: launch gelu_bf16<<<cdiv(n, 2 * 256), 256>>>(n, x, y)
// orbit: expect y == gelu(x)
// orbit: case odd: n = 99999
// orbit: bytes 2 * sizeof(__nv_bfloat16) * n
__global__ void gelu_bf16(int n, const __nv_bfloat16* x, __nv_bfloat16* y) {
  int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 1 < n) {
    float2 pair = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(x + i));
    *reinterpret_cast<__nv_bfloat162*>(y + i) = __floats2bfloat162_rn(gelu(pair.x), gelu(pair.y));
  } else if (i < n) {
    y[i] = __float2bfloat16(gelu(__bfloat162float(x[i])));
  }
}
