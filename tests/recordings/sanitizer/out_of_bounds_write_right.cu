// the twin of out_of_bounds_write.cu, without the fault
__global__ void fill(float* out, int n, float value) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = value;
}

int main() {
  float* out;
  cudaMalloc(&out, 1000 * sizeof(float));
  fill<<<4, 256>>>(out, 1000, 1.0f);
  cudaDeviceSynchronize();
  cudaFree(out);
}
