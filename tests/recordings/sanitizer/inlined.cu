// faults in functions of a header: one inlined, one called, one in a template of this file
#include "inlined.cuh"

template <int Shift>
__device__ __forceinline__ float shifted(const float* in, int i) {
  return in[i + Shift];
}

__global__ void through_header(const float* in, float* out) {
  int i = threadIdx.x;
  out[i] = read_at(in, i + 1);  // PLANTED memcheck (in inlined.cuh)
}

__global__ void through_call(const float* in, float* out) {
  int i = threadIdx.x;
  write_at(out, i + 1, in[i]);  // PLANTED memcheck (in inlined.cuh)
}

template <typename T>
__global__ void through_template(const T* in, T* out) {
  int i = threadIdx.x;
  out[i] = shifted<1>(in, i);  // PLANTED memcheck (in shifted)
}

int main(int argc, char** argv) {
  float *in, *out;
  cudaMalloc(&in, 256 * sizeof(float));
  cudaMalloc(&out, 256 * sizeof(float));
  cudaMemset(in, 0, 256 * sizeof(float));
  through_header<<<1, 256>>>(in, out);
  through_call<<<1, 256>>>(in, out);
  through_template<<<1, 256>>>(in, out);
  cudaDeviceSynchronize();
  cudaFree(in);
  cudaFree(out);
}
