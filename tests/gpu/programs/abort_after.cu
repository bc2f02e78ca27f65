// 3 launches, a synchronise, abort()
#include "common.cuh"

int main() {
  launch(buffer(), 3);
  cudaDeviceSynchronize();
  abort();
}
