// More live values than the 32 registers it is allowed: they go to local memory and come back.
__global__ void __launch_bounds__(1024, 2) spilling(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v[64];
#pragma unroll
    for (int k = 0; k < 64; ++k)
        v[k] = in[(i + k * 37) % n];
    float sum = 0;
#pragma unroll
    for (int k = 0; k < 64; ++k)
#pragma unroll
        for (int j = 0; j < 4; ++j)
            sum += v[k] * v[(k * 7 + j * 13) % 64];
    out[i] = sum;
}

int main() {
    int n = 1 << 19;
    float *in, *out;
    cudaMalloc(&in, n * sizeof(float));
    cudaMalloc(&out, n * sizeof(float));
    cudaMemset(in, 0, n * sizeof(float));
    spilling<<<n / 1024, 1024>>>(in, out, n);
    return cudaDeviceSynchronize();
}
