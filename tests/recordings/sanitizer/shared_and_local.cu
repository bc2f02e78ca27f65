// past the end of dynamic shared memory; then a kernel that must not run any more
extern __shared__ float tile[];

__global__ void past_the_tile(float* out) {
  tile[threadIdx.x + 1] = 1.0f;  // PLANTED memcheck
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x];
}

__global__ void after(float* out) { out[threadIdx.x] = 2.0f; }

int main() {
  float* out;
  cudaMalloc(&out, 256 * sizeof(float));
  past_the_tile<<<1, 256, 256 * sizeof(float)>>>(out);
  cudaDeviceSynchronize();
  after<<<1, 256>>>(out);
  cudaDeviceSynchronize();
  cudaFree(out);
}
