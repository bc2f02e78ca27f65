// Most of the work is in cub, whose lines are not the author's.
#include <cub/block/block_radix_sort.cuh>

template <int ITEMS>
__global__ void sort_blocks(const unsigned *in, unsigned *out) {
    using Sort = cub::BlockRadixSort<unsigned, 256, ITEMS>;
    __shared__ typename Sort::TempStorage storage;
    unsigned keys[ITEMS];
    int first = (blockIdx.x * 256 + threadIdx.x) * ITEMS;
    for (int k = 0; k < ITEMS; ++k)
        keys[k] = in[first + k] * 2654435761u + first + k;
    Sort(storage).Sort(keys);
    for (int k = 0; k < ITEMS; ++k)
        out[first + k] = keys[k];
}

int main() {
    int n = 132 * 4 * 256 * 8;
    unsigned *in, *out;
    cudaMalloc(&in, n * sizeof(unsigned));
    cudaMalloc(&out, n * sizeof(unsigned));
    cudaMemset(in, 1, n * sizeof(unsigned));
    sort_blocks<8><<<132 * 4, 256>>>(in, out);
    return cudaDeviceSynchronize();
}
