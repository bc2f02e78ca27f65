// A column of a 32 x 32 tile lies in one bank: 32 passes for every read of it.
__global__ void transpose_tile(const float *in, float *out) {
    __shared__ float tile[32][32];
    int block = blockIdx.x * 1024;
    tile[threadIdx.y][threadIdx.x] = in[block + threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    float sum = 0;
    for (int step = 0; step < 64; ++step)
        sum += tile[threadIdx.x][(threadIdx.y + step) & 31];
    out[block + threadIdx.y * 32 + threadIdx.x] = sum;
}

int main() {
    int blocks = 132 * 8;
    float *in, *out;
    cudaMalloc(&in, blocks * 1024 * sizeof(float));
    cudaMalloc(&out, blocks * 1024 * sizeof(float));
    cudaMemset(in, 0, blocks * 1024 * sizeof(float));
    transpose_tile<<<blocks, dim3(32, 32)>>>(in, out);
    return cudaDeviceSynchronize();
}
