#include "config.h"
__global__ void __launch_bounds__(BLOCK) fill(int* x) { x[threadIdx.x] = BLOCK; }
