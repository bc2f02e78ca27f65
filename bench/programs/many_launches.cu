// As many launches as it is told, of two kernels in turn.
#include <cstdlib>
#include <cuda_runtime.h>

__global__ void first(int* x) { if (x) *x = 1; }
__global__ void second(int* x) { if (x) *x = 2; }

int main(int, char** argv) {
  for (int left = atoi(argv[1]); left > 0; --left) {
    if (left % 2) first<<<1, 32>>>(nullptr);
    else second<<<4, 32>>>(nullptr);
  }
  return cudaDeviceSynchronize() != cudaSuccess;
}
