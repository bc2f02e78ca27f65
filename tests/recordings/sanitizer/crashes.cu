// the host part dies of a signal after a faulty kernel
#include <cstdlib>

__global__ void set(int* data) { data[threadIdx.x + 1] = 1; }  // PLANTED memcheck

int main() {
  int* data;
  cudaMalloc(&data, 32 * sizeof(int));
  set<<<1, 32>>>(data);
  cudaDeviceSynchronize();
  abort();
}
