// Twenty kernels of 20 us to 5 ms, each launched 21 times: times in a program, beside those of ncu (bench/in_program.py).
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define CHECK(call)                                                                              \
  do {                                                                                           \
    const cudaError_t error = (call);                                                            \
    if (error != cudaSuccess) { fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); exit(1); } \
  } while (0)

__device__ unsigned long long now() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}

// its own length, for what a tool adds to a launch
__global__ void orbit_clock(unsigned long long* length) {
  const unsigned long long begin = now();
  while (now() - begin < 20000) {}
  *length = now() - begin;
}

#define AT const int i = blockIdx.x * blockDim.x + threadIdx.x
__global__ void copy(const float* x, float* y) { AT; y[i] = x[i]; }
__global__ void copy4(const float4* x, float4* y) { AT; y[i] = x[i]; }
__global__ void mul(const float* x, float* y) { AT; y[i] = 3.f * x[i]; }
__global__ void add(const float* x, const float* z, float* y) { AT; y[i] = x[i] + z[i]; }
__global__ void triad(const float* x, const float* z, float* y) { AT; y[i] = x[i] + 3.f * z[i]; }
__global__ void saxpy(float a, const float* x, float* y) { AT; y[i] = a * x[i] + y[i]; }
__global__ void fill(float* y) { AT; y[i] = 1.f; }
__global__ void read_only(const float* x, float* y) { AT; if (x[i] == -1.25f) y[0] = 1.f; }

__global__ void transpose_naive(const float* x, float* y, int n) {
  const int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) y[size_t(c) * n + r + k] = x[size_t(r + k) * n + c];
}

__global__ void transpose_tiled(const float* x, float* y, int n) {
  __shared__ float tile[32][33];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = x[size_t(r + k) * n + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) y[size_t(r + k) * n + c] = tile[threadIdx.x][threadIdx.y + k];
}

__global__ void stencil2d(const float* x, float* y, int n) {
  const int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
  if (c < 1 || r < 1 || c >= n - 1 || r >= n - 1) return;
  const float* p = x + size_t(r) * n + c;
  y[size_t(r) * n + c] = 0.25f * (p[-1] + p[1] + p[-n] + p[n]) - p[0];
}

__global__ void stencil3d(const float* x, float* y, int n) {
  const int c = blockIdx.x * 64 + threadIdx.x, r = blockIdx.y * 4 + threadIdx.y, s = blockIdx.z;
  if (c < 1 || r < 1 || s < 1 || c >= n - 1 || r >= n - 1 || s >= n - 1) return;
  const size_t at = (size_t(s) * n + r) * n + c;
  y[at] = x[at - 1] + x[at + 1] + x[at - n] + x[at + n] + x[at - size_t(n) * n] + x[at + size_t(n) * n] - 6.f * x[at];
}

__global__ void block_sums(const float* x, float* y) {
  __shared__ float part[256];
  AT;
  part[threadIdx.x] = x[i];
  for (int k = 128; k > 0; k /= 2) {
    __syncthreads();
    if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
  }
  if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}

__global__ void sum_atomic(const float* x, float* y) {
  AT;
  float v = x[i];
  for (int k = 16; k > 0; k /= 2) v += __shfl_down_sync(~0u, v, k);
  if (threadIdx.x % 32 == 0) atomicAdd(y + (blockIdx.x & 1023), v);
}

__global__ void histogram(const float* x, unsigned* y) {
  __shared__ unsigned bins[256];
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (int k = 0; k < 16; ++k) atomicAdd(&bins[__float_as_uint(x[(size_t(blockIdx.x) * 16 + k) * 256 + threadIdx.x]) & 255], 1u);
  __syncthreads();
  atomicAdd(&y[threadIdx.x], bins[threadIdx.x]);
}

__global__ void hash(unsigned* y, int rounds) {
  AT;
  unsigned v = i;
  for (int k = 0; k < rounds; ++k) v = (v ^ 61u ^ (v >> 16)) * 0x27d4eb2du;
  y[i] = v;
}

