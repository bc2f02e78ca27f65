// How often every byte occurs: counted in shared memory, added to the result once a block.

// orbit: n = 1 << 27
// orbit: data = randint(0, 256, n); counts = zeros(256)
// orbit: launch histogram<<<132 * 8, 256>>>(n, data, counts)
// orbit: expect counts == bincount(data, 256)
// orbit: case ragged: n = 1000003
// orbit: bytes n
__global__ void histogram(int n, const unsigned char* data, unsigned int* counts) {
  __shared__ unsigned int bins[256];
  for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) bins[bin] = 0;
  __syncthreads();
  int stride = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) atomicAdd(&bins[data[i]], 1);
  __syncthreads();
  for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) atomicAdd(&counts[bin], bins[bin]);
}
