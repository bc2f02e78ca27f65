// calls of the runtime that fail and are not looked at; the kernel itself is right
__global__ void set(int* data) { data[threadIdx.x] = threadIdx.x; }

int main() {
  int* data;
  cudaMalloc(&data, 256 * sizeof(int));
  set<<<1, 2048>>>(data);  // PLANTED: too many threads
  set<<<1, 256>>>(data);
  cudaMemcpy(nullptr, data, 256 * sizeof(int), cudaMemcpyDeviceToHost);  // PLANTED: no place to copy to
  cudaDeviceSynchronize();
  cudaFree(data);
  return 3;
}
