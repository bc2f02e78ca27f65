#include <part.h>
__global__ void k(int* x) { x[0] = PART; }
