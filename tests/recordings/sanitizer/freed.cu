// memory that was given back is written, and given back again; another allocation never is
__global__ void set(int* data) { data[threadIdx.x] = threadIdx.x; }  // PLANTED memcheck

int main() {
  int *data, *kept;
  cudaMalloc(&data, 4 * sizeof(int));
  cudaMalloc(&kept, 4096);  // PLANTED leak
  cudaFree(data);
  set<<<1, 4>>>(data);
  cudaDeviceSynchronize();
  cudaFree(data);  // PLANTED double free
  return 0;
}
