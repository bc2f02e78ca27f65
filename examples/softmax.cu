// Softmax of every row, one block a row: largest element, sum, quotients.
#include <math_constants.h>

__device__ float warp_max(float value) {
  for (int offset = 16; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, offset));
  return value;
}

__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffff, value, offset);
  return value;
}

// orbit: rows = 8192; columns = 4096; step = 0.0f
// orbit: row = arange(rows).unsqueeze(1); y = empty(rows, columns)
// orbit: x = randn(rows, columns) + step * ((row == arange(columns)) + 2 * row)
// orbit: launch softmax<<<rows, 256>>>(columns, x, y)
// orbit: expect y == softmax(x, 1) within 1e-5, 1e-9
// orbit: case ragged: rows = 37, columns = 1003
// orbit: case narrow: rows = 5, columns = 7
// A largest element in every column, and rows apart: whoever takes another row's or misses it gets inf or 0 / 0.
// orbit: case steep: rows = 1003, columns = 1003, step = 200.0f
// orbit: bytes 2 * sizeof(float) * rows * columns
__global__ void softmax(int columns, const float* x, float* y) {
  __shared__ float warps[2][32];
  const float* from = x + (size_t)blockIdx.x * columns;
  float* to = y + (size_t)blockIdx.x * columns;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  float largest = -CUDART_INF_F;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) largest = fmaxf(largest, from[i]);
  largest = warp_max(largest);
  if (lane == 0) warps[0][warp] = largest;
  __syncthreads();
  largest = warp_max(lane < blockDim.x / 32 ? warps[0][lane] : -CUDART_INF_F);

  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += __expf(from[i] - largest);
  sum = warp_sum(sum);
  if (lane == 0) warps[1][warp] = sum;
  __syncthreads();
  sum = warp_sum(lane < blockDim.x / 32 ? warps[1][lane] : 0.0f);

  float scale = 1.0f / sum;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) to[i] = __expf(from[i] - largest) * scale;
}
