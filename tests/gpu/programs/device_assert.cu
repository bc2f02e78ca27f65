// 3 launches, then a kernel whose assert fails; the program ignores the error
#include "common.cuh"
#include <cassert>

__global__ void asserts(float* data) { assert(data == nullptr); }

int main() {
  float* data = buffer();
  launch(data, 3);
  asserts<<<1, 1>>>(data);
  cudaDeviceSynchronize();
  return 5;
}
