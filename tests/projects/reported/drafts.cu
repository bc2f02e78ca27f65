// Parameters that a draft can give values, and those that it cannot.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cstdint>
namespace deep { template <typename T, int BLOCK = 128> __global__ void __launch_bounds__(BLOCK) ln(const T* __restrict__ x, T* __restrict__ y, const float eps, int64_t rows, size_t cols) { y[0] = x[0]; } }
template <typename scalar_t, bool causal, typename... Rest> __global__ void attn(const scalar_t* q, Rest*... rest) { }
__global__ void h(const __half2* a, __nv_bfloat16* b, const __nv_fp8_e4m3* c, uint4* d, const void* e, void** f, char* g, bool* h, const unsigned char* i, long long* j) {}
__global__ void vols(volatile float* x, float const* const y, const int& n, int* __restrict__ const z) {}
__global__ void cplx(float2* in, double2* out, float4 k, dim3 g) {}
struct Params { float* p; int n; };
__global__ void st(const __grid_constant__ Params p, int n) {}
__global__ void nothing() {}
__global__ void cudatypes(cudaTextureObject_t tex, cudaSurfaceObject_t s, float* o) {}
extern "C" __global__ void name$dollar(float* x, int launch, int n, float expect, int gpu, int seed) { x[0] = launch; }
__global__ void shadow(float* randn, float* sum, int sizeof_, int n, float* zeros) {}
template <typename T> __global__ void onlyt(T t, T* p) {}
__global__ void two(float (*m)[16], float a[], float b[4]) {}
