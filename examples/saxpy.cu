// y = a * x + y over 2^26 floats, and a tiled matrix product: what orbit-lsp shows on a program as it is.
#include <cstdio>
#include <cuda_runtime.h>

__global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

template <int TILE>
__global__ void __launch_bounds__(TILE* TILE) matmul(int n, const float* a, const float* b, float* c) {
  __shared__ float as[TILE][TILE], bs[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int tile = 0; tile < n / TILE; ++tile) {
    as[threadIdx.y][threadIdx.x] = a[row * n + tile * TILE + threadIdx.x];
    bs[threadIdx.y][threadIdx.x] = b[(tile * TILE + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

int main() {
  const int n = 1 << 26, side = 2048;
  float *x, *y, *c;
  if (cudaMalloc(&x, n * sizeof(float)) || cudaMalloc(&y, n * sizeof(float)) ||
      cudaMalloc(&c, side * side * sizeof(float)))
    return 1;
  cudaMemset(x, 0, n * sizeof(float));
  cudaMemset(y, 0, n * sizeof(float));
  for (int i = 0; i < 20; ++i) saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y);
  for (int i = 0; i < 10; ++i) matmul<32><<<dim3(side / 32, side / 32), dim3(32, 32)>>>(side, x, y, c);
  cudaError_t error = cudaDeviceSynchronize();
  printf("%s\n", cudaGetErrorString(error));
  return error != cudaSuccess;
}
