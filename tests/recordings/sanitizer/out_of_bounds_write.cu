// the last block writes past the end: 1000 elements, 1024 threads
__global__ void fill(float* out, int n, float value) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = value;  // PLANTED memcheck
}

int main() {
  float* out;
  cudaMalloc(&out, 1000 * sizeof(float));
  fill<<<4, 256>>>(out, 1000, 1.0f);
  cudaDeviceSynchronize();
  cudaFree(out);
}
