// A function of another file.
extern __device__ float elsewhere(float);
__device__ int undefined_here(int);
__global__ void k(float* x) { x[0] = elsewhere(x[1]) + undefined_here(2); }
