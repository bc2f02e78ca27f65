// a block reverses 256 elements through shared memory and does not wait for itself
__global__ void reverse(const float* in, float* out) {
  __shared__ float tile[256];
  int i = threadIdx.x;
  tile[i] = in[i];  // PLANTED racecheck
  out[i] = tile[255 - i];  // PLANTED racecheck
}

int main() {
  float *in, *out;
  cudaMalloc(&in, 256 * sizeof(float));
  cudaMalloc(&out, 256 * sizeof(float));
  cudaMemset(in, 0, 256 * sizeof(float));
  reverse<<<1, 256>>>(in, out);
  cudaDeviceSynchronize();
  cudaFree(in);
  cudaFree(out);
}
