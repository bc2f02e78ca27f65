// barrier.cu with its barrier in a function of its own
__device__ __noinline__ void wait_for_all() { __syncthreads(); }

__global__ void sum(const float* in, float* out, int n) {
  __shared__ float partial[64];
  int i = threadIdx.x;
  partial[i] = 0.0f;
  for (int start = 0; start < n; start += 64) {
    if (start + i < n) {
      partial[i] += in[start + i];
      wait_for_all();  // PLANTED synccheck
    }
  }
  if (i == 0) {
    float total = 0.0f;
    for (int k = 0; k < 64; ++k) total += partial[k];
    *out = total;
  }
}

int main() {
  float *in, *out;
  cudaMalloc(&in, 1000 * sizeof(float));
  cudaMalloc(&out, sizeof(float));
  cudaMemset(in, 0, 1000 * sizeof(float));
  sum<<<1, 64>>>(in, out, 1000);
  cudaDeviceSynchronize();
  cudaFree(in);
  cudaFree(out);
}
