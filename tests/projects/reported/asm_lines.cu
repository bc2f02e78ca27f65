// Mistakes in asm statements over several lines.
#include <cuda_fp16.h>
#include <cstdint>
__device__ __forceinline__ uint32_t sm(const void* p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}
__global__ void a1(float* x) {
  asm volatile(
      "bad1.sync;\n");
  x[0] = 1;
}
__global__ void a2(uint32_t* x) {
  __shared__ int s[32];
  s[threadIdx.x] = x[1];
  asm volatile(
      "bad2.sync [%0];\n"
      :
      : "r"(sm(s)));
  x[0] = s[0];
}
__global__ void a3(half* x, float* y) {
  asm volatile("bad3.f16 %0;\n" :: "h"(__half_as_ushort(__float2half(y[0]))));
  x[0] = x[1];
}
__global__ void a4(float* d, uint64_t da, uint64_t db) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_asynk.sync.aligned.m64n8k16.f32.f16.f16 "
      "{%0, %1, %2, %3}, "
      "%4, %5, p, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]),
        "+f"(d[2]), "+f"(d[3])
      : "l"(da),
        "l"(db)
      : "memory");
}
#define BAD(r) asm volatile( \
   "bad5.f32 %0;\n" \
   : "=f"(r))
__global__ void a5(float* x) {
  float r;
  BAD(r);
  x[0] = r;
}
__global__ void a6(float* x) {
  asm volatile(R"(
    mov.f32 %0, 0f00000000;
    bad6.f32 %0;
  )" : "=f"(x[0]));
}
