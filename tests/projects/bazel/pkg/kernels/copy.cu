#include "pkg/kernels/copy.cuh"
#include "absent_lib/span.h"
__global__ void copy(span s) { s.to[threadIdx.x] = s.from[threadIdx.x] * one(); }
