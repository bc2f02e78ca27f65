// the twin of warp_mask.cu, without the fault
__global__ void first_half(int* out) {
  __shared__ int values[32];
  int i = threadIdx.x;
  unsigned mask = __ballot_sync(0xffffffffu, i < 16);
  if (i < 16) {
    values[i] = i;
    __syncwarp(mask);
    out[i] = values[(i + 1) % 16];
  }
  __syncthreads();
}

int main() {
  int* out;
  cudaMalloc(&out, 16 * sizeof(int));
  first_half<<<1, 32>>>(out);
  cudaDeviceSynchronize();
  cudaFree(out);
}
