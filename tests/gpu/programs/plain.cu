// 3 launches, an ordinary end
#include "common.cuh"

int main() {
  launch(buffer(), 3);
  cudaDeviceSynchronize();
  printf("done\n");
}
