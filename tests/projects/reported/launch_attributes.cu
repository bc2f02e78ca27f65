// Launches that the kernel's attributes forbid.
enum { E = 32 };
// orbit: n = 1 << 20; x = empty(n)
// orbit: launch e<<<(n + 255) / 256, 256>>>(x)
__global__ void __launch_bounds__(E) e(float* x) { x[0] = 1; }

// orbit: n = 1 << 20; x = empty(n)
// orbit: launch bs<<<(n + 255) / 256, 256>>>(x)
__global__ void __block_size__((64, 1, 1)) bs(float* x) { x[0] = 1; }

// orbit: n = 1 << 20; x = empty(n)
// orbit: launch cd<<<3, 256>>>(x)
__global__ void __cluster_dims__(4, 1, 1) cd(float* x) { x[0] = 1; }

// orbit: n = 1 << 20; x = empty(n)
// orbit: launch both<<<16, 256>>>(x) cluster(2, 1, 1)
__global__ void __cluster_dims__(4, 1, 1) both(float* x) { x[0] = 1; }

// orbit: n = 1 << 20; x = empty(n)
// orbit: launch lb3<<<16, 256>>>(x) cluster(8, 1, 1)
__global__ void __launch_bounds__(256, 1, 4) lb3(float* x) { x[0] = 1; }
