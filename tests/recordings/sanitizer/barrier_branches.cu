// two halves of each warp wait at barriers of their own, and a third place waits for both
__global__ void apart(float* data) {
  __shared__ float tile[64];
  int i = threadIdx.x;
  float x = data[i];
  if (i % 2 == 0) {
    for (int k = 0; k < 20; ++k) x = sinf(x) + data[(i + k) % 64];
    tile[i] = x;
    __syncthreads();  // PLANTED synccheck
    x += tile[(i + 2) % 64];
    for (int k = 0; k < 20; ++k) x = cosf(x) + data[(i + k) % 64];
  } else {
    for (int k = 0; k < 20; ++k) x = expf(x) - data[(i + k) % 64];
  }
  data[i] = x;
}

int main() {
  float* data;
  cudaMalloc(&data, 64 * sizeof(float));
  cudaMemset(data, 0, 64 * sizeof(float));
  apart<<<1, 64>>>(data);
  cudaDeviceSynchronize();
  cudaFree(data);
}
