// the twin of misaligned.cu, without the fault
__global__ void copy4(const float* in, float4* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = *reinterpret_cast<const float4*>(in + 4 + 4 * i);
}

int main() {
  float* in;
  float4* out;
  cudaMalloc(&in, 132 * sizeof(float));
  cudaMalloc(&out, 32 * sizeof(float4));
  cudaMemset(in, 0, 132 * sizeof(float));
  copy4<<<1, 32>>>(in, out, 32);
  cudaDeviceSynchronize();
  cudaFree(in);
  cudaFree(out);
}
