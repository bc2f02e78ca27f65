// The FMA pipe is the limit: 4096 dependent steps in each of eight independent chains.
__global__ void polynomial(float *out, float x) {
    float a[8];
    for (int k = 0; k < 8; ++k)
        a[k] = threadIdx.x + k;
    for (int step = 0; step < 4096; ++step)
        for (int k = 0; k < 8; ++k)
            a[k] = a[k] * x + 1.0f;
    float sum = 0;
    for (int k = 0; k < 8; ++k)
        sum += a[k];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

int main() {
    float *out;
    cudaMalloc(&out, 132 * 8 * 256 * sizeof(float));
    polynomial<<<132 * 8, 256>>>(out, 0.999f);
    return cudaDeviceSynchronize();
}
