// Two seeded mistakes: an undefined name inside a kernel, and a template that fails only when it is used.
#include <cstdio>

template <typename T>
__device__ T half_of(T value) {
  static_assert(sizeof(T) >= 4, "half_of needs at least 32 bits");
  return value / 2;
}

__global__ void scale(int n, float* x, short* counts) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    x[i] = x[i] * factor;
    counts[i] = half_of(counts[i]);
  }
}
