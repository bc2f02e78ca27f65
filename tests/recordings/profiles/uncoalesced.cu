// Neighbouring threads read 128 bytes apart: each needs a sector of its own, and uses four bytes of it.
__global__ void strided(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[(i * 32) % n];
}

int main() {
    int n = 1 << 24;
    float *in, *out;
    cudaMalloc(&in, n * sizeof(float));
    cudaMalloc(&out, n * sizeof(float));
    cudaMemset(in, 0, n * sizeof(float));
    strided<<<(1 << 22) / 256, 256>>>(in, out, n);
    return cudaDeviceSynchronize();
}
