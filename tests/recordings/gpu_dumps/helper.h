#pragma once
__device__ __forceinline__ float fetch(const float* p, long i) {
  return p[i] * 2.0f;
}
template <typename T> struct View { T* p; __device__ T& operator[](long i) const { return p[i]; } };
__device__ __noinline__ void put(float* p, long i, float v) {
  p[i] = v;
}
