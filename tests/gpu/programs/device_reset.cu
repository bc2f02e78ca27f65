// 3 launches, cudaDeviceReset, 2 launches in the new context
#include "common.cuh"

int main() {
  launch(buffer(), 3);
  if (cudaDeviceReset() != cudaSuccess) return 1;
  launch(buffer(), 2);
  if (cudaDeviceReset() != cudaSuccess) return 2;
  printf("reset\n");
}
