#include <reduce/reduce.cuh>
template __global__ void reduce<float>(float*);
