// Every thread of a warp leaves the loop at another time.
__global__ void collatz(int *steps) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long x = i + 1;
    int count = 0;
    while (x != 1) {
        if (x % 2)
            x = 3 * x + 1;
        else
            x /= 2;
        ++count;
    }
    steps[i] = count;
}

int main() {
    int *steps, n = 1 << 20;
    cudaMalloc(&steps, n * sizeof(int));
    collatz<<<n / 256, 256>>>(steps);
    return cudaDeviceSynchronize();
}