__global__ void row_softmax(const float* x, float* y, int n) {
  __shared__ float part[32];
  const float* row = x + size_t(blockIdx.x) * n;
  float sum = 0.f;
  for (int k = threadIdx.x; k < n; k += blockDim.x) sum += __expf(row[k]);
  for (int k = 16; k > 0; k /= 2) sum += __shfl_down_sync(~0u, sum, k);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.f;
  for (int k = 0; k < blockDim.x / 32; ++k) sum += part[k];
  for (int k = threadIdx.x; k < n; k += blockDim.x) y[size_t(blockIdx.x) * n + k] = __expf(row[k]) / sum;
}

__global__ void matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float s[32][32], t[32][32];
  const int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  float sum = 0.f;
  for (int k = 0; k < n; k += 32) {
    s[threadIdx.y][threadIdx.x] = a[size_t(row) * n + k + threadIdx.x];
    t[threadIdx.y][threadIdx.x] = b[size_t(k + threadIdx.y) * n + col];
    __syncthreads();
    for (int j = 0; j < 32; ++j) sum += s[threadIdx.y][j] * t[j][threadIdx.x];
    __syncthreads();
  }
  c[size_t(row) * n + col] = sum;
}

__global__ void gather(const float* x, const unsigned* at, float* y) { AT; y[i] = x[at[i] & 0x3ffffff]; }
__global__ void small_saxpy(float a, const float* x, float* y) { AT; y[i] = a * x[i] + y[i]; }

int main() {
  const int n = 1 << 26;
  float *x, *y, *z;
  unsigned long long* length;
  CHECK(cudaMalloc(&x, n * 4ll)); CHECK(cudaMalloc(&y, n * 4ll)); CHECK(cudaMalloc(&z, n * 4ll));
  CHECK(cudaMallocHost(&length, 8));
  CHECK(cudaMemset(x, 0, n * 4ll)); CHECK(cudaMemset(y, 0, n * 4ll)); CHECK(cudaMemset(z, 0, n * 4ll));
  hash<<<n / 256, 256>>>(reinterpret_cast<unsigned*>(z), 8);
#define TIMES(...) for (int k = 0; k < 21; ++k) __VA_ARGS__
  TIMES(orbit_clock<<<1, 1>>>(length));
  TIMES(copy<<<n / 256, 256>>>(x, y));
  TIMES(copy4<<<n / 1024, 256>>>(reinterpret_cast<float4*>(x), reinterpret_cast<float4*>(y)));
  TIMES(mul<<<n / 256, 256>>>(x, y));
  TIMES(add<<<n / 256, 256>>>(x, z, y));
  TIMES(triad<<<n / 128, 128>>>(x, z, y));
  TIMES(saxpy<<<n / 256, 256>>>(2.f, x, y));
  TIMES(fill<<<n / 256, 256>>>(y));
  TIMES(read_only<<<n / 256, 256>>>(x, y));
  TIMES(transpose_naive<<<dim3(256, 256), dim3(32, 8)>>>(x, y, 8192));
  TIMES(transpose_tiled<<<dim3(256, 256), dim3(32, 8)>>>(x, y, 8192));
  TIMES(stencil2d<<<dim3(256, 1024), dim3(32, 8)>>>(x, y, 8192));
  TIMES(stencil3d<<<dim3(6, 100, 400), dim3(64, 4)>>>(x, y, 400));
  TIMES(block_sums<<<n / 256, 256>>>(x, y));
  TIMES(sum_atomic<<<n / 256, 256>>>(x, y));
  TIMES(histogram<<<n / 4096, 256>>>(x, reinterpret_cast<unsigned*>(y)));
  TIMES(hash<<<1 << 16, 256>>>(reinterpret_cast<unsigned*>(y), 200));
  TIMES(row_softmax<<<16384, 256>>>(x, y, 4096));
  TIMES(matmul<<<dim3(64, 64), dim3(32, 32)>>>(x, z, y, 2048));
  TIMES(gather<<<1 << 16, 256>>>(x, reinterpret_cast<unsigned*>(z), y));
  TIMES(small_saxpy<<<1 << 15, 256>>>(2.f, x, y));
  CHECK(cudaDeviceSynchronize());
  printf("%llu\n", *length);
}
