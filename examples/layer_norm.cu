// Layer norm of every row, one block a row; the row stays in dynamic shared memory between the three passes.

__device__ float block_sum(float value, float* warps) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffff, value, offset);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? warps[threadIdx.x % 32] : 0.0f;
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffff, value, offset);
  return value;
}

// orbit: rows = 16384; columns = 4096; epsilon = 1e-5f
// orbit: x = randn(rows, columns); gamma = randn(columns); beta = randn(columns)
// orbit: y = empty(rows, columns); mean = empty(rows); rstd = empty(rows)
// orbit: launch layer_norm<<<rows, 256, columns * sizeof(float)>>>(columns, epsilon, x, gamma, beta, y, mean, rstd)
// orbit: expect y == layer_norm(x, columns, gamma, beta, epsilon)
// orbit: expect mean == x.mean(1)
// orbit: expect rstd == rsqrt(x.var(1, correction=0) + epsilon)
// orbit: case ragged: rows = 33, columns = 1001
// orbit: bytes 2 * sizeof(float) * rows * columns
__global__ void layer_norm(int columns, float epsilon, const float* __restrict__ x, const float* __restrict__ gamma,
                           const float* __restrict__ beta, float* __restrict__ y, float* __restrict__ mean,
                           float* __restrict__ rstd) {
  extern __shared__ float row[];
  __shared__ float warps[2][32];
  const float* from = x + (size_t)blockIdx.x * columns;
  float* to = y + (size_t)blockIdx.x * columns;

  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i] = from[i];
  float middle = block_sum(sum, warps[0]) / columns;

  float squares = 0.0f;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    float distance = row[i] - middle;
    squares += distance * distance;
  }
  float scale = rsqrtf(block_sum(squares, warps[1]) / columns + epsilon);

  for (int i = threadIdx.x; i < columns; i += blockDim.x) to[i] = (row[i] - middle) * scale * gamma[i] + beta[i];
  if (threadIdx.x == 0) {
    mean[blockIdx.x] = middle;
    rstd[blockIdx.x] = scale;
  }
}
