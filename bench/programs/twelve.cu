// Twelve kernels of at least 100 us, each bound by something else, launched 12 times in turn.
#include <cuda_runtime.h>

constexpr int N = 1 << 26;       // elements of the flat arrays
constexpr int SIDE = 8192;       // rows and columns of the square ones
constexpr int ROWS = 4096;       // of the matrix products

__global__ void copy(const float* x, float* y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += gridDim.x * blockDim.x) y[i] = x[i];
}
__global__ void saxpy(float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = a * x[i] + y[i];
}
__global__ void triad(const float4* x, const float4* y, float4* z) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 a = x[i], b = y[i];
  z[i] = make_float4(a.x + 3 * b.x, a.y + 3 * b.y, a.z + 3 * b.z, a.w + 3 * b.w);
}
__global__ void transpose_naive(const float* x, float* y) {
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  y[c * SIDE + r] = x[r * SIDE + c];
}
__global__ void transpose_tiled(const float* x, float* y) {
  __shared__ float t[32][33];
  t[threadIdx.y][threadIdx.x] = x[(blockIdx.y * 32 + threadIdx.y) * SIDE + blockIdx.x * 32 + threadIdx.x];
  __syncthreads();
  y[(blockIdx.x * 32 + threadIdx.y) * SIDE + blockIdx.y * 32 + threadIdx.x] = t[threadIdx.x][threadIdx.y];
}
__global__ void reduce(const float* x, float* out) {
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += gridDim.x * blockDim.x) sum += x[i];
  for (int k = 16; k; k /= 2) sum += __shfl_down_sync(~0u, sum, k);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}
__global__ void stencil(const float* x, float* y) {
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
  if (c < 1 || r < 1 || c >= SIDE - 1 || r >= SIDE - 1) return;
  int i = r * SIDE + c;
  y[i] = 0.2f * (x[i] + x[i - 1] + x[i + 1] + x[i - SIDE] + x[i + SIDE]);
}
__global__ void histogram(const unsigned* x, unsigned* bins) {
  __shared__ unsigned local[256];
  if (threadIdx.x < 256) local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < N; i += gridDim.x * blockDim.x)
    atomicAdd(&local[x[i] % 256], 1);
  __syncthreads();
  if (threadIdx.x < 256) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
__global__ void gather(const float* x, const unsigned* index, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[index[i] % N];
}
__global__ void matmul_naive(const float* a, const float* b, float* c) {
  int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < ROWS; ++k) sum += a[row * ROWS + k] * b[k * ROWS + col];
  c[row * ROWS + col] = sum;
}
__global__ void matmul_tiled(const float* a, const float* b, float* c) {
  __shared__ float as[32][32], bs[32][32];
  int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  float sum = 0;
  for (int t = 0; t < ROWS; t += 32) {
    as[threadIdx.y][threadIdx.x] = a[row * ROWS + t + threadIdx.x];
    bs[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * ROWS + col];
    __syncthreads();
    for (int k = 0; k < 32; ++k) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
    __syncthreads();
  }
  c[row * ROWS + col] = sum;
}
__global__ void arithmetic(float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float a = i * 1e-9f, b = 1.0001f, c = 0.5f;
  for (int k = 0; k < 2000; ++k) a = fmaf(a, b, c), c = fmaf(c, b, a) * 1e-3f;
  y[i] = a + c;
}
__global__ void fill(float* x, float* y, unsigned* index) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned h = i * 2654435761u;
  h = (h ^ (h >> 15)) * 2246822519u;
  x[i] = (h >> 8) * 1e-7f - 0.8f, y[i] = (h & 65535) * 1e-5f, index[i] = h;
}

int main() {
  float *x, *y, *z;
  unsigned *index, *bins;
  cudaMalloc(&x, N * 4), cudaMalloc(&y, N * 4), cudaMalloc(&z, N * 4), cudaMalloc(&index, N * 4);
  cudaMalloc(&bins, 256 * 4), cudaMemset(bins, 0, 256 * 4);
  fill<<<N / 256, 256>>>(x, y, index);
  dim3 tile(32, 32);
  for (int i = 0; i < 12; ++i) {
    copy<<<2048, 256>>>(x, z);
    saxpy<<<N / 256, 256>>>(1e-6f, x, y);
    triad<<<N / 1024, 256>>>((float4*)x, (float4*)y, (float4*)z);
    transpose_naive<<<dim3(SIDE / 32, SIDE / 32), tile>>>(x, z);
    transpose_tiled<<<dim3(SIDE / 32, SIDE / 32), tile>>>(x, z);
    reduce<<<1056, 256>>>(x, z);
    stencil<<<dim3(SIDE / 32, SIDE / 8), dim3(32, 8)>>>(x, z);
    histogram<<<1056, 256>>>(index, bins);
    gather<<<N / 256, 256>>>(x, index, z);
    matmul_naive<<<dim3(ROWS / 32, ROWS / 32), tile>>>(x, y, z);
    matmul_tiled<<<dim3(ROWS / 32, ROWS / 32), tile>>>(x, y, z);
    arithmetic<<<1 << 14, 256>>>(z);
  }
  return cudaDeviceSynchronize() != cudaSuccess;
}
