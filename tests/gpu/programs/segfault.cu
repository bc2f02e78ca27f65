// 3 launches, a blocking copy, a write through a null pointer
#include "common.cuh"

int main() {
  float* data = buffer();
  launch(data, 3);
  float first = 0;
  cudaMemcpy(&first, data, sizeof first, cudaMemcpyDeviceToHost);
  *static_cast<volatile int*>(nullptr) = 1;
}
