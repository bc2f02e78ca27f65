// It calls a function of
// another library of its BUILD file.
#include "callee.cuh"
__global__ void doubles(int *p) { p[threadIdx.x] = twice(p[threadIdx.x]); }
