// A name with a space.
__global__ void k(int *p) { *p = 1; }
