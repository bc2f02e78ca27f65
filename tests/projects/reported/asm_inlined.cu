// A mistake in an asm statement that is inlined four times.
__device__ __forceinline__ float f(float x) {
  float r;
  asm volatile(
      "{\n"
      "  .reg .f32 t;\n"
      "  mov.f32 t, %1;\n"
      "  addd.f32 %0, t, t;\n"
      "}\n"
      : "=f"(r) : "f"(x));
  return r;
}
__global__ void k(float* x) {
#pragma unroll
  for (int i = 0; i < 4; i++) x[i] = f(x[i]);
}
