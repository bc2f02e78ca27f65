// a stencil that looks at the neighbour of the last element
__global__ void smooth(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float here = in[i];
  float next = in[i + 1];  // PLANTED memcheck
  out[i] = 0.5f * (here + next);
}

int main() {
  float *in, *out;
  cudaMalloc(&in, 1024 * sizeof(float));
  cudaMalloc(&out, 1024 * sizeof(float));
  cudaMemset(in, 0, 1024 * sizeof(float));
  smooth<<<4, 256>>>(in, out, 1024);
  cudaDeviceSynchronize();
  cudaFree(in);
  cudaFree(out);
}
