// never ends: the recording is bounded by a time limit
__global__ void spins(volatile int* flag) {
  while (*flag == 0) {
  }
}

int main() {
  int* flag;
  cudaMalloc(&flag, sizeof(int));
  cudaMemset(flag, 0, sizeof(int));
  spins<<<1, 1>>>(flag);
  cudaDeviceSynchronize();
}
