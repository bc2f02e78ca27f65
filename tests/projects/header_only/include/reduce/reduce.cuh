#pragma once
#include <reduce/detail/warp.cuh>
template <class T> __global__ void reduce(T* x) { x[0] = warp_sum(x[threadIdx.x]); }
