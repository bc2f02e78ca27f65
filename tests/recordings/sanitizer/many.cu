// 4 blocks of 64 threads on two wrong lines: more findings than are printed
__global__ void stray(float* out, const float* in, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = in[i + n];  // PLANTED memcheck
  out[i + n] = value;  // PLANTED memcheck
}

int main() {
  float *in, *out;
  cudaMalloc(&in, 4096);
  cudaMalloc(&out, 4096);
  stray<<<4, 64>>>(out, in, 1024);
  cudaDeviceSynchronize();
}
