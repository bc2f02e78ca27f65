// 3 launches, then exit(3)
#include "common.cuh"

int main() {
  launch(buffer(), 3);
  cudaDeviceSynchronize();
  printf("leaving\n");
  exit(3);
}
