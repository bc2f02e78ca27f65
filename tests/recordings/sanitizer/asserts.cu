// a device assert: the program ends by itself, with another exit code
#include <cassert>
#include <cstdio>

__global__ void asserts(int n) { assert(threadIdx.x < n); }  // PLANTED assert

int main() {
  asserts<<<1, 8>>>(4);
  if (cudaDeviceSynchronize() != cudaSuccess) {
    printf("========= not from the sanitizer\n");
    return 5;
  }
}
