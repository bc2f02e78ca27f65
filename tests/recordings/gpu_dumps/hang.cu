#include <cstdio>
#include <cstdlib>
#include <cuda/barrier>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void spin(volatile int* flag, float* x) {
  if (threadIdx.x < 32) {
    while (*flag == 0) { }
  }
  __syncthreads();
  x[threadIdx.x] = 1.f;
}
__global__ void loop(float* x) {
  float v = x[0];
  while (v < 1.f) {
    v *= 0.5f;
    x[threadIdx.x] = v;
  }
}
__global__ void phase(float* x) {
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  if (threadIdx.x == 0) init(&bar, blockDim.x + 1);
  __syncthreads();
  bar.arrive_and_wait();
  x[threadIdx.x] = 1.f;
}
__global__ void __cluster_dims__(2, 1, 1) halfcluster(float* x, volatile int* f) {
  auto c = cg::this_cluster();
  if (c.block_rank() == 0) c.sync();
  else while (*f == 0) { }
  x[threadIdx.x] = 1.f;
}
__global__ void gridsync(volatile unsigned* count, float* x) {
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd((unsigned*)count, 1);
    while (*count < gridDim.x) { }
  }
  __syncthreads();
  x[threadIdx.x] = 1.f;
}
__global__ void diverged(volatile int* f, float* x) {
  if (threadIdx.x % 2) {
    __syncwarp();
    x[threadIdx.x] = 1.f;
  } else {
    while (*f == 0) { }
    __syncwarp();
  }
}
__global__ void mbar(float* x) {
  __shared__ unsigned long long bar;
  unsigned a = (unsigned)__cvta_generic_to_shared(&bar);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 2;" :: "r"(a));
  __syncthreads();
  unsigned done = 0;
  while (!done) {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(a));
  }
  x[threadIdx.x] = 1.f;
}
__global__ void slow(float* x, long n) {
  float v = x[threadIdx.x];
  for (long i = 0; i < n; ++i) v = v * 1.0001f + 0.5f;
  x[threadIdx.x] = v;
}
int main(int argc, char** argv) {
  int which = atoi(argv[1]);
  float* x; int* d; cudaMalloc(&x, 1 << 20); cudaMalloc(&d, 1 << 20); cudaMemset(x, 0, 1 << 20); cudaMemset(d, 0, 1 << 20);
  switch (which) {
    case 0: spin<<<4, 128>>>(d, x); break;
    case 1: loop<<<2, 64>>>(x); break;
    case 2: phase<<<2, 128>>>(x); break;
    case 3: halfcluster<<<4, 64>>>(x, d); break;
    case 4: gridsync<<<20000, 128>>>((unsigned*)d, x); break;
    case 5: diverged<<<1, 64>>>(d, x); break;
    case 6: mbar<<<1, 64>>>(x); break;
    case 7: slow<<<100000, 256>>>(x, 2000000); break;
  }
  printf("launched\n"); fflush(stdout);
  cudaError_t e = cudaDeviceSynchronize();
  printf("sync %s\n", cudaGetErrorName(e));
}
