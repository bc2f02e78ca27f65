// The same with a semicolon.
#define OPS(X) X(add, +) X(sub, -) X(mul, *)
#define DEF(n, op) __global__ void ew_##n(double* a, const double* b) { double s = 0; for (int i = 0; i < 64; i++) s += sqrt(a[i]) op exp(b[i]); a[threadIdx.x] = s; }
OPS(DEF);
__global__ void __launch_bounds__(256) mine(float* x) { x[0] = 1; }
