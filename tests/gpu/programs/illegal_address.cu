// 3 launches, then a kernel that writes where nothing is; the error is ignored
#include "common.cuh"

__global__ void strays(int* nowhere) { nowhere[threadIdx.x] = 1; }

int main() {
  launch(buffer(), 3);
  cudaDeviceSynchronize();
  strays<<<1, 32>>>(reinterpret_cast<int*>(0x10));
  cudaDeviceSynchronize();
  printf("all is well\n");
}
