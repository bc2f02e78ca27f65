// a cuda::barrier that nobody has initialised
#include <cuda/barrier>

__global__ void waits(int* out) {
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  auto token = barrier.arrive();  // PLANTED synccheck
  barrier.wait(std::move(token));
  out[threadIdx.x] = threadIdx.x;
}

int main() {
  int* out;
  cudaMalloc(&out, 32 * sizeof(int));
  waits<<<1, 32>>>(out);
  cudaDeviceSynchronize();
  cudaFree(out);
}
