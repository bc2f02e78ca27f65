// A pack takes any number of arguments.
#include <type_traits>
template <int B = 128> __global__ void t0(float* x) { x[0] = B; }
template <typename T, int B = 128> __global__ void t1(const T* x, T* y) { y[0] = x[0] + T(B); }
template <typename T = float> __global__ void t2(float* x) { x[0] = T(1); }
// orbit: x = zeros(64, dtype=float32); y = zeros(64, dtype=float32); i = zeros(64, dtype=int32)
// orbit: launch t3<<<1, 32>>>(x, i)
template <typename... Ts> __global__ void t3(Ts*... x) {}
template <typename T> __global__ void t4(T* x) { x[0] = 1; }
__global__ void t5(float* x) { x[0] = 1; }
__global__ void t5(int* x) { x[0] = 1; }
namespace q { template <typename T> __global__ void t6(T* x, int n) { x[0] = n; } }
