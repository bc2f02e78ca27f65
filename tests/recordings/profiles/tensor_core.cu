// Matrix fragments that stay in registers: the tensor cores are the limit.
#include <mma.h>
using namespace nvcuda;

__global__ void fragments(const half *in, float *out) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[4];
    wmma::load_matrix_sync(a, in, 16);
    wmma::load_matrix_sync(b, in, 16);
    for (int k = 0; k < 4; ++k)
        wmma::fill_fragment(sum[k], 0.0f);
    for (int step = 0; step < 1024; ++step)
        for (int k = 0; k < 4; ++k)
            wmma::mma_sync(sum[k], a, b, sum[k]);
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    for (int k = 0; k < 4; ++k)
        wmma::store_matrix_sync(out + (warp * 4 + k) * 256, sum[k], 16, wmma::mem_row_major);
}

int main() {
    int blocks = 132 * 2, warps = blocks * 8;
    half *in;
    float *out;
    cudaMalloc(&in, 256 * sizeof(half));
    cudaMemset(in, 0, 256 * sizeof(half));
    cudaMalloc(&out, warps * 4 * 256 * sizeof(float));
    fragments<<<blocks, 256>>>(in, out);
    return cudaDeviceSynchronize();
}
