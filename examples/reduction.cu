// Sum of an array in two launches of one kernel: warp shuffles, then one warp over the warps of the block.

__device__ float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffff, value, offset);
  return value;
}

// orbit: n = 1 << 27; blocks = 132 * 4
// orbit: x = randn(n); partial = empty(blocks); total = empty(1)
// orbit: launch reduce_sum<<<blocks, 512>>>(n, x, partial)
// orbit: launch reduce_sum<<<1, 512>>>(blocks, partial, total)
// orbit: expect total == sum(x)
// orbit: case ragged: n = 100003
// orbit: case few: n = 19, blocks = 3
// orbit: bytes sizeof(float) * n; flops n
__global__ void reduce_sum(int n, const float* x, float* out) {
  __shared__ float warps[32];
  int stride = gridDim.x * blockDim.x;
  float sum = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) sum += x[i];
  sum = warp_sum(sum);
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) warps[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    sum = warp_sum(lane < blockDim.x / 32 ? warps[lane] : 0.0f);
    if (lane == 0) out[blockIdx.x] = sum;
  }
}
