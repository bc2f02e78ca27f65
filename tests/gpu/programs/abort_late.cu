// 100 synchronised launches in a row, then abort(): none may be lost
#include "common.cuh"

int main() {
  float* data = buffer();
  for (int i = 0; i < 100; ++i) {
    launch(data);
    cudaDeviceSynchronize();
  }
  abort();
}
