#include <cstdio>
#include <cstdlib>
#include <cassert>
#include <cooperative_groups.h>
#include "helper.h"
namespace cg = cooperative_groups;
__global__ void scale(float* x, const int* idx, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    x[idx[i]] = 2.0f * x[idx[i]];
  }
}
__global__ void inlined(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = fetch(x, i == 200 ? (1L << 40) : i);
  x[i] = v;
}
__global__ void called(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  put(x, i == 300 ? (1L << 40) : i, 1.f);
}
template <typename T, int N> __global__ void templated(View<T> v) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
  for (int k = 0; k < N; ++k) v[i + (i == 100 ? (1L << 40) : 0)] += k;
}
__global__ void misaligned(char* x) {
  int i = threadIdx.x;
  *(int*)(x + 4 * i + (i == 33 ? 1 : 0)) = i;
}
__global__ void asserted(int* x) {
  int i = threadIdx.x;
  assert(x[i] == 0 && "must be zero");
  x[i] = 1;
}
__global__ void trapped(int* x) {
  if (threadIdx.x == 70) __trap();
  x[threadIdx.x] = 1;
}
__device__ __noinline__ int deep(int* x, int n) {
  int a[64];
  for (int i = 0; i < 64; ++i) a[i] = x[i] + n;
  int s = deep(x, n + 1 + a[n & 63]);
  for (int i = 0; i < 64; ++i) s += a[(i * n) & 63];
  return s;
}
__global__ void overflow(int* x) {
  x[0] = deep(x, threadIdx.x);
}
extern __shared__ int smem[];
__global__ void sharedoob(int* x, int far) {
  smem[threadIdx.x] = threadIdx.x;
  __syncthreads();
  x[threadIdx.x] = smem[threadIdx.x + far];
}
typedef void (*Fn)(int*);
__global__ void badpc(int* x, Fn f) {
  f(x);
}
__global__ void constwrite(int* x) {
  int* p = (int*)8;
  *p = threadIdx.x;
}
__global__ void __cluster_dims__(2, 1, 1) dsmem(int* x, int far) {
  __shared__ int s[32];
  auto c = cg::this_cluster();
  s[threadIdx.x & 31] = 1;
  c.sync();
  int* o = c.map_shared_rank(s, 1 - c.block_rank());
  o[threadIdx.x + far] = 1;
  c.sync();
}
__global__ void fine(float* x) { x[threadIdx.x] += 1.f; }
int main(int argc, char** argv) {
  int which = atoi(argv[1]);
  printf("before\n");
  float* x; int* d;
  cudaMalloc(&x, 1 << 20); cudaMalloc(&d, 1 << 20);
  cudaMemset(x, 0, 1 << 20); cudaMemset(d, 0, 1 << 20);
  int* h = (int*)malloc(4096 * 4); for (int i = 0; i < 4096; ++i) h[i] = i; h[4001] = 1 << 30;
  if (which == 5) h[7] = 0;
  switch (which) {
    case 0: cudaMemcpy(d, h, 4096 * 4, cudaMemcpyHostToDevice); scale<<<16, 256>>>(x, d, 4096); break;
    case 1: inlined<<<4, 256>>>(x, 1024); break;
    case 2: called<<<4, 256>>>(x, 1024); break;
    case 3: templated<float, 4><<<4, 256>>>(View<float>{x}); break;
    case 4: misaligned<<<1, 64>>>((char*)x); break;
    case 5: cudaMemcpy(d, h, 64 * 4, cudaMemcpyHostToDevice); asserted<<<1, 64>>>(d); break;
    case 6: trapped<<<2, 128>>>(d); break;
    case 7: overflow<<<1, 32>>>(d); break;
    case 8: sharedoob<<<1, 64, 256>>>(d, 1 << 22); break;
    case 9: badpc<<<1, 32>>>(d, (Fn)0x1234560); break;
    case 10: constwrite<<<1, 32>>>(d); break;
    case 11: dsmem<<<2, 64>>>(d, 1 << 20); break;
    case 12: { // graph
      cudaStream_t s; cudaStreamCreate(&s); cudaGraph_t g; cudaGraphExec_t e;
      cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
      fine<<<1, 32, 0, s>>>(x); inlined<<<4, 256, 0, s>>>(x, 1024); fine<<<1, 32, 0, s>>>(x);
      cudaStreamEndCapture(s, &g); cudaGraphInstantiate(&e, g, 0); cudaGraphLaunch(e, s); break; }
    case 13: { for (int k = 0; k < 10; ++k) { cudaStream_t s; cudaStreamCreate(&s); inlined<<<4, 256, 0, s>>>(x, 1024); } break; }
    case 14: fine<<<1, 32>>>(x); break;
  }
  cudaError_t l = cudaGetLastError();
  cudaError_t e = cudaDeviceSynchronize();
  printf("launch %s, sync %s\n", cudaGetErrorName(l), cudaGetErrorName(e));
  e = cudaMemcpy(h, x, 64, cudaMemcpyDeviceToHost);
  printf("copy %s\n", cudaGetErrorName(e));
  fine<<<1, 32>>>(x);
  e = cudaDeviceSynchronize();
  printf("again %s\n", cudaGetErrorName(e));
  return e != 0;
}
