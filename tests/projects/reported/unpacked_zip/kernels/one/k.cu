// A project without .git, whose headers
// lie two folders above
// the only build file beside it.
#include "lib.cuh"
__global__ void k(float *p) { *p = lib_value(); }
