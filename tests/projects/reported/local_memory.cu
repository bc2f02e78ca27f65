// More local memory than a thread can have.
__global__ void big(float* x, int n) { float a[300000]; for (int i = 0; i < n; i++) a[i] = x[i]; x[0] = a[n / 2]; }
