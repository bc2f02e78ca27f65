// 1-D convolution with 17 taps from constant memory; beyond both ends the signal is zero.

constexpr int TAPS = 17, RADIUS = TAPS / 2;

__constant__ float weights[TAPS];

// orbit: n = 1 << 25; taps = randn(17)
// orbit: x = randn(n); y = empty(n)
// orbit: symbol weights = taps
// orbit: launch convolve<<<cdiv(n, 256), 256>>>(n, x, y)
// orbit: expect y == cat({zeros(8), x, zeros(8)})[arange(n).unsqueeze(1) + arange(17)] @ taps
// orbit: case ragged: n = 100003
// orbit: case shorter_than_the_taps: n = 5
// orbit: bytes 2 * sizeof(float) * n; flops 2 * 17 * n
__global__ void convolve(int n, const float* __restrict__ x, float* __restrict__ y) {
  __shared__ float window[256 + 2 * RADIUS];
  int start = blockIdx.x * blockDim.x - RADIUS;
  for (int i = threadIdx.x; i < blockDim.x + 2 * RADIUS; i += blockDim.x)
    window[i] = start + i >= 0 && start + i < n ? x[start + i] : 0.0f;
  __syncthreads();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0.0f;
#pragma unroll
  for (int tap = 0; tap < TAPS; ++tap) sum += weights[tap] * window[threadIdx.x + tap];
  y[i] = sum;
}
