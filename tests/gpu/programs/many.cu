// 20,000 launches
#include "common.cuh"

int main() {
  launch(buffer(), 20'000);
  cudaDeviceSynchronize();
  printf("done\n");
}
