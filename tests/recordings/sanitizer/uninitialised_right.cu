// the twin of uninitialised.cu, without the fault
__global__ void axpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float scaled = a * x[i];
  y[i] = scaled + y[i];
}

int main() {
  float *x, *y;
  cudaMalloc(&x, 32 * sizeof(float));
  cudaMalloc(&y, 32 * sizeof(float));
  cudaMemset(x, 0, 32 * sizeof(float));
  cudaMemset(y, 0, 32 * sizeof(float));
  axpy<<<1, 32>>>(32, 2.0f, x, y);
  cudaDeviceSynchronize();
  cudaFree(x);
  cudaFree(y);
}
