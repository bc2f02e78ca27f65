// One warp follows a chain of pointers: every load waits for the one before.
#include <vector>

__global__ void chase(const int *next, int steps, int *out) {
    int at = threadIdx.x;
    for (int step = 0; step < steps; ++step)
        at = next[at];
    out[threadIdx.x] = at;
}

int main() {
    const int n = 1 << 22;
    std::vector<int> next(n);
    for (int i = 0; i < n; ++i)
        next[i] = (i + 999983) % n;  // a prime step: all of it is visited, far apart
    int *d, *out;
    cudaMalloc(&d, n * sizeof(int));
    cudaMalloc(&out, 32 * sizeof(int));
    cudaMemcpy(d, next.data(), n * sizeof(int), cudaMemcpyHostToDevice);
    chase<<<1, 32>>>(d, 2000, out);
    return cudaDeviceSynchronize();
}
