// One step of the heat equation on a torus: a five-point stencil over a tile with its halo in shared memory.

constexpr int TX = 32, TY = 16;

// orbit: rows = 8192; columns = 8192; c = 0.1f
// orbit: u = randn(rows, columns); next = empty(rows, columns)
// orbit: launch heat<<<dim3(cdiv(columns, 32), cdiv(rows, 16)), dim3(32, 16)>>>(rows, columns, c, u, next)
// orbit: expect next == u + c * (roll(u, 1, 0) + roll(u, -1, 0) + roll(u, 1, 1) + roll(u, -1, 1) - 4 * u)
// orbit: case ragged: rows = 101, columns = 1003
// orbit: bytes 2 * sizeof(float) * rows * columns; flops 7 * rows * columns
__global__ void heat(int rows, int columns, float c, const float* __restrict__ u, float* __restrict__ next) {
  __shared__ float tile[TY + 2][TX + 2];
  int top = blockIdx.y * TY, left = blockIdx.x * TX;
  for (int i = threadIdx.y * TX + threadIdx.x; i < (TY + 2) * (TX + 2); i += TX * TY) {
    int row = (top + i / (TX + 2) + rows - 1) % rows;
    int column = (left + i % (TX + 2) + columns - 1) % columns;
    tile[i / (TX + 2)][i % (TX + 2)] = u[row * columns + column];
  }
  __syncthreads();
  int row = top + threadIdx.y, column = left + threadIdx.x;
  if (row >= rows || column >= columns) return;
  int y = threadIdx.y + 1, x = threadIdx.x + 1;
  float around = tile[y - 1][x] + tile[y + 1][x] + tile[y][x - 1] + tile[y][x + 1];
  next[row * columns + column] = tile[y][x] + c * (around - 4.0f * tile[y][x]);
}
