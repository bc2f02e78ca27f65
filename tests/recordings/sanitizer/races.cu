// a write after a read, two writes at once, and a race over global memory
__global__ void rotates(float* data) {
  __shared__ float tile[128];
  int i = threadIdx.x;
  tile[i] = data[i];
  __syncthreads();
  float next = tile[(i + 1) % 128];  // PLANTED racecheck
  tile[i] = next;  // PLANTED racecheck
  __syncthreads();
  data[i] = tile[i];
}

__global__ void all_write(int* out) {
  __shared__ int winner;
  winner = threadIdx.x;  // PLANTED racecheck
  __syncthreads();
  out[threadIdx.x] = winner;
}

__global__ void counts(int* counter) {
  *counter = *counter + 1;  // over global memory
}

int main() {
  float* data;
  cudaMalloc(&data, 128 * sizeof(float));
  cudaMemset(data, 0, 128 * sizeof(float));
  rotates<<<1, 128>>>(data);
  all_write<<<1, 128>>>(reinterpret_cast<int*>(data));
  counts<<<4, 32>>>(reinterpret_cast<int*>(data));
  cudaDeviceSynchronize();
  cudaFree(data);
}
