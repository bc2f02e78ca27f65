// the twin of barrier_object.cu, without the fault
#include <cuda/barrier>

__global__ void waits(int* out) {
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
  if (threadIdx.x == 0) init(&barrier, blockDim.x);
  __syncthreads();
  auto token = barrier.arrive();
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
