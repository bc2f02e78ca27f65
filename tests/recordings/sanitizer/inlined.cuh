#pragma once

// inlined into its callers: the fault shows here, the author's line is the one that calls
__device__ __forceinline__ float read_at(const float* data, int i) {
  return data[i];
}

// a call of its own: the caller is a frame of the stack
__device__ __noinline__ void write_at(float* data, int i, float value) {
  data[i] = value;
}
