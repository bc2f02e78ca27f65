// what is allocated is never given back
__global__ void set(int* data) { data[threadIdx.x] = threadIdx.x; }

int main() {
  int* data;
  cudaMalloc(&data, 256 * sizeof(int));
  set<<<1, 256>>>(data);
  cudaDeviceSynchronize();
}
