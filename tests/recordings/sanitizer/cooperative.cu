// a barrier of cooperative groups and a race through one: the frames lie in NVIDIA's headers
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__global__ void diverges(float* data, int n) {
  cg::thread_block block = cg::this_thread_block();
  for (int at = threadIdx.x; at < n; at += 64) {
    data[at] += 1.0f;
    block.sync();  // not by all: synccheck 2025.3 says nothing of it on sm_90
  }
  if (threadIdx.x == 0) data[0] += data[n - 1];
}

__global__ void sums(const float* in, float* out) {
  __shared__ float total;
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  float sum = cg::reduce(warp, in[threadIdx.x + 132], cg::plus<float>());  // PLANTED memcheck
  if (warp.thread_rank() == 0) total = sum;  // PLANTED racecheck
  out[threadIdx.x] = total;
}

int main() {
  float *in, *out;
  cudaMalloc(&in, 256 * sizeof(float));
  cudaMalloc(&out, 256 * sizeof(float));
  cudaMemset(in, 0, 256 * sizeof(float));
  cudaMemset(out, 0, 256 * sizeof(float));
  diverges<<<1, 64>>>(out, 250);
  sums<<<1, 128>>>(in, out);
  cudaDeviceSynchronize();
  cudaFree(in);
  cudaFree(out);
}
