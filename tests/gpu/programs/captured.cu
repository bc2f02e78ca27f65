// Kernels whose launches are captured, each in its own way.
#include <cstdio>
#include <cuda_fp16.h>
#include <vector>

template <int B, class T>
__global__ void block_sum(const T* x, T* out, int n) {
  __shared__ T part[B];
  int i = blockIdx.x * B + threadIdx.x;
  part[threadIdx.x] = i < n ? x[i] : T(0);
  __syncthreads();
  for (int s = B / 2; s > 0; s /= 2) {
    if (threadIdx.x < s) part[threadIdx.x] += part[threadIdx.x + s];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, part[0]);
}

__global__ void scale_inplace(double* x, size_t n, double factor, __half h) {
  size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (i < n) x[i] = x[i] * factor + double(__half2float(h));
}

__global__ void transpose(const float* in, float* out, int rows, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
  if (r < rows && c < cols) out[c * rows + r] = in[r * cols + c];
}

__global__ void histogram(const unsigned* keys, unsigned* counts, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&counts[keys[i] % 64], 1u);
}

__constant__ float coef[3];
__global__ void stencil(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i > 0 && i < n - 1) y[i] = coef[0] * x[i - 1] + coef[1] * x[i] + coef[2] * x[i + 1];
}

struct Params { int n; float a; };
__global__ void by_struct(Params p, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < p.n) y[i] *= p.a;
}

__global__ void in_graph(float* x) { x[threadIdx.x] += 1; }

template <class T> T* device(const std::vector<T>& h) {
  T* d;
  cudaMalloc(&d, h.size() * sizeof(T));
  cudaMemcpy(d, h.data(), h.size() * sizeof(T), cudaMemcpyHostToDevice);
  return d;
}

int main() {
  const int n = 70001, rows = 200, cols = 300;
  std::vector<float> f(n);
  std::vector<double> g(n);
  std::vector<unsigned> u(n);
  for (int i = 0; i < n; ++i) f[i] = (i * 37 % 101) * 0.02f - 1, g[i] = f[i], u[i] = i * 2654435761u;
  float *x = device(f), *y = device(f), *out = device(std::vector<float>(1));
  block_sum<256><<<(n + 255) / 256, 256>>>(x, out, n);
  scale_inplace<<<(n + 127) / 128, 128>>>(device(g), n, 0.1, __float2half(0.5f));
  transpose<<<dim3((cols + 31) / 32, (rows + 7) / 8), dim3(32, 8)>>>(x, y, rows, cols);
  histogram<<<(n + 255) / 256, 256>>>(device(u), device(std::vector<unsigned>(64)), n);
  const float c[3] = {0.25f, 0.5f, 0.25f};
  cudaMemcpyToSymbol(coef, c, sizeof c);
  stencil<<<(n + 255) / 256, 256>>>(x, y, n);
  by_struct<<<(n + 255) / 256, 256>>>(Params{n, 2.0f}, y);
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t started;
  cudaStreamCreate(&stream);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  in_graph<<<1, 32, 0, stream>>>(x);
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&started, graph, 0);
  cudaGraphLaunch(started, stream);
  cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorString(cudaGetLastError()));
  return 0;
}
