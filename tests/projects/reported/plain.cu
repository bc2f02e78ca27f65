// A kernel in no project.
//
__global__ void k(int *p) { *p = 1; }
