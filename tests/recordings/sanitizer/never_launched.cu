// CUDA is used and the kernel is never launched
__global__ void k(int* data) { data[0] = 1; }

int main() {
  int* data;
  cudaMalloc(&data, 4);
  cudaFree(data);
}
