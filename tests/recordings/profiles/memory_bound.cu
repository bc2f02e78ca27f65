// DRAM is the limit: two numbers read, one written, one multiply-add between.
#include <cstdlib>

__global__ void saxpy(int n, float a, const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}

int main() {
    int n = 1 << 24;
    float *x, *y;
    cudaMalloc(&x, n * sizeof(float));
    cudaMalloc(&y, n * sizeof(float));
    cudaMemset(x, 0, n * sizeof(float));
    cudaMemset(y, 0, n * sizeof(float));
    for (int launch = 0; launch < 3; ++launch)
        saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y);
    return cudaDeviceSynchronize();
}
