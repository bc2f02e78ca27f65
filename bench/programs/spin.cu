// Kernels of known length: one thread spins on %globaltimer for a stated time. What CUPTI reports above
// that time, `nothing` alone, is the fixed share of a launch.
#include <cuda_runtime.h>

__device__ unsigned long long now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

__global__ void nothing() {}

// The first and last reading go out, so that the host knows how long it really spun.
template <int NANOSECONDS>
__global__ void spin(unsigned long long* spun, int launch) {
  unsigned long long begin = now(), t = begin;
  while (t - begin < NANOSECONDS) t = now();
  spun[launch] = t - begin;
}

#include <cstdio>

constexpr int kLaunches = 200;

template <int NANOSECONDS>
void repeat(unsigned long long* spun) {
  static unsigned long long host[kLaunches];
  for (int i = 0; i < kLaunches; ++i) spin<NANOSECONDS><<<1, 1>>>(spun, i);
  cudaMemcpy(host, spun, sizeof host, cudaMemcpyDeviceToHost);
  printf("%d", NANOSECONDS);
  for (unsigned long long t : host) printf(" %llu", t);
  printf("\n");
}

int main() {
  unsigned long long* spun;
  cudaMalloc(&spun, kLaunches * sizeof *spun);
  for (int i = 0; i < kLaunches; ++i) nothing<<<1, 1>>>();
  cudaDeviceSynchronize();
  repeat<2000>(spun);
  repeat<5000>(spun);
  repeat<10000>(spun);
  repeat<50000>(spun);
  repeat<500000>(spun);
  return cudaGetLastError() != cudaSuccess;
}
