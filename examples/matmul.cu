// c = a @ b in float32, row-major: tiles in shared memory, EACH x EACH results a thread in registers.

// orbit: m = 2048; n = 2048; k = 1024; corner = 1.0f
// orbit: a = where(arange(m * k).view(m, k) == k, corner, randn(m, k)); b = randn(k, n); c = empty(m, n)
// orbit: launch matmul<64, 16, 4><<<dim3(cdiv(n, 64), cdiv(m, 64)), 256>>>(m, n, k, a, b, c)
// orbit: expect c == a @ b
// orbit: case ragged: m = 130, n = 67, k = 33
// Row 1 begins with infinity: whoever reads on from row 0 and multiplies by zero gets NaN.
// orbit: case infinite: m = 65, n = 70, k = 33, corner = INFINITY
// orbit: bytes sizeof(float) * (m * k + k * n + m * n); flops 2 * m * n * k
template <int TILE, int DEPTH, int EACH>
__global__ void __launch_bounds__((TILE / EACH) * (TILE / EACH))
matmul(int m, int n, int k, const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c) {
  constexpr int SIDE = TILE / EACH, THREADS = SIDE * SIDE;
  __shared__ float as[DEPTH][TILE + 1], bs[DEPTH][TILE];
  int top = blockIdx.y * TILE, left = blockIdx.x * TILE;
  int ty = threadIdx.x / SIDE, tx = threadIdx.x % SIDE;
  float sums[EACH][EACH] = {};

  for (int start = 0; start < k; start += DEPTH) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
      int row = top + i / DEPTH, inner = start + i % DEPTH;
      as[i % DEPTH][i / DEPTH] = row < m && inner < k ? a[row * k + inner] : 0.0f;
    }
    for (int i = threadIdx.x; i < TILE * DEPTH; i += THREADS) {
      int inner = start + i / TILE, column = left + i % TILE;
      bs[i / TILE][i % TILE] = inner < k && column < n ? b[inner * n + column] : 0.0f;
    }
    __syncthreads();
    for (int d = 0; d < DEPTH; ++d) {
      float column[EACH], row[EACH];
      for (int i = 0; i < EACH; ++i) column[i] = as[d][ty + i * SIDE];
      for (int j = 0; j < EACH; ++j) row[j] = bs[d][tx + j * SIDE];
      for (int i = 0; i < EACH; ++i)
        for (int j = 0; j < EACH; ++j) sums[i][j] += column[i] * row[j];
    }
    __syncthreads();
  }

  for (int i = 0; i < EACH; ++i)
    for (int j = 0; j < EACH; ++j) {
      int row = top + ty + i * SIDE, column = left + tx + j * SIDE;
      if (row < m && column < n) c[row * n + column] = sums[i][j];
    }
}
