// The default build type
// of its CMakeLists.txt decides its flags.
__global__ void k(float *p, const float *q) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    p[i] = sinf(p[i]) / q[i] + powf(q[i], p[i]) + expf(q[i]) / logf(p[i]);
}
