// half of a warp waits where the other half never comes by
__global__ void halve(float* data) {
  __shared__ float tile[64];
  int i = threadIdx.x;
  tile[i] = data[i];
  if (i % 2 == 0) {
    __syncthreads();  // PLANTED synccheck
    data[i] = tile[i] * 0.5f;
  }
}

int main() {
  float* data;
  cudaMalloc(&data, 64 * sizeof(float));
  cudaMemset(data, 0, 64 * sizeof(float));
  halve<<<1, 64>>>(data);
  cudaDeviceSynchronize();
  cudaFree(data);
}
