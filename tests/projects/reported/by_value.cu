// orbit: x = zeros(64)
// orbit: launch by_value<<<1, 32>>>(x, 3)
template <typename T, typename I> __global__ void by_value(T x, I i) { x[0] = i; }
// orbit: x = zeros(64)
// orbit: launch given<float*><<<1, 32>>>(x)
template <typename T> __global__ void given(T x) { x[0] = 1; }
// orbit: x = zeros(64)
// orbit: launch wrong<float><<<1, 32>>>(x)
template <typename T> __global__ void wrong(T x) { }
