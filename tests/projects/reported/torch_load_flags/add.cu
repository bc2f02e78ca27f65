// add.py builds this file with
// flags of its own.
#include <cuda_fp16.h>
#include <torch/types.h>
__global__ void accumulate(const half *x, half *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}
