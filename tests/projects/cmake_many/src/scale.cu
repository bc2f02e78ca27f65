#include <scale.cuh>
__global__ void scale(float* x) { x[threadIdx.x] *= factor(); }
