#pragma once
template <class T> __device__ T warp_sum(T v) {
  for (int i = 16; i; i /= 2) v += __shfl_xor_sync(~0u, v, i);
  return v;
}
