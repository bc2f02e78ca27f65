// the twin of barrier.cu, without the fault
__global__ void halve(float* data) {
  __shared__ float tile[64];
  int i = threadIdx.x;
  tile[i] = data[i];
  __syncthreads();
  if (i % 2 == 0) {
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
