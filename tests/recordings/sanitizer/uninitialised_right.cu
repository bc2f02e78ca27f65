// the twin of uninitialised.cu, without the fault
__global__ void axpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float scaled = a * x[i];
  y[i] = scaled + y[i];
}

int main() {
  float *x, *y;
  cudaMalloc(&x, 1024 * sizeof(float));
  cudaMalloc(&y, 1024 * sizeof(float));
  cudaMemset(x, 0, 1024 * sizeof(float));
  cudaMemset(y, 0, 1024 * sizeof(float));
  axpy<<<4, 256>>>(1024, 2.0f, x, y);
  cudaDeviceSynchronize();
  cudaFree(x);
  cudaFree(y);
}
