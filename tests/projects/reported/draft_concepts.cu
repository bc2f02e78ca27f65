// Template headers of C++20.
#include <concepts>
template <typename T> concept Num = std::integral<T> || std::floating_point<T>;
template <Num T> __global__ void c1(T* x) { x[0] = T(1); }
template <typename T> requires Num<T> __global__ void c2(T* x) { x[0] = T(1); }
template <typename T> requires (sizeof(T) == 4) && requires(T t) { t + t; }
__global__ void c3(T* x) { x[0] = T(1); }
template <typename T> __global__ void c4(T* x) requires Num<T> { x[0] = T(1); }
__global__ void c5(Num auto* x) { x[0] = 1; }
template <auto N> __global__ void c6(float* x) { x[0] = N; }
template <typename... Ts> __global__ void c7(Ts*... x) { ((x[0] = Ts(1)), ...); }
template <template <typename> class Op, typename T = float, int N = (3 > 2 ? 1 : 2)> __global__ void c8(T* x) { x[0] = Op<T>{}(x[0]); }
template __global__ void c1<float>(float*);
template __global__ void c2<float>(float*);
template __global__ void c3<float>(float*);
template __global__ void c4<float>(float*);
template __global__ void c6<3>(float*);
template __global__ void c7<float, int>(float*, int*);
